"""Reads and checks the keywords of a plain schema: its assertions about each type as records."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from diffinity.constraints.schema import drafts
from diffinity.constraints.schema.document import Document, Node, shown
from diffinity.constraints.schema.ecma import translate
from diffinity.constraints.schema.listed import listed_values, type_of, types_of
from diffinity.constraints.schema.literals import Scope
from diffinity.constraints.schema.numbers import Bound, NumberFacets, exact
from diffinity.constraints.schema.refusals import MalformedSchema
from diffinity.constraints.schema.strings import StringFacets
from diffinity.errors import ConstraintSyntaxError, UnsupportedConstraint


@dataclass(frozen=True)
class ObjectPart:
    """A plain schema's assertions about objects. A declared property or pattern without a node is free."""

    properties: dict[str, Node | None]
    patterns: tuple[tuple[str, Node | None], ...] = ()
    additional: Node | None = None
    names: Node | None = None
    required: tuple[str, ...] = ()
    min_properties: int = 0
    max_properties: int | None = None
    dependent: tuple[tuple[str, str], ...] = ()

    @cached_property
    def dependent_names(self) -> frozenset[str]:
        """All names in dependencies, on either side."""
        return frozenset(name for clause in self.dependent for name in clause)

    @property
    def declares(self) -> bool:
        """Whether it names any property."""
        return bool(self.properties or self.required)

    @property
    def describes_additional(self) -> bool:
        """Whether a schema describes additional properties; `true`, `false` and `{}` do not."""
        return self.additional is not None and self.additional.raw not in (True, False, {})


@dataclass(frozen=True)
class Contains:
    """The limits for the number of items that satisfy a schema."""

    node: Node
    at_least: int
    at_most: int | None


@dataclass(frozen=True)
class ArrayPart:
    """A plain schema's assertions about arrays."""

    prefix: tuple[Node | None, ...] = ()
    rest: Node | None = None
    contains: Contains | None = None
    min_items: int = 0
    max_items: int | None = None
    unique: bool = False
    node: Node | None = None

    def at(self, place: int) -> Node | None:
        """The schema of the item at a place."""
        return self.prefix[place] if place < len(self.prefix) else self.rest


class Reader:
    """Reads the keywords of a document's nodes; keywords of other drafts count only if the schema `holds`."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def _on(self, node: Node, keyword: str, holds: bool) -> bool:
        return node.has(keyword) and (holds or drafts.native(keyword, node.draft))

    def _count(self, node: Node, keyword: str) -> int | None:
        value = node.get(keyword)
        if value is None and not node.has(keyword):
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise MalformedSchema(node.at(keyword), f"must be a whole number of at least 0, not {shown(value)}")
        return value

    def _schemas(self, node: Node, keyword: str) -> dict[str, Node]:
        value = node.get(keyword, {})
        if not isinstance(value, dict):
            raise MalformedSchema(node.at(keyword), f"must be an object of schemas, not {shown(value)}")
        return {name: self.document.child(node, keyword, name) for name in value}

    def _names(self, value: Any, pointer: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise MalformedSchema(pointer, f"must be an array of names, not {shown(value)}")
        return tuple(dict.fromkeys(value))

    # ---- scalars

    def number(self, node: Node, holds: bool) -> NumberFacets:
        """The facets of numbers."""
        names = types_of(node)
        low, high = (
            self._bound(node, "minimum", "exclusiveMinimum", holds),
            self._bound(node, "maximum", "exclusiveMaximum", holds),
        )
        multiples: tuple[Fraction, ...] = ()
        if node.has("multipleOf"):
            step = exact(self._number(node, "multipleOf"))
            if step <= 0:
                raise MalformedSchema(node.at("multipleOf"), "must be above 0")
            multiples = (step,)
        values = self._values(node, "number", holds)
        integer = names is not None and "number" not in names
        return NumberFacets(integer, low, high, multiples, values)

    def _number(self, node: Node, keyword: str) -> int | float:
        value = node.get(keyword)
        finite = isinstance(value, int | float) and value == value and abs(value) != float("inf")
        if isinstance(value, bool) or not finite:
            raise MalformedSchema(node.at(keyword), f"must be a number, not {shown(value)}")
        return value

    def _bound(self, node: Node, keyword: str, exclusive: str, holds: bool) -> Bound | None:
        """One end of the range; `exclusive…` is a boolean in draft 4 and a number in later drafts."""
        bounds = []
        form = node.get(exclusive)
        if node.has(keyword):
            is_open = form is True and (holds or node.draft == 4)
            bounds.append(Bound(exact(self._number(node, keyword)), is_open))
        if node.has(exclusive) and not isinstance(form, bool) and (holds or node.draft > 4):
            bounds.append(Bound(exact(self._number(node, exclusive)), open=True))
        if not bounds:
            return None
        if keyword == "minimum":
            return max(bounds, key=lambda b: (b.value, b.open))
        return min(bounds, key=lambda b: (b.value, not b.open))

    def _values(self, node: Node, kind: str, holds: bool) -> frozenset[Any] | None:
        lists = [[v for v in values if type_of(v) == kind] for values in listed_values(node, holds)]
        if not lists:
            return None
        return frozenset.intersection(*map(frozenset, lists))

    def scalars(self, node: Node, kind: str, holds: bool) -> frozenset[Any] | None:
        """The listed values of `null` or `boolean`; None for no list."""
        return self._values(node, kind, holds)

    def string(self, node: Node, holds: bool) -> StringFacets:
        """The facets of strings; formats only where the schema must hold."""
        patterns: tuple[str, ...] = ()
        if node.has("pattern"):
            pattern = node.get("pattern")
            if not isinstance(pattern, str):
                raise MalformedSchema(node.at("pattern"), f"must be a string, not {shown(pattern)}")
            patterns = (pattern,) if self._usable(pattern, node, "pattern") else ()
        name = node.get("format")
        return StringFacets(
            self._count(node, "minLength") or 0,
            self._count(node, "maxLength"),
            patterns,
            (name,) if holds and isinstance(name, str) else (),
            self._values(node, "string", holds),
        )

    # ---- containers

    def object(self, node: Node, holds: bool) -> ObjectPart:
        """The assertions about objects."""
        dependent: list[tuple[str, str]] = []
        for keyword in ("dependentRequired", "dependencies"):
            value = node.get(keyword, {}) if self._on(node, keyword, holds) else {}
            if not isinstance(value, dict):
                raise MalformedSchema(node.at(keyword), f"must be an object, not {shown(value)}")
            for name, needed in value.items():
                if isinstance(needed, str):
                    needed = [needed]
                if keyword == "dependentRequired" or isinstance(needed, list):
                    dependent += [(name, other) for other in self._names(needed, node.at(keyword, name))]
        required = node.get("required", [])
        return ObjectPart(
            dict(self._schemas(node, "properties")),
            self._patterns(node),
            self.document.child(node, "additionalProperties") if node.has("additionalProperties") else None,
            self._name_rule(node, holds),
            self._names(required, node.at("required")) if not isinstance(required, bool) else (),
            self._count(node, "minProperties") or 0,
            self._count(node, "maxProperties"),
            tuple(dict.fromkeys(dependent)),
        )

    def _patterns(self, node: Node) -> tuple[tuple[str, Node], ...]:
        schemas = self._schemas(node, "patternProperties")
        return tuple(pair for pair in schemas.items() if self._usable(pair[0], node, "patternProperties"))

    def _usable(self, pattern: str, node: Node, keyword: str) -> bool:
        """Whether a pattern is supported; if not, the error names its place."""
        try:
            translate(pattern)
        except UnsupportedConstraint as refusal:
            self.document.refuse(keyword, node.pointer, str(refusal))
            return False
        except ConstraintSyntaxError as error:
            reason = f"{node.at(keyword)}: {error.reason}"
            raise ConstraintSyntaxError(reason, error.source, error.position) from None
        return True

    def _name_rule(self, node: Node, holds: bool) -> Node | None:
        if not self._on(node, "propertyNames", holds) or node.get("propertyNames") in (True, {}):
            return None
        return self.document.child(node, "propertyNames")

    def array(self, node: Node, holds: bool) -> ArrayPart:
        """The assertions about arrays, in the vocabulary of any draft."""
        prefix: tuple[Node | None, ...] = ()
        rest: Node | None = None
        for keyword in ("prefixItems", "items"):
            value = node.get(keyword)
            # In drafts without `prefixItems`, `items` applies to all items, so `prefixItems` is ignored.
            if isinstance(value, list) and drafts.native(keyword, node.draft):
                prefix = tuple(self.document.child(node, keyword, i) for i in range(len(value)))
        if isinstance(node.get("items"), list):
            if self._on(node, "additionalItems", holds):
                rest = self.document.child(node, "additionalItems")
        elif node.has("items"):
            rest = self.document.child(node, "items")
        contains = None
        if self._on(node, "contains", holds):
            least, most = self._count(node, "minContains"), self._count(node, "maxContains")
            if not drafts.native(
                "minContains", node.draft
            ):  # such a draft requires at least one item, whatever the schema says
                least, most = max(1, least or 1), most if holds else None
            contains = Contains(self.document.child(node, "contains"), 1 if least is None else least, most)
        return ArrayPart(
            prefix,
            rest,
            contains,
            self._count(node, "minItems") or 0,
            self._count(node, "maxItems"),
            node.get("uniqueItems") is True,
            node,
        )

    # ---- unevaluated properties and items

    def unevaluated_properties(self, scope: Scope) -> ObjectPart | None:
        """The scope's `unevaluatedProperties` as an additional-properties rule; None if all were evaluated."""
        properties: dict[str, Node | None] = {}
        patterns: dict[str, None] = {}
        for node in scope.evaluated_by:
            if node.has("additionalProperties") or (node is not scope.node and node.has("unevaluatedProperties")):
                return None
            properties |= dict.fromkeys(self._schemas(node, "properties"))
            patterns |= dict.fromkeys(pattern for pattern, _ in self._patterns(node))
        rest = self.document.child(scope.node, "unevaluatedProperties")
        return ObjectPart(properties, tuple((pattern, None) for pattern in patterns), rest)

    def unevaluated_items(self, scope: Scope) -> ArrayPart | None:
        """The scope's `unevaluatedItems` as a rule for the items after the evaluated items."""
        prefix_length = 0
        contains_nodes: list[Node] = []
        for node in scope.evaluated_by:
            part = self.array(node, holds=True)
            if part.rest is not None or (node is not scope.node and node.has("unevaluatedItems")):
                return None
            prefix_length = max(prefix_length, len(part.prefix))
            if part.contains is not None and node.draft >= 2020:  # items that satisfy it count as evaluated
                contains_nodes.append(part.contains.node)
        rest = self.document.child(scope.node, "unevaluatedItems")
        rest = self.document.any_of([rest, *contains_nodes], scope.node) if contains_nodes else rest
        return ArrayPart((None,) * prefix_length, rest, node=scope.node)
