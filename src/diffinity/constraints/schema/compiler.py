"""Compiles the literals of a place to the automaton of the values that satisfy them, one JSON type at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.schema.arrays import ArrayBuilder
from diffinity.constraints.schema.assembly import Assembly
from diffinity.constraints.schema.document import Document
from diffinity.constraints.schema.keywords import Reader
from diffinity.constraints.schema.listed import TYPES
from diffinity.constraints.schema.literals import Alternative, Expander, Literal
from diffinity.constraints.schema.numbers import EXACT_DIGITS, UNCOUNTED, numbers
from diffinity.constraints.schema.objects import ObjectBuilder
from diffinity.constraints.schema.options import Options
from diffinity.constraints.schema.strings import strings
from diffinity.errors import ConstraintTooLarge
from diffinity.limits import PYTHON_STEPS, charged_cache, compiling

# The maximum recursion depth unless the caller sets `max_depth`, and the limits on states that may stop it
# earlier: one for the first two levels, which matter more, and one for the next levels.
MOST_DEPTH = 8
FIRST_STATES = 100_000
AFFORDABLE_STATES = 20_000
# The nesting of arrays and objects in an unconstrained value: pairs (levels, arrays among them). The nesting at
# each place must stay within one of the pairs. An automaton copies the scalars for each path to a place. So few
# arrays and many objects cost less than any mixture, and they are more common.
Shape = tuple[tuple[int, int], ...]
# Unless the caller sets `any_depth`: the first shape with which the whole automaton stays within this size.
ANY_SHAPES: tuple[Shape, ...] = (((2, 2),), ((1, 1),))
ANY_SHAPES_OPEN: tuple[Shape, ...] = (
    ((8, 2), (5, 3)),
    ((7, 2), (5, 3)),
    ((7, 1), (5, 2), (4, 3)),
    ((6, 1), (4, 2), (3, 3)),
    ((5, 1), (3, 2)),
    ((4, 1), (3, 2)),
    ((3, 1), (2, 2)),
    ((2, 2),),
)
ANY_STATES = 8_000
ANY_STATES_OPEN = 40_000
# The maximum number of states of an object with properties in any order; a document that is too large with the
# first limit is tried with the next.
ORDER_STATES = (150_000, 20_000)

# The maximum depth of places that are compiled by recursion. A deeper place is compiled first, with a new stack.
RECURSION = 25


class _CompileFirst(Exception):
    """Raised with the place that must be compiled before other places can be compiled."""

    def __init__(self, literals: tuple[Literal, ...], depth: int) -> None:
        self.place = literals, depth


class Compiler:
    """Compiles the places of one document, each set of literals once."""

    def __init__(self, document: Document, options: Options, order_states: int = ORDER_STATES[0]) -> None:
        self.document = document
        self.options = options
        self.order_states = order_states
        self.reader = Reader(document)
        self.expander = Expander(document, options.max_branches)
        self.assembly = Assembly()
        self._known: dict[tuple[tuple[Literal, ...], int], ByteDFA] = {}
        self._shapes: dict[Shape, ByteDFA] = {}
        self._levels = 0
        self.ordered: dict[str, None] = {}  # places whose names keep an order although `order="any"` was requested

    def document_language(self) -> ByteDFA:
        """The values that the whole document admits."""
        root = (Literal(self.document.root),)
        shapes = self.any_shapes()
        # Values that are distinguished while compiling must stay distinct for any depth of unconstrained values.
        self.assembly.bind_any(any_value(self.options, shapes[0]))
        depth = self.options.max_depth
        if depth is None:
            depth = self._affordable_depth(root, shapes[-1]) if self.document.has_recursion else 0
        automaton = self.from_the_top(root, depth)
        max_states = ANY_STATES_OPEN if self.options.open else ANY_STATES
        affordable = (shape for shape in shapes if self.size_with(automaton, shape) <= max_states)
        self.assembly.bind_any(any_value(self.options, next(affordable, shapes[-1])))
        return self.assembly.written_out(automaton)

    def size_with(self, dfa: ByteDFA, shape: Shape) -> int:
        """The number of states of a machine after expansion, with unconstrained values of this shape."""
        return self.assembly.size(dfa, any_value(self.options, shape))

    def any_shapes(self) -> tuple[Shape, ...]:
        """The shape of unconstrained values: the first that keeps the automaton small enough."""
        if self.options.any_depth is not None:
            return (((self.options.any_depth, self.options.any_depth),),)
        return ANY_SHAPES_OPEN if self.options.open else ANY_SHAPES

    def _affordable_depth(self, root: tuple[Literal, ...], shape: Shape) -> int:
        """The greatest recursion depth that keeps the automaton small, or the least that accepts any value."""
        spent = 0
        for depth in range(MOST_DEPTH + 1):
            with compiling() as budget:
                # A level costs a multiple of the previous level, so a level that would probably exceed the budget
                # is not started.
                if (
                    depth > 1
                    and 4 * (budget.meter.steps - spent) > budget.limits.compile_steps - budget.meter.steps
                ):
                    return depth - 1
                spent = budget.meter.steps
            needed = depth == 0 or self.from_the_top(root, depth - 1).is_empty
            try:
                automaton = self.from_the_top(root, depth)
            except ConstraintTooLarge as refusal:
                # The work done stays counted, and the language must not depend on the speed of the machine.
                if needed or refusal.limit in ("compile_steps", "compile_seconds"):
                    raise
                return depth - 1
            max_states = FIRST_STATES if depth <= 2 else AFFORDABLE_STATES
            if not needed and self.size_with(automaton, shape) > max_states:
                return depth - 1
        return MOST_DEPTH

    def from_the_top(self, literals: tuple[Literal, ...], depth: int) -> ByteDFA:
        """The values of a place, with places below it at any depth, on a shallow stack."""
        pending = [(literals, depth)]
        automaton = ByteDFA.empty()
        while pending:
            self._levels = 0
            try:
                automaton = self.value(*pending[-1])
                pending.pop()
            except _CompileFirst as deeper:
                pending.append(deeper.place)
        return automaton

    def value(self, literals: tuple[Literal, ...], depth: int) -> ByteDFA:
        """The values that satisfy the literals, with `depth` recursive references left to follow."""
        literals = tuple(
            literal for literal in literals if literal.node.raw not in (True, {}) or not literal.holds
        )
        if not literals:
            return self.assembly.any
        key = (literals, depth)
        if key not in self._known:
            if self._levels >= RECURSION:
                raise _CompileFirst(literals, depth)
            self._levels += 1
            self._known[key] = self._value(literals, depth, None)
            self._levels -= 1
        return self._known[key]

    def any_of_shape(self, shape: Shape) -> ByteDFA:
        """Any value of this shape, expanded."""
        return self.assembly.written_out(self.part_of_shape(shape))

    def part_of_shape(self, shape: Shape) -> ByteDFA:
        """Any value of this shape with references to its parts, each compiled once."""
        if shape not in self._shapes:
            self._shapes[shape] = self._value((), 0, shape) if shape else ByteDFA.empty()
        return self._shapes[shape]

    def _value(self, literals: tuple[Literal, ...], depth: int, shape: Shape | None) -> ByteDFA:
        with compiling() as budget:
            budget.spend(20 * PYTHON_STEPS, "compiling the schema")
        parts: dict[ByteDFA, None] = {}
        for kind in TYPES:
            alternatives = self.expander.alternatives(literals, kind, depth)
            inside = _inside(shape, kind)
            places = [
                _Below(self, literals, alternative, depth, inside, len(alternatives))
                for alternative in alternatives
            ]
            automata = [
                self._of_type(kind, alternative, below)
                for alternative, below in zip(alternatives, places, strict=True)
            ]
            if (
                kind == "object"
                and alternatives
                and not self.options.open
                and all(dfa.is_empty for dfa in automata)
            ):
                # Only properties that the schema allows without naming them could satisfy it.
                automata = [
                    self._object(alternative, below, True)
                    for alternative, below in zip(alternatives, places, strict=True)
                ]
            parts |= dict.fromkeys(dfa for dfa in automata if not dfa.is_empty)
        return _union(list(parts))

    def _of_type(self, kind: str, alternative: Alternative, below: _Below) -> ByteDFA:
        if kind == "object":
            return self._object(alternative, below, self.options.open)
        if kind == "array":
            return self._array(alternative, below)
        if kind == "number":
            digits = UNCOUNTED if self.options.open else EXACT_DIGITS
            wanted = [self.reader.number(node, True) for node in alternative.holding]
            return numbers(wanted, [self.reader.number(node, False) for node in alternative.failing], digits)
        if kind == "string":
            return self._string(alternative)
        return self._constant(kind, alternative)

    def _constant(self, kind: str, alternative: Alternative) -> ByteDFA:
        values: set[bool | None] = {None} if kind == "null" else {True, False}
        for node in alternative.holding:
            listed = self.reader.scalars(node, kind, True)
            values = values if listed is None else values & listed
        for node in alternative.failing:
            listed = self.reader.scalars(node, kind, False)
            values = set() if listed is None else values - listed
        spelled = {None: b"null", True: b"true", False: b"false"}
        return ByteDFA.from_strings(spelled[value] for value in values)

    def _string(self, alternative: Alternative) -> ByteDFA:
        wanted = [self.reader.string(node, True) for node in alternative.holding]
        unwanted = [self.reader.string(node, False) for node in alternative.failing]
        return strings(wanted, unwanted, longest=self.options.max_string, controls=self.options.open)

    def _array(self, alternative: Alternative, below: _Below) -> ByteDFA:
        holding = [self.reader.array(node, True) for node in alternative.holding]
        scopes = (self.reader.unevaluated_items(scope) for scope in alternative.scopes)
        holding += [part for part in scopes if part is not None]
        return ArrayBuilder(
            below, holding, [self.reader.array(node, False) for node in alternative.failing]
        ).build()

    def _object(self, alternative: Alternative, below: _Below, is_open: bool) -> ByteDFA:
        holding = [self.reader.object(node, True) for node in alternative.holding]
        scopes = (self.reader.unevaluated_properties(scope) for scope in alternative.scopes)
        holding += [part for part in scopes if part is not None]
        failing = [self.reader.object(node, False) for node in alternative.failing]
        return ObjectBuilder(below, holding, failing, below.declared_names, is_open).build()


@dataclass(frozen=True)
class _Below:
    """The places below one alternative of a place."""

    compiler: Compiler
    literals: tuple[Literal, ...]
    alternative: Alternative
    depth: int
    shape: Shape | None  # of the remaining levels, in an unconstrained value
    alternatives: int = 1  # of this type at the same place

    @property
    def options(self) -> Options:
        return self.compiler.options

    @cached_property
    def declared_names(self) -> tuple[str, ...]:
        return self.compiler.expander.declared_names(self.literals)

    @property
    def assembly(self) -> Assembly:
        return self.compiler.assembly

    @property
    def document(self) -> Document:
        return self.compiler.document

    def below(self, literals: tuple[Literal, ...]) -> ByteDFA:
        if self.shape is not None:
            return self.compiler.part_of_shape(self.shape)
        return self.compiler.value(literals, self.depth - self.alternative.descended)

    def limit_states(self, states: int, doing: str) -> None:
        with compiling() as budget:
            budget.check("nfa_states", states, doing)
            budget.check("dfa_states", states, doing)

    def least_size(self, value: ByteDFA) -> int:
        if self.shape is not None:
            return value.n_states
        return self.compiler.size_with(value, self.compiler.any_shapes()[-1])

    @property
    def flat_any(self) -> ByteDFA:
        return any_value(self.options, ((0, 0),))

    @property
    def order_states(self) -> int:
        # The union of alternatives has a state for each compatible tuple of their states.
        return self.compiler.order_states // self.alternatives**2

    def note_order(self, order: str) -> None:
        if self.options.order == "any" and order != "none":
            self.compiler.ordered |= {node.pointer: None for node in self.alternative.holding[:1]}

    def spend(self, passes: int, doing: str) -> None:
        with compiling() as budget:
            budget.spend(passes * PYTHON_STEPS, doing)


@charged_cache(maxsize=32)
def any_value(options: Options, shape: Shape) -> ByteDFA:
    """Any JSON value whose arrays and objects are nested within a shape; no values if the shape has no levels.

    >>> flat = any_value(Options(), ((0, 0),))
    >>> flat.accepts(b"[]"), flat.accepts(b"[1]")
    (True, False)
    >>> objects = any_value(Options(), ((2, 0),))
    >>> objects.accepts(b'{"a": {"b": 1}}'), objects.accepts(b"[1]")
    (True, False)
    """
    return Compiler(Document(True), options).any_of_shape(shape)


def _inside(shape: Shape | None, kind: str) -> Shape | None:
    """The shape inside an array or object of this shape."""
    if shape is None:
        return None
    is_array = kind == "array"
    pairs = {(levels - 1, min(arrays - is_array, levels - 1)) for levels, arrays in shape if levels > 0}
    pairs = {pair for pair in pairs if pair[1] >= 0}
    wider = {(a, b) for a, b in pairs for c, d in pairs if (a, b) != (c, d) and a <= c and b <= d}
    return tuple(sorted(pairs - wider, reverse=True))


def _union(parts: list[ByteDFA]) -> ByteDFA:
    if len(parts) <= 1:
        return parts[0] if parts else ByteDFA.empty()
    nfa = NfaBuilder()
    start, end = nfa.state(), nfa.state()
    for part in parts:
        nfa.embed(part, start, end)
    return nfa.build(start, [end])
