"""The second process of the first call compiles what a text needs, and is started only when it helps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import diffinity as dy
from diffinity import precompile


def test_the_late_loops_are_compiled_for_the_types_that_a_text_needs() -> None:
    dy.generate(dy.load(), dy.Regex("[A-Z][a-z ]{5,30}[.]"), 1, 16, num_inference_steps=3)
    for loop, arguments in precompile.late_loops():
        assert arguments in loop.signatures, loop


def test_the_second_process_fills_the_cache(tmp_path: Path) -> None:
    program = (
        "import sys; from diffinity import precompile\n"
        "precompile.LATE_LOOPS = {k: v for k, v in precompile.LATE_LOOPS.items() if 'scale_rows' in k}\n"
        "precompile.main()\nassert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=300)
    assert [file.name.split("-")[0] for file in tmp_path.rglob("*.nbi")] == ["rescue_kernels.scale_rows"]


@pytest.mark.parametrize(
    ("needed", "processors", "stored", "started"),
    [(True, 2, False, True), (False, 2, False, False), (True, 1, False, False), (True, 2, True, False)],
)
def test_when_it_is_started(
    needed: bool, processors: int, stored: bool, started: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Process:
        ended = False

        def __init__(self, *_: object, **__: object) -> None:
            made.append(self)

        def terminate(self) -> None:
            self.ended = True

        def wait(self) -> None:
            assert self.ended

    made: list[Process] = []
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(precompile, "_processors", lambda: processors)
    monkeypatch.setattr(subprocess, "Popen", Process)
    if stored:
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "numba_kernels.best_path-100.py311.nbi").touch()
    with precompile.precompiling(needed):
        assert bool(made) is started
        assert not any(process.ended for process in made)
    assert all(process.ended for process in made)
