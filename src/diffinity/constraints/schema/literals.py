"""The logic of schemas: a conjunction of schemas and negated schemas, multiplied out into plain alternatives.

**Why it is sound.** A place of the instance must satisfy a set of *literals*: schemas, some of them negated. For
one JSON type at a time the set is brought into negation normal form and multiplied out. This removes `allOf`,
`$ref`, `anyOf`, `oneOf`, `not`, `if` and `dependentSchemas`. The result is a list of *alternatives*. An
alternative has a set of plain schemas (only assertions about this type) that must hold and a set of plain schemas
that must fail. `oneOf` means that one option holds and all others fail; the negation of a conjunction is one
alternative per part.

Arrays and objects are then built so that a failing schema fails at a witness that the automaton has read. Only the
scalar types are ever complemented, where that is exact. So everything above the scalars is monotone: an omission
below (closed objects, bounded depth, narrow formats) can only make the language smaller, never accept a wrong
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
    """A schema that must hold or must fail at a place; `plain` ignores keywords that apply subschemas."""

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

    pending: tuple[tuple[Literal, frozenset[Node]], ...]
    seen: frozenset[Literal] = frozenset()
    holding: tuple[Node, ...] = ()
    failing: tuple[Node, ...] = ()
    evaluated: tuple[tuple[Node, Node], ...] = ()  # (scope, plain schema within it)
    scopes: tuple[Node, ...] = ()
    descended: bool = False


COMBINING = {"$ref", "allOf", "anyOf", "oneOf", "not"}  # a schema of these alone asserts nothing by itself

# Literals that satisfy a clause together, each with whether its annotations count for the enclosing scopes. A
# clause is a list of conjunctions, of which one must hold.
Conjunction = tuple[tuple[Literal, bool], ...]


@dataclass
class Expander:
    """Multiplies out the literals of a place."""

    document: Document
    max_branches: int
    _clauses: dict[tuple[Literal, str], list[list[Conjunction]] | None] = field(default_factory=dict)
    _names: dict[tuple[Literal, ...], tuple[str, ...]] = field(default_factory=dict)

    def alternatives(self, literals: tuple[Literal, ...], kind: str, depth: int) -> list[Alternative]:
        """All alternatives by which a value of type `kind` satisfies the literals; an empty list if it cannot.

        At `depth` 0 recursive references are dead ends.
        """
        stack = [_Branch(tuple((literal, frozenset()) for literal in literals))]
        alternatives: dict[Alternative, None] = {}
        while stack:
            branch = stack.pop()
            with compiling() as budget:
                budget.spend(PYTHON_STEPS * (6 + len(branch.pending)), "combining schemas")
            if branch.pending:
                stack.extend(reversed(list(self._step(branch, kind, depth))))
            else:
                alternatives[_finished(branch)] = None
            if literals:
                self._check(len(alternatives) + len(stack), literals[0].node)
        return list(alternatives)

    def _step(self, branch: _Branch, kind: str, depth: int) -> Iterator[_Branch]:
        (literal, scopes), rest = branch.pending[0], branch.pending[1:]
        if literal.plain:
            yield branch._replace(pending=rest, failing=(*branch.failing, literal.node))
            return
        if literal.negated() in branch.seen:
            return
        if literal in branch.seen:
            yield branch._replace(pending=rest, evaluated=_noted(branch, literal, scopes))
            return
        clauses = self.clauses(literal, kind)
        if clauses is None:
            return
        branch = branch._replace(pending=rest, seen=branch.seen | {literal})
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
        self, branch: _Branch, clauses: list[list[Conjunction]], scopes: frozenset[Node], node: Node
    ) -> Iterator[_Branch]:
        """All branches with one conjunction of each clause."""
        branches = [branch]
        for clause in clauses:
            branches = [_with(partial, conjunction, scopes) for partial in branches for conjunction in clause]
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
        pending, seen = [literal.node for literal in reversed(literals)], set[Node]()
        while pending:
            node = pending.pop()
            if node in seen or not isinstance(node.raw, dict):
                continue
            seen.add(node)
            if not self._reference_only(node):
                for names, listed in ((described, node.get("properties")), (required, node.get("required"))):
                    if isinstance(listed, dict | list):
                        names |= dict.fromkeys(name for name in listed if isinstance(name, str))
            pending.extend(reversed(list(self._in_place(node))))
        return tuple(described | required)

    def _in_place(self, node: Node) -> Iterator[Node]:
        for clause in self._references(node):
            yield clause[0][0][0].node
        if not self._reference_only(node):
            order = (*drafts.IN_PLACE_LISTS, "if", "then", "else", "dependentSchemas", "dependencies", "not")
            inner = [(keyword, child) for keyword, child in self.document.children(node) if keyword in order]
            yield from (child for _, child in sorted(inner, key=lambda pair: order.index(pair[0])))

    # ---- the expansion of one schema

    def clauses(self, literal: Literal, kind: str) -> list[list[Conjunction]] | None:
        """The clauses of a literal for this type, without plain assertions; None if it can't be satisfied."""
        key = (literal, kind)
        if key not in self._clauses:
            self._clauses[key] = (
                self._holding(literal.node, kind) if literal.holds else self._failing(literal.node, kind)
            )
        return self._clauses[key]

    def _holding(self, node: Node, kind: str) -> list[list[Conjunction]] | None:
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
                clauses.append(self._choices(node, keyword, kind))
        if node.has("not"):
            clauses.append([((Literal(self.document.child(node, "not"), holds=False), False),)])
        clauses += self._conditional(node)
        clauses += self._dependent(node, kind)
        clauses += self._listed_containers(node, kind, True)
        return clauses

    def _failing(self, node: Node, kind: str) -> list[list[Conjunction]] | None:
        if isinstance(node.raw, bool):
            return None if node.raw else []
        if not self._reference_only(node) and not self.admits_type(node, kind, False):
            return []
        conjunctions: list[Conjunction] = []
        for clause in self._references(node):
            conjunctions += [_all_negated(conjunction) for conjunction in clause]
        if not self._reference_only(node):
            conjunctions += [((Literal(inner, holds=False), False),) for inner in self._list(node, "allOf")]
            conjunctions += self._failing_choices(node)
            if node.has("not"):
                conjunctions.append(((Literal(self.document.child(node, "not")), False),))
            if drafts.native("if", node.draft):
                for clause in self._conditional(node):
                    conjunctions += _failing_conditional(clause)
            if drafts.native("dependentSchemas" if node.has("dependentSchemas") else "dependencies", node.draft):
                for clause in self._dependent(node, kind):
                    conjunctions.append((clause[1][0], *_all_negated(clause[1][1:])))
            for clause in self._listed_containers(node, kind, False):
                conjunctions.append(tuple((conjunction[0][0].negated(), False) for conjunction in clause))
            for keyword in ("unevaluatedProperties", "unevaluatedItems"):
                if kind == ("array" if keyword == "unevaluatedItems" else "object") and node.has(keyword):
                    self.document.refuse(keyword, node.pointer, "under a negation it depends on other branches")
            if not node.raw.keys() <= COMBINING:
                conjunctions.append(((Literal(node, holds=False, plain=True), False),))
        return [conjunctions]

    def _reference_only(self, node: Node) -> bool:
        """Whether only the `$ref` counts: up to draft 7 it hides all other keywords."""
        return node.draft <= 7 and node.has("$ref")

    def _references(self, node: Node) -> list[list[Conjunction]]:
        clauses: list[list[Conjunction]] = []
        for keyword in REFERENCES:
            applies = node.has(keyword) and drafts.native(keyword, node.draft)
            target = self.document.target(node, keyword) if applies else None
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

    def _choices(self, node: Node, keyword: str, kind: str) -> list[Conjunction]:
        options = self._list(node, keyword)
        with compiling() as budget:
            pairs = len(options) ** 2 if keyword == "oneOf" else len(options)
            budget.spend(PYTHON_STEPS * pairs, "telling alternatives apart")
        has_unevaluated = node.has("unevaluatedProperties") or node.has("unevaluatedItems")
        if keyword == "anyOf":
            if has_unevaluated and len(options) <= 4:  # the options that hold determine what is evaluated
                subsets = range(1, 2 ** len(options))
                return [tuple((Literal(o), True) for i, o in enumerate(options) if s >> i & 1) for s in subsets]
            return [((Literal(option), True),) for option in options]
        conjunctions: list[Conjunction] = []
        for i, option in enumerate(options):
            if self.clauses(Literal(option), kind) is None:
                continue
            others = (o for j, o in enumerate(options) if j != i)
            rivals = [o for o in others if self.clauses(Literal(o, holds=False), kind) != []]
            conjunctions.append(((Literal(option), True), *((Literal(o, holds=False), False) for o in rivals)))
        return conjunctions

    def _failing_choices(self, node: Node) -> list[Conjunction]:
        conjunctions: list[Conjunction] = []
        if node.has("anyOf"):
            conjunctions.append(tuple((Literal(o, holds=False), False) for o in self._list(node, "anyOf")))
        if node.has("oneOf"):
            options = self._list(node, "oneOf")
            with compiling() as budget:
                budget.spend(PYTHON_STEPS * len(options) ** 2, "telling alternatives apart")
            conjunctions.append(tuple((Literal(o, holds=False), False) for o in options))
            pairs = [(a, b) for i, a in enumerate(options) for b in options[i + 1 :]]
            conjunctions += [((Literal(a), False), (Literal(b), False)) for a, b in pairs]
        return conjunctions

    def _conditional(self, node: Node) -> list[list[Conjunction]]:
        if not node.has("if") or not (node.has("then") or node.has("else")):
            # An `if` alone asserts nothing, but what it evaluates counts for `unevaluated…`.
            if node.has("if") and (node.has("unevaluatedProperties") or node.has("unevaluatedItems")):
                condition = Literal(self.document.child(node, "if"))
                return [[((condition, True),), ((condition.negated(), False),)]]
            return []
        condition = Literal(self.document.child(node, "if"))
        if_holds = ((condition, True), *self._optional(node, "then"))
        if_fails = ((condition.negated(), False), *self._optional(node, "else"))
        return [[if_holds, if_fails]]

    def _optional(self, node: Node, keyword: str) -> Conjunction:
        return ((Literal(self.document.child(node, keyword)), True),) if node.has(keyword) else ()

    def _dependent(self, node: Node, kind: str) -> list[list[Conjunction]]:
        """One clause per dependent schema: [the property is absent] or [it is present and the schema holds]."""
        if kind != "object":
            return []
        clauses: list[list[Conjunction]] = []
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

    def _listed_containers(self, node: Node, kind: str, holds: bool) -> list[list[Conjunction]]:
        """`const` and `enum` with arrays or objects: one conjunction per value, which is written as a schema."""
        if kind not in ("array", "object"):
            return []
        clauses: list[list[Conjunction]] = []
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


def _with(branch: _Branch, conjunction: Conjunction, scopes: frozenset[Node]) -> _Branch:
    pending = ((literal, scopes if annotates else frozenset[Node]()) for literal, annotates in conjunction)
    return branch._replace(pending=(*pending, *branch.pending))


def _all_negated(conjunction: Conjunction) -> Conjunction:
    return tuple((literal.negated(), False) for literal, _ in conjunction)


def _failing_conditional(clause: list[Conjunction]) -> list[Conjunction]:
    """The conjunctions that make `if`/`then`/`else` fail: the condition selects a schema, which fails."""
    return [(conjunction[0], *_all_negated(conjunction[1:])) for conjunction in clause if len(conjunction) > 1]
