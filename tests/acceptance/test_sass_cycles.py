"""Counting the cycles of machine code, on listings made here."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from benchmarks.sass_cycles import MEMORY, Code, read_sass

NONE = 7


def line(text: str, stall: int, releases: int = NONE, waits: int = 0) -> str:
    """An instruction as `nvdisasm -hex` prints it: its schedule is in the upper half of its code."""
    control = stall | releases << 5 | NONE << 8 | waits << 11
    return f"        /*0000*/  {text} ;  /* 0x{0:016x} */\n        /* 0x{control << 41:016x} */\n"


def test_an_instruction_waits_for_the_read_that_it_needs() -> None:
    listing = line("LDG.E.64 R2, [R4.64]", 1, releases=0) + line("DADD R6, R2, R2", 4, waits=1)
    assert Code(read_sass(listing), 90, 1).cycles() == MEMORY + 4


def test_a_loop_takes_as_long_as_a_round_under_way() -> None:
    """The read is for the next round, so only what is left of it when that begins is waited for."""
    body = line("FADD R6, R2, R2", 9, waits=1) + line("LDG.E R2, [R4.64]", 1, releases=0)
    code = Code(read_sass(".L_x_0:\n" + body + line("@P0 BRA `(.L_x_0)", 5)), 90, 1)
    (loop,) = code.inner_loops
    assert code.cycles(loop) == MEMORY + 9


def test_what_a_condition_jumps_over_can_be_left_out() -> None:
    listing = line("@P0 BRA `(.L_x_1)", 5) + line("FADD R6, R2, R2", 9) + ".L_x_1:\n" + line("EXIT", 3)
    code = Code(read_sass(listing), 90, 1)
    assert (code.cycles(), code.cycles(code.instructions, skipping=True)) == (17, 8)


def test_warps_share_the_float64_unit_of_sm_86() -> None:
    listing = line("DADD R6, R2, R2", 1) * 3
    assert [Code(read_sass(listing), 86, warps).cycles() for warps in (1, 4)] == [33, 129]
