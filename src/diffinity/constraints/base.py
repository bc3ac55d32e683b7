"""Constraints as values: immutable, combined with `& | ~ +`, each with a method that compiles a `ByteDFA`."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.regex import compile_regex
from diffinity.constraints.regex_syntax import check_syntax, embeddable, has_anchors, parse
from diffinity.errors import InvalidArgument, UnsupportedConstraint
from diffinity.limits import Limits, compiling


@dataclass(frozen=True)
class Constraint(ABC):
    """A set of texts. Subclasses define it in `_build`.

    >>> short = Regex("[a-z]{1,5}") & ~Text("never")
    >>> short.accepts("ever"), short.accepts("never")
    (True, False)
    """

    @abstractmethod
    def _build(self) -> ByteDFA:
        """Compile the constraint inside a running `compiling()`; called once per value."""

    def _inner(self) -> tuple[Constraint, ...]:
        """The parts of this constraint."""
        return ()

    def _check_depth(self) -> None:
        """Refuse constraints nested too deeply for `repr`, `hash` and `==`, which recurse."""
        depth = 1 + max((part.__dict__.get("_depth", 1) for part in self._inner()), default=0)
        with compiling() as budget:
            budget.check("nesting_depth", depth, "this constraint")
        self.__dict__["_depth"] = depth

    def dfa(self, limits: Limits | None = None) -> ByteDFA:
        """The minimal automaton of this constraint, compiled on the first call and then cached.

        >>> Text("ab").dfa().n_states
        3
        """
        with compiling(limits) as budget:
            pending: list[Constraint] = [self]
            while pending:  # the innermost first, without recursion
                part = pending[-1]
                inner = [] if "_compiled" in part.__dict__ else part._inner()
                uncompiled = [x for x in inner if "_compiled" not in x.__dict__]
                if uncompiled:
                    pending.extend(uncompiled)
                    continue
                pending.pop()
                if "_compiled" not in part.__dict__:
                    with budget.apart():
                        steps_before = budget.meter.steps
                        machine = part._build()
                        # Not a field: a cache is not part of equality and may be filled on a frozen value.
                        part.__dict__["_compiled"] = machine, budget.meter.steps - steps_before
                        budget.meter.steps = steps_before
            compiled: tuple[ByteDFA, int] = self.__dict__["_compiled"]
            # Each compilation is charged once, as if it had compiled this constraint itself.
            if (key := ("constraint", id(self))) not in budget.meter.charged:
                budget.meter.charged[key] = self  # a reference, so that the id stays unique
                budget.spend(compiled[1], "this constraint")
            return compiled[0]

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def accepts(self, text: str | bytes) -> bool:
        """Whether this constraint accepts the whole text.

        >>> Regex("[0-9]+").accepts("42"), Regex("[0-9]+").accepts(b"42!")
        (True, False)
        """
        if isinstance(text, str):
            try:
                text = text.encode()
            except UnicodeEncodeError:  # a lone surrogate, which UTF-8 can't encode
                return False
        return self.dfa().accepts(text)

    def pattern(self) -> str:
        """The equivalent regular expression (Python's dialect, `fullmatch`).

        >>> (Text("a.b") | Regex("c+")).pattern()
        '(?:a\\\\.b|c+)'
        """
        raise UnsupportedConstraint(
            f"{type(self).__name__} cannot be written as a regular expression; use the constraint itself"
        )

    def __and__(self, other: Constraint | str) -> Constraint:
        return And((*_parts(self, And), *_parts(lift(other), And)))

    def __or__(self, other: Constraint | str) -> Constraint:
        return Or((*_parts(self, Or), *_parts(lift(other), Or)))

    def __add__(self, other: Constraint | str) -> Constraint:
        return Concat(*_parts(self, Concat), *_parts(lift(other), Concat))

    def __rand__(self, other: str) -> Constraint:
        return lift(other) & self

    def __ror__(self, other: str) -> Constraint:
        return lift(other) | self

    def __radd__(self, other: str) -> Constraint:
        return lift(other) + self

    def __invert__(self) -> Constraint:
        return self.part if isinstance(self, Not) else Not(self)

    def repeat(self, min: int = 0, max: int | None = None) -> Constraint:  # noqa: A002
        """From `min` to `max` repetitions; None for no upper bound.

        >>> Text("ab").repeat(1, 2).accepts("abab")
        True
        """
        return Repeat(self, min, max)

    def optional(self) -> Constraint:
        """This constraint or the empty text.

        >>> Text("ab").optional().accepts("")
        True
        """
        return Repeat(self, 0, 1)


def lift(x: Constraint | str) -> Constraint:
    """A constraint unchanged; a `str` as a literal text.

    >>> lift("a+b")
    Text('a+b')
    """
    if isinstance(x, Constraint):
        return x
    if isinstance(x, str):
        return Text(x)
    raise InvalidArgument(f"a constraint or a str is needed here, not {type(x).__name__}")


def _parts(x: Constraint, kind: type[And] | type[Or] | type[Concat]) -> tuple[Constraint, ...]:
    """The parts of an associative combination, flattened."""
    return x.parts if type(x) is kind else (x,)


@dataclass(frozen=True, repr=False)
class Regex(Constraint):
    """All texts that `re.fullmatch(source, text, flags)` matches.

    Lookaround, back-references and similar constructs raise an error with the place and an alternative.

    >>> Regex(r"(?i)yes|no").accepts("NO")
    True
    """

    source: str
    flags: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            raise InvalidArgument(f"a pattern must be a str, not {type(self.source).__name__}")
        object.__setattr__(self, "flags", int(self.flags))
        check_syntax(self.source, self.flags)

    def __repr__(self) -> str:
        return f"Regex({self.source!r})" if not self.flags else f"Regex({self.source!r}, {self.flags})"

    def _build(self) -> ByteDFA:
        return compile_regex(self.source, self.flags)

    def pattern(self) -> str:
        return embeddable(self.source, self.flags)


@dataclass(frozen=True, repr=False)
class Text(Constraint):
    """A single text.

    >>> Text("a+").accepts("a+")
    True
    """

    text: str

    def __post_init__(self) -> None:
        _encoded(self.text)

    def __repr__(self) -> str:
        return f"Text({self.text!r})"

    def _build(self) -> ByteDFA:
        return ByteDFA.literal(_encoded(self.text))

    def pattern(self) -> str:
        return re.escape(self.text)


@dataclass(frozen=True, repr=False, init=False)
class Choice(Constraint):
    """One of several texts or constraints.

    >>> Choice(["red", "green", Regex("blue[0-9]")]).accepts("blue7")
    True
    """

    options: tuple[str | Constraint, ...]

    def __init__(self, options: Iterable[str | Constraint]) -> None:
        chosen = (options,) if isinstance(options, str) else tuple(options)
        if not chosen:
            raise InvalidArgument("Choice needs at least one option")
        for option in chosen:
            if isinstance(option, str):
                _encoded(option)
            else:
                lift(option)
        object.__setattr__(self, "options", chosen)
        self._check_depth()

    def _inner(self) -> tuple[Constraint, ...]:
        return tuple(x for x in self.options if isinstance(x, Constraint))

    def __repr__(self) -> str:
        options = ", ".join(map(repr, self.options[:8])) + (", …" if len(self.options) > 8 else "")
        return f"Choice([{options}])"

    def _build(self) -> ByteDFA:
        texts = ByteDFA.from_strings(_encoded(x) for x in self.options if isinstance(x, str))
        automata = [x.dfa() for x in self.options if isinstance(x, Constraint)]
        return union_of([texts, *automata]) if automata else texts

    def pattern(self) -> str:
        return "(?:" + "|".join(lift(option).pattern() for option in self.options) + ")"


@dataclass(frozen=True, repr=False, init=False)
class Concat(Constraint):
    """The concatenation of the parts.

    >>> Concat("id-", Regex("[0-9]+")).accepts("id-7")
    True
    """

    parts: tuple[Constraint, ...]

    def __init__(self, *parts: Constraint | str) -> None:
        object.__setattr__(self, "parts", tuple(map(lift, parts)))
        self._check_depth()

    def _inner(self) -> tuple[Constraint, ...]:
        return self.parts

    def __repr__(self) -> str:
        return f"Concat({', '.join(map(repr, self.parts))})"

    def _build(self) -> ByteDFA:
        machines = [part.dfa() for part in self.parts]
        return machines[0].concat(*machines[1:]) if machines else ByteDFA.epsilon()

    def pattern(self) -> str:
        return "".join(_movable(part.pattern()) for part in self.parts)


@dataclass(frozen=True, repr=False)
class And(Constraint):
    """The texts that all parts accept; written `a & b`.

    >>> And((Regex("[a-z]+"), Regex(".{3}"))).accepts("abc")
    True
    """

    parts: tuple[Constraint, ...]

    def __post_init__(self) -> None:
        self._check_depth()

    def _inner(self) -> tuple[Constraint, ...]:
        return self.parts

    def __repr__(self) -> str:
        return "(" + " & ".join(map(repr, self.parts)) + ")"

    def _build(self) -> ByteDFA:
        # Small machines first: strings that they exclude do not enlarge the products.
        machines = sorted((part.dfa() for part in self.parts), key=lambda dfa: dfa.n_states)
        return reduce(ByteDFA.intersection, machines) if machines else ByteDFA.utf8()


@dataclass(frozen=True, repr=False)
class Or(Constraint):
    """The texts that at least one part accepts; written `a | b`.

    >>> Or((Text("a"), Text("b"))).accepts("b")
    True
    """

    parts: tuple[Constraint, ...]

    def __post_init__(self) -> None:
        self._check_depth()

    def _inner(self) -> tuple[Constraint, ...]:
        return self.parts

    def __repr__(self) -> str:
        return "(" + " | ".join(map(repr, self.parts)) + ")"

    def _build(self) -> ByteDFA:
        return union_of([part.dfa() for part in self.parts])

    def pattern(self) -> str:
        return "(?:" + "|".join(part.pattern() for part in self.parts) + ")"


@dataclass(frozen=True, repr=False)
class Not(Constraint):
    """Every valid UTF-8 text that the part does not accept; written `~a`.

    >>> Not(Text("a")).accepts("b"), Not(Text("a")).accepts(b"\\xff")
    (True, False)
    """

    part: Constraint

    def __post_init__(self) -> None:
        self._check_depth()

    def _inner(self) -> tuple[Constraint, ...]:
        return (self.part,)

    def __repr__(self) -> str:
        return f"~{self.part!r}"

    def _build(self) -> ByteDFA:
        return self.part.dfa().complement()


@dataclass(frozen=True, repr=False)
class Repeat(Constraint):
    """From `min` to `max` repetitions of the part; None for no upper bound.

    >>> Repeat(Text("ab"), 2, 2).accepts("abab")
    True
    """

    part: Constraint
    min: int = 0
    max: int | None = None

    def __post_init__(self) -> None:
        if self.min < 0 or (self.max is not None and self.max < self.min):
            raise InvalidArgument(f"Repeat needs 0 <= min <= max, not {self.min} and {self.max}")
        self._check_depth()

    def _inner(self) -> tuple[Constraint, ...]:
        return (self.part,)

    def __repr__(self) -> str:
        return f"Repeat({self.part!r}, {self.min}, {self.max})"

    def _build(self) -> ByteDFA:
        return self.part.dfa().repeat(self.min, self.max)

    def pattern(self) -> str:
        upper = "" if self.max is None else self.max
        return f"(?:{_movable(self.part.pattern())}){{{self.min},{upper}}}"


def union_of(machines: list[ByteDFA]) -> ByteDFA:
    """The union of the machines, through one subset construction.

    >>> union_of([ByteDFA.literal(b"a"), ByteDFA.literal(b"b")]).count(1)
    2
    """
    if len(machines) <= 2:
        return reduce(ByteDFA.union, machines, ByteDFA.empty()) if len(machines) != 1 else machines[0]
    nfa = NfaBuilder()
    start, end = nfa.state(), nfa.state()
    for machine in machines:
        nfa.embed(machine, start, end)
    return nfa.build(start, [end])


def _movable(pattern: str) -> str:
    """The pattern as a part of a longer one; refused if it has anchors."""
    if has_anchors(parse(pattern)):
        raise UnsupportedConstraint(
            f"{pattern!r} has an anchor, which would mean something else inside a longer regular expression; "
            "use the constraint itself"
        )
    return f"(?:{pattern})" if "|" in pattern else pattern


def _encoded(text: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidArgument(f"a text must be a str, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"the text {text!r} has a lone surrogate, which UTF-8 cannot hold") from error
