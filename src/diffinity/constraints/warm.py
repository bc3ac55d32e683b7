"""Have the kernels compiled before the clock of a compilation counts."""

from __future__ import annotations

import threading

from diffinity.limits import Budget

_lock = threading.RLock()
_state = {"begun": False, "ready": False}


def kernels_ready(budget: Budget) -> None:
    """Compile the kernels, or load them from numba's cache, by using each once; at once from then on.

    >>> from diffinity.limits import Limits
    >>> kernels_ready(Budget(Limits()))
    """
    if _state["ready"]:
        return
    with budget.paused(), _lock:
        if not _state["begun"]:  # the uses below come here again
            _state["begun"] = True
            _use_each_once()
            _state["ready"] = True


def _use_each_once() -> None:
    from diffinity.constraints.dfa import ByteDFA
    from diffinity.constraints.nfa import NfaBuilder
    from diffinity.constraints.regex import compile_regex

    nfa = NfaBuilder()
    start = nfa.state()
    nfa.edge(start, 97, 99, start)
    letters = nfa.build(start, [start])
    letters.difference(ByteDFA.from_strings([b"a", b"bc"]))
    # More states than the first arrays hold, so that those which make room are used too.
    compile_regex("[ab]{300}é").difference(ByteDFA.literal(b"x" * 1100))
