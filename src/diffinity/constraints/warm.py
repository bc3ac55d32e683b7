"""Compiles all kernels of constraints in advance, for servers and benchmarks."""

from __future__ import annotations

from functools import cache


@cache
def kernels_ready() -> None:
    """Compile the kernels, or load them from numba's cache, by using each of them once. Later calls do nothing.

    >>> kernels_ready()
    """
    from diffinity.constraints.dfa import ByteDFA
    from diffinity.constraints.nfa import NfaBuilder
    from diffinity.constraints.regex import compile_regex

    nfa = NfaBuilder()
    start = nfa.state()
    nfa.edge(start, 97, 99, start)
    letters = nfa.build(start, [start])
    letters.difference(ByteDFA.from_strings([b"a", b"bc"]))
    # More states than the first arrays hold, so that the kernels that enlarge arrays are used too.
    compile_regex("[ab]{300}é").difference(ByteDFA.literal(b"x" * 1100))
