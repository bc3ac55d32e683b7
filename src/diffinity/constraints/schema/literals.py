"""The logic of schemas: a conjunction of schemas and negated schemas, multiplied out into plain alternatives.

**Why it is sound.** A place of the instance must satisfy a set of *literals*: schemas, some of them negated. For
one JSON type at a time the set is brought into negation normal form and multiplied out: `allOf`, `$ref`, `anyOf`,
`oneOf`, `not`, `if`, `dependentSchemas` disappear, and what is left is a list of *alternatives*, each a set of
plain schemas (only assertions about this type) that must hold and a set of plain schemas that must fail. `oneOf`
is "this one, and none of the others"; the negation of a conjunction is one alternative per part. Arrays and
objects are then built so that a failing schema fails at a witness that the automaton has read, and only the scalar
types are ever complemented, where that is exact. So everything above the scalars is monotone: leaving something
out below (closed objects, bounded depth, narrow formats) can only make the language smaller, never accept a wrong
string. In particular a closed object is never complemented: a schema under `not` has its full, open meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from diffinity.constraints.schema import drafts
from diffinity.constraints.schema.document import Document, Node, shown
from diffinity.constraints.schema.listed import listed_values, spelled_out, type_of, types_of
from diffinity.constraints.schema.refusals import MalformedSchema, SchemaTooLarge
from diffinity.limits import PYTHON_STEPS, compiling

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class Literal(NamedTuple):
    """A schema that must hold at a place, or must fail there; `plain` excludes keywords that apply subschemas."""

    node: Node
    holds: bool = True
    plain: bool = False

    def negated(self) -> Literal:
        """The negated literal."""
        return Literal(self.node, not self.holds, self.plain)


@dataclass(frozen=True)
class Scope:
    """A schema with `unevaluated…`, and the plain schemas that evaluated something for it in this alternative."""

    node: Node
    evaluated_by: tuple[Node, ...]


@dataclass(frozen=True)
class Alternative:
    """Plain schemas that hold and that fail, for one type."""

    holding: tuple[Node, ...] = ()
    failing: tuple[Node, ...] = ()
    scopes: tuple[Scope, ...] = ()
    descended: bool = False  # a recursive reference was followed


class _Branch(NamedTuple):
    """An alternative under construction: literals still to be expanded, each with its enclosing scopes."""

    todo: tuple[tuple[Literal, frozenset[Node]], ...]
    seen: frozenset[Literal] = frozenset()
    holding: tuple[Node, ...] = ()
    failing: tuple[Node, ...] = ()
    evaluated: tuple[tuple[Node, Node], ...] = ()  # (scope, plain schema within it)
    scopes: tuple[Node, ...] = ()
    descended: bool = False


COMBINING = {"$ref", "allOf", "anyOf", "oneOf", "not"}  # a schema of these alone asserts nothing by itself

# One way to satisfy a clause: literals, each with whether its annotations count for the enclosing scopes.
Way = tuple[tuple[Literal, bool], ...]


@dataclass
class Expander:
    """Multiplies out the literals of a place."""

    document: Document
    max_branches: int
    _ways: dict[tuple[Literal, str], list[list[Way]] | None] = field(default_factory=dict)
    _names: dict[tuple[Literal, ...], tuple[str, ...]] = field(default_factory=dict)

    def alternatives(self, literals: tuple[Literal, ...], kind: str, depth: int) -> list[Alternative]:
        """All ways in which a value of type `kind` can satisfy the literals; none if it cannot.

        At `depth` 0 recursive references are dead ends.
        """
        stack = [_Branch(tuple((literal, frozenset()) for literal in literals))]
        found: dict[Alternative, None] = {}
        while stack:
            branch = stack.pop()
            with compiling() as budget:
                budget.spend(PYTHON_STEPS * (6 + len(branch.todo)), "combining schemas")
            if branch.todo:
                stack.extend(reversed(list(self._step(branch, kind, depth))))
            else:
                found[_finished(branch)] = None
            if literals:
                self._check(len(found) + len(stack), literals[0].node)
        return list(found)

    def _step(self, branch: _Branch, kind: str, depth: int) -> Iterator[_Branch]:
        (literal, scopes), rest = branch.todo[0], branch.todo[1:]
        if literal.plain:
            yield branch._replace(todo=rest, failing=(*branch.failing, literal.node))
            return
        if literal.negated() in branch.seen:
            return
        if literal in branch.seen:
            yield branch._replace(todo=rest, evaluated=_noted(branch, literal, scopes))
            return
        clauses = self.clauses(literal, kind)
        if clauses is None:
            return
        branch = branch._replace(todo=rest, seen=branch.seen | {literal})
        node = literal.node
        if any(node.has(keyword) for keyword in REFERENCES) and self.document.is_recursive(node):
            if depth == 0:
                return
            branch = branch._replace(descended=True)
        if literal.holds and isinstance(node.raw, dict) and not self._reference_only(node):
            if node.has({"object": "unevaluatedProperties", "array": "unevaluatedItems"}.get(kind, "")):
                scopes = scopes | {node}
                branch = branch._replace(scopes=(*branch.scopes, node))
            branch = branch._replace(holding=(*branch.holding, node), evaluated=_noted(branch, literal, scopes))
        yield from self._multiplied(branch, clauses, scopes, node)

    def _multiplied(
        self, branch: _Branch, clauses: list[list[Way]], scopes: frozenset[Node], node: Node
    ) -> Iterator[_Branch]:
        """All branches with one way of each clause."""
        branches = [branch]
        for ways in clauses:
            branches = [_with(each, way, scopes) for each in branches for way in ways]
            self._check(len(branches), node)
        yield from branches

    def _check(self, branches: int, node: Node) -> None:
        if branches > self.max_branches:
            doing = f"combining the schemas at {node.pointer}"
            raise SchemaTooLarge("max_branches", self.max_branches, branches, doing, option=True)

    def declared_names(self, literals: tuple[Literal, ...]) -> tuple[str, ...]:
        """The property names that the schemas of a place list, in their canonical order.

        First come the names of the outermost schema, then the names of schemas that it references or combines,
        last the names that are only required. All alternatives have the same order, so that a value has one
        spelling.
        """
        if literals not in self._names:
            self._names[literals] = self._collected_names(literals)
        return self._names[literals]

    def _collected_names(self, literals: tuple[Literal, ...]) -> tuple[str, ...]:
        described: dict[str, None] = {}
        required: dict[str, None] = {}
        todo, seen = [literal.node for literal in reversed(literals)], set[Node]()
        while todo:
            node = todo.pop()
            if node in seen or not isinstance(node.raw, dict):
                continue
            seen.add(node)
            if not self._reference_only(node):
                for names, found in ((described, node.get("properties")), (required, node.get("required"))):
                    if isinstance(found, dict | list):
                        names |= dict.fromkeys(name for name in found if isinstance(name, str))
            todo.extend(reversed(list(self._in_place(node))))
        return tuple(described | required)

    def _in_place(self, node: Node) -> Iterator[Node]:
        for clause in self._references(node):
            yield clause[0][0][0].node
        if not self._reference_only(node):
            order = (*drafts.IN_PLACE_LISTS, "if", "then", "else", "dependentSchemas", "dependencies", "not")
            inner = [(keyword, child) for keyword, child in self.document.children(node) if keyword in order]
            yield from (child for _, child in sorted(inner, key=lambda pair: order.index(pair[0])))

    # ---- the expansion of one schema

    def clauses(self, literal: Literal, kind: str) -> list[list[Way]] | None:
        """The clauses of a literal for this type, without plain assertions; None if it can't be satisfied."""
        key = (literal, kind)
        if key not in self._ways:
            self._ways[key] = (
                self._holding(literal.node, kind) if literal.holds else self._failing(literal.node, kind)
            )
        return self._ways[key]

    def _holding(self, node: Node, kind: str) -> list[list[Way]] | None:
        if isinstance(node.raw, bool):
            return [] if node.raw else None
        if self._reference_only(node):
            return self._references(node)
        if not self.admits_type(node, kind, True):
            return None
        clauses = self._references(node)
        clauses += [[((Literal(inner), True),)] for inner in self._list(node, "allOf")]
        for keyword in ("anyOf", "oneOf"):
            if node.has(keyword):
                clauses.append(self._one_of(node, keyword, kind))
        if node.has("not"):
            clauses.append([((Literal(self.document.child(node, "not"), holds=False), False),)])
        clauses += self._conditional(node)
        clauses += self._dependent(node, kind)
        clauses += self._listed_containers(node, kind, True)
        return clauses

    def _failing(self, node: Node, kind: str) -> list[list[Way]] | None:
        if isinstance(node.raw, bool):
            return None if node.raw else []
        if not self._reference_only(node) and not self.admits_type(node, kind, False):
            return []
        ways: list[Way] = []
        for clause in self._references(node):
            ways += [_all_negated(way) for way in clause]
        if not self._reference_only(node):
            ways += [((Literal(inner, holds=False), False),) for inner in self._list(node, "allOf")]
            ways += self._failing_choices(node)
            if node.has("not"):
                ways.append(((Literal(self.document.child(node, "not")), False),))
            if drafts.native("if", node.draft):
                for clause in self._conditional(node):
                    ways += _failing_conditional(clause)
            if drafts.native("dependentSchemas" if node.has("dependentSchemas") else "dependencies", node.draft):
                for clause in self._dependent(node, kind):
                    ways.append((clause[1][0], *_all_negated(clause[1][1:])))
            for clause in self._listed_containers(node, kind, False):
                ways.append(tuple((way[0][0].negated(), False) for way in clause))
            for keyword in ("unevaluatedProperties", "unevaluatedItems"):
                if kind == ("array" if keyword == "unevaluatedItems" else "object") and node.has(keyword):
                    self.document.refuse(keyword, node.pointer, "under a negation it depends on other branches")
            if not node.raw.keys() <= COMBINING:
                ways.append(((Literal(node, holds=False, plain=True), False),))
        return [ways]

    def _reference_only(self, node: Node) -> bool:
        """Whether only the `$ref` counts: up to draft 7 it hides all other keywords."""
        return node.draft <= 7 and node.has("$ref")

    def _references(self, node: Node) -> list[list[Way]]:
        clauses: list[list[Way]] = []
        for keyword in REFERENCES:
            here = node.has(keyword) and drafts.native(keyword, node.draft)
            target = self.document.target(node, keyword) if here else None
            if target is not None:
                clauses.append([((Literal(target), True),)])
        return clauses

    def admits_type(self, node: Node, kind: str, holds: bool) -> bool:
        """Whether the node's `type`, `const` and `enum` allow any value of this type."""
        named = types_of(node)
        if named is not None and kind not in named and not (kind == "number" and "integer" in named):
            return False
        return all(any(type_of(value) == kind for value in values) for values in listed_values(node, holds))

    def _list(self, node: Node, keyword: str) -> list[Node]:
        value = node.get(keyword, [])
        if not isinstance(value, list) or (node.has(keyword) and not value):
            raise MalformedSchema(
                node.at(keyword), f"must be an array with at least one schema, not {shown(value)}"
            )
        return [self.document.child(node, keyword, i) for i in range(len(value))]

    def _one_of(self, node: Node, keyword: str, kind: str) -> list[Way]:
        options = self._list(node, keyword)
        with compiling() as budget:
            pairs = len(options) ** 2 if keyword == "oneOf" else len(options)
            budget.spend(PYTHON_STEPS * pairs, "telling alternatives apart")
        counts = node.has("unevaluatedProperties") or node.has("unevaluatedItems")
        if keyword == "anyOf":
            if counts and len(options) <= 4:  # which options hold decides what is evaluated
                subsets = range(1, 2 ** len(options))
                return [tuple((Literal(o), True) for i, o in enumerate(options) if s >> i & 1) for s in subsets]
            return [((Literal(option), True),) for option in options]
        ways: list[Way] = []
        for i, option in enumerate(options):
            if self.clauses(Literal(option), kind) is None:
                continue
            others = (o for j, o in enumerate(options) if j != i)
            rivals = [o for o in others if self.clauses(Literal(o, holds=False), kind) != []]
            ways.append(((Literal(option), True), *((Literal(o, holds=False), False) for o in rivals)))
        return ways

    def _failing_choices(self, node: Node) -> list[Way]:
        ways: list[Way] = []
        if node.has("anyOf"):
            ways.append(tuple((Literal(o, holds=False), False) for o in self._list(node, "anyOf")))
        if node.has("oneOf"):
            options = self._list(node, "oneOf")
            with compiling() as budget:
                budget.spend(PYTHON_STEPS * len(options) ** 2, "telling alternatives apart")
            ways.append(tuple((Literal(o, holds=False), False) for o in options))
            pairs = [(a, b) for i, a in enumerate(options) for b in options[i + 1 :]]
            ways += [((Literal(a), False), (Literal(b), False)) for a, b in pairs]
        return ways

    def _conditional(self, node: Node) -> list[list[Way]]:
        if not node.has("if") or not (node.has("then") or node.has("else")):
            # An `if` alone asserts nothing, but what it evaluates counts for `unevaluated…`.
            if node.has("if") and (node.has("unevaluatedProperties") or node.has("unevaluatedItems")):
                condition = Literal(self.document.child(node, "if"))
                return [[((condition, True),), ((condition.negated(), False),)]]
            return []
        condition = Literal(self.document.child(node, "if"))
        yes = ((condition, True), *self._optional(node, "then"))
        no = ((condition.negated(), False), *self._optional(node, "else"))
        return [[yes, no]]

    def _optional(self, node: Node, keyword: str) -> Way:
        return ((Literal(self.document.child(node, keyword)), True),) if node.has(keyword) else ()

    def _dependent(self, node: Node, kind: str) -> list[list[Way]]:
        """One clause per dependent schema: [the property is absent] or [it is present and the schema holds]."""
        if kind != "object":
            return []
        clauses: list[list[Way]] = []
        for keyword in ("dependentSchemas", "dependencies"):
            value = node.get(keyword, {})
            if not isinstance(value, dict):
                raise MalformedSchema(node.at(keyword), f"must be an object, not {shown(value)}")
            for name, inner in value.items():
                if isinstance(inner, dict | bool):
                    present = Literal(self.document.synthetic({"required": [name]}, node))
                    dependent = Literal(self.document.child(node, keyword, name))
                    clauses.append([((present.negated(), False),), ((present, False), (dependent, True))])
        return clauses

    def _listed_containers(self, node: Node, kind: str, holds: bool) -> list[list[Way]]:
        """`const` and `enum` with arrays or objects: one way per value, each spelled out as a schema."""
        if kind not in ("array", "object"):
            return []
        clauses: list[list[Way]] = []
        for values in listed_values(node, holds):
            wanted = [value for value in values if type_of(value) == kind]
            clauses.append([((Literal(self.document.synthetic(spelled_out(v), node)), False),) for v in wanted])
        return clauses


def _finished(branch: _Branch) -> Alternative:
    scopes = tuple(
        Scope(scope, tuple(dict.fromkeys(node for owner, node in branch.evaluated if owner is scope)))
        for scope in dict.fromkeys(branch.scopes)
    )
    holding = tuple(dict.fromkeys(branch.holding))
    return Alternative(holding, tuple(dict.fromkeys(branch.failing)), scopes, branch.descended)


def _noted(branch: _Branch, literal: Literal, scopes: frozenset[Node]) -> tuple[tuple[Node, Node], ...]:
    return (*branch.evaluated, *((scope, literal.node) for scope in scopes)) if literal.holds else branch.evaluated


def _with(branch: _Branch, way: Way, scopes: frozenset[Node]) -> _Branch:
    todo = ((literal, scopes if counts else frozenset[Node]()) for literal, counts in way)
    return branch._replace(todo=(*todo, *branch.todo))


def _all_negated(way: Way) -> Way:
    return tuple((literal.negated(), False) for literal, _ in way)


def _failing_conditional(clause: list[Way]) -> list[Way]:
    """The ways in which `if`/`then`/`else` fails: the condition selects a schema, and this schema fails."""
    return [(side[0], *_all_negated(side[1:])) for side in clause if len(side) > 1]
