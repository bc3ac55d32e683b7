"""A schema document: its nodes, their base addresses, and the targets of its references.

Nothing is ever fetched: a reference to a document that is not embedded in this one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from diffinity.constraints.schema import drafts
from diffinity.constraints.schema.refusals import MalformedSchema, SchemaTooLarge, UnsupportedKeyword

MAX_BYTES = 2_000_000
MAX_NESTING = 400


@dataclass(frozen=True, eq=False)
class Node:
    """One schema of the document. Nodes are compared by identity: the document makes each of them once."""

    raw: dict[str, Any] | bool
    pointer: str
    base: str
    draft: int

    def has(self, keyword: str) -> bool:
        """Whether the schema has the keyword."""
        return isinstance(self.raw, dict) and keyword in self.raw

    def get(self, keyword: str, default: Any = None) -> Any:
        """The keyword's value, or `default`."""
        return self.raw.get(keyword, default) if isinstance(self.raw, dict) else default

    def at(self, *path: str | int) -> str:
        """The JSON pointer of a place below this one."""
        return "/".join([self.pointer, *(str(step).replace("~", "~0").replace("/", "~1") for step in path)])


class Document:
    """All nodes of one schema, made on demand, and the addresses by which they refer to each other."""

    def __init__(self, schema: dict[str, Any] | bool, *, lenient: bool = False) -> None:
        check_size(schema)
        self.lenient = lenient
        draft = drafts.draft_of(schema.get("$schema")) if isinstance(schema, dict) else drafts.LATEST
        if draft is None:
            reason = f"{schema['$schema']!r} is no draft that is known here"  # type: ignore[index]
            self.refuse("$schema", "#", reason)
            draft = drafts.LATEST
        self._draft = draft
        self._nodes: dict[tuple[int, str], Node] = {}
        self._resources: dict[str, Node] = {}
        self._anchors: dict[tuple[str, str], Node] = {}
        self._dynamic: dict[str, set[str]] = {}
        self._cyclic: set[Node] | None = None
        self._targets: dict[tuple[str, Node], Node | None] = {}
        self.root = self._node(schema, "#", "")
        self._register_all()

    # ---- nodes

    def refuse(self, keyword: str, pointer: str, reason: str) -> None:
        """Raise `UnsupportedKeyword`, unless `lenient` ignores the keyword."""
        if not self.lenient:
            raise UnsupportedKeyword(keyword, pointer, reason)

    def child(self, node: Node, *path: str | int) -> Node:
        """The node at `path` below a node."""
        raw: Any = node.raw
        for step in path:
            raw = raw[step]
        return self._node(raw, node.at(*path), node.base)

    def synthetic(self, raw: dict[str, Any], origin: Node) -> Node:
        """A node for part of the meaning of `origin`, in the vocabulary of the latest draft."""
        key = (-1, json.dumps(raw))
        if key not in self._nodes:
            self._nodes[key] = Node(raw, origin.pointer, "", drafts.LATEST)
        return self._nodes[key]

    def any_of(self, nodes: list[Node], origin: Node) -> Node:
        """A node that holds if one of several siblings holds."""
        key = (-2, " ".join(str(id(node)) for node in nodes))
        if key not in self._nodes:
            self._nodes[key] = Node(
                {"anyOf": [node.raw for node in nodes]}, origin.pointer, origin.base, origin.draft
            )
        return self._nodes[key]

    def _node(self, raw: Any, pointer: str, base: str) -> Node:
        if not isinstance(raw, dict | bool):
            raise MalformedSchema(pointer, f"a schema is an object or a boolean, not {shown(raw)}")
        key = (id(raw), base) if isinstance(raw, dict) else (int(raw), "bool")
        if key not in self._nodes and (content := _leaf(raw)) is not None:
            # Equal schemas that contain no others are one node, compiled once.
            leaf = (-3, content)
            if leaf not in self._nodes:
                self._nodes[leaf] = Node(raw, pointer, base, self._draft)
            self._nodes[key] = self._nodes[leaf]
        if key not in self._nodes:
            own = self._own_id(raw)
            address = _joined(base, own, pointer) if own else base
            self._nodes[key] = Node(raw, pointer, urldefrag(address)[0], self._draft)
        return self._nodes[key]

    def _own_id(self, raw: Any) -> str | None:
        if not isinstance(raw, dict) or ("$ref" in raw and self._draft <= 7):
            return None
        identifier = raw.get("id" if self._draft == 4 else "$id")
        return identifier if isinstance(identifier, str) else None

    def children(self, node: Node) -> Iterator[tuple[str, Node]]:
        """The schemas written directly inside a node, each with its keyword."""
        if not isinstance(node.raw, dict):
            return
        for keyword in (*drafts.IN_PLACE_LISTS, "prefixItems", "items"):
            value = node.raw.get(keyword)
            if isinstance(value, list):
                for i in range(len(value)):
                    yield keyword, self.child(node, keyword, i)
            elif keyword == "items" and keyword in node.raw:
                yield keyword, self.child(node, keyword)
            elif keyword in node.raw:
                raise MalformedSchema(node.at(keyword), f"must be an array of schemas, not {shown(value)}")
        for keyword in (*drafts.IN_PLACE, *drafts.SINGLE):
            if keyword in node.raw:
                yield keyword, self.child(node, keyword)
        for keyword in (*drafts.MAPS, "dependencies"):
            value = node.raw.get(keyword, {})
            if not isinstance(value, dict):
                raise MalformedSchema(node.at(keyword), f"must be an object of schemas, not {shown(value)}")
            for name, inner in value.items():
                if keyword != "dependencies" or isinstance(inner, dict | bool):
                    yield keyword, self.child(node, keyword, name)

    # ---- addresses

    def _register_all(self) -> None:
        pending, seen = [self.root], {self.root}
        self._resources[self.root.base] = self._resources[""] = self.root
        while pending:
            node = pending.pop()
            self._register(node)
            for _, inner in self.children(node):
                if inner not in seen:
                    seen.add(inner)
                    pending.append(inner)

    def _register(self, node: Node) -> None:
        own = self._own_id(node.raw)
        if own is not None:
            address, fragment = urldefrag(own)  # a valid address, because its node exists
            if address or not fragment:
                self._resources.setdefault(node.base, node)
            if fragment:  # an anchor of the older drafts
                self._anchors.setdefault((node.base, fragment), node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = node.get(keyword)
            if isinstance(name, str):
                self._anchors.setdefault((node.base, name), node)
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(name, set()).add(node.base)

    def target(self, node: Node, keyword: str = "$ref") -> Node | None:
        """The target of the reference at a node; None only if `lenient` ignores an unsupported reference."""
        key = (keyword, node)
        if key not in self._targets:
            target, visited = self._target(node, keyword), {node}
            # Nodes that are only a reference are followed; a cycle of such nodes ends at the first repeated node.
            while (
                target is not None
                and target not in visited
                and isinstance(target.raw, dict)
                and [*target.raw] == ["$ref"]
            ):
                visited.add(target)
                target = self._target(target, "$ref")
            self._targets[key] = target
        return self._targets[key]

    def _target(self, node: Node, keyword: str) -> Node | None:
        reference = node.get(keyword)
        if not isinstance(reference, str):
            raise MalformedSchema(node.at(keyword), f"must be a string, not {shown(reference)}")
        if keyword == "$recursiveRef" and any(inner.get("$recursiveAnchor") for inner in self._resources.values()):
            self.refuse(keyword, node.pointer, "$recursiveAnchor makes its target depend on the caller")
            return None
        # `urljoin` does not know that a URN can be a base.
        uri = (
            node.base + reference if reference.startswith("#") else _joined(node.base, reference, node.at(keyword))
        )
        address, fragment = urldefrag(uri)
        resource = self._resources.get(address)
        if resource is None:
            self.refuse(keyword, node.pointer, f"{reference!r} is in another document, and none is ever fetched")
            return None
        if keyword == "$dynamicRef" and len(self._dynamic.get(fragment, ())) > 1:
            self.refuse(keyword, node.pointer, f"several resources define the dynamic anchor {fragment!r}")
            return None
        fragment = unquote(fragment)
        if not fragment:
            return resource
        if fragment.startswith("/"):
            return self._follow(resource, fragment, node, keyword)
        target = self._anchors.get((address, fragment))
        if target is None:
            raise MalformedSchema(node.at(keyword), f"nothing is called {reference!r}")
        return target

    def _follow(self, resource: Node, fragment: str, node: Node, keyword: str) -> Node:
        value: Any = resource.raw
        base, pointer = resource.base, resource.pointer
        target: Node | None = resource
        for part in fragment[1:].split("/"):
            step = part.replace("~1", "/").replace("~0", "~")
            pointer = f"{pointer}/{part}"
            try:
                value = value[int(step)] if isinstance(value, list) else value[step]
            except (KeyError, IndexError, ValueError, TypeError):
                raise MalformedSchema(node.at(keyword), f"nothing is at {node.get(keyword)!r}") from None
            target = self._nodes.get((id(value), base))
            base = target.base if target is not None else base
        return target if target is not None else self._node(value, pointer, base)

    # ---- recursion

    @property
    def has_recursion(self) -> bool:
        """Whether any reference can lead back to itself."""
        return self.is_recursive(self.root) or bool(self._cyclic)

    def is_recursive(self, node: Node) -> bool:
        """Whether following the reference at this node can lead back to this node."""
        if self._cyclic is None:
            self._cyclic = _in_cycles(self.root, self._next)
        return node in self._cyclic

    def _next(self, node: Node) -> list[Node]:
        successors = [inner for keyword, inner in self.children(node) if keyword not in ("$defs", "definitions")]
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = self.target(node, keyword) if node.has(keyword) else None
            if target is not None:
                successors.append(target)
        return successors


def _leaf(raw: dict[str, Any] | bool) -> str | None:
    """The JSON of a small schema without subschemas, identifiers and references; None for any other schema."""
    if not isinstance(raw, dict) or len(raw) > 6:
        return None
    for keyword, value in raw.items():
        if keyword[:1] == "$" or keyword == "id" or isinstance(value, dict):
            return None
        if isinstance(value, list) and (len(value) > 8 or any(isinstance(v, dict | list | bool) for v in value)):
            return None
    return json.dumps(raw)


def _joined(base: str, reference: str, pointer: str) -> str:
    """The absolute address of a reference, given its base."""
    try:
        uri = urljoin(base, reference)
        urldefrag(uri)
    except ValueError as error:
        raise MalformedSchema(pointer, f"{shown(reference)} is no address: {error}") from None
    return uri


def _in_cycles(root: Node, successors: Callable[[Node], list[Node]]) -> set[Node]:
    """The nodes that can reach themselves: Tarjan's strongly connected components, without recursion."""
    index: dict[Node, int] = {root: 0}
    low: dict[Node, int] = {root: 0}
    stack, on_stack, cyclic = [root], {root}, set[Node]()
    work = [(root, iter(successors(root)))]
    while work:
        node, rest = work[-1]
        for inner in rest:
            if inner is node:
                cyclic.add(node)
            elif inner not in index:
                index[inner] = low[inner] = len(index)
                stack.append(inner)
                on_stack.add(inner)
                work.append((inner, iter(successors(inner))))
                break
            elif inner in on_stack:
                low[node] = min(low[node], index[inner])
        else:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                component: list[Node] = []
                while not component or component[-1] is not node:
                    component.append(stack.pop())
                on_stack.difference_update(component)
                if len(component) > 1:
                    cyclic.update(component)
    return cyclic


def shown(value: object) -> str:
    """A value as an error message shows it: JSON, cut short.

    >>> shown({"a": [1, None]})
    '{"a": [1, null]}'
    """
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else text[:57] + "…"


def check_size(schema: object) -> None:
    """Refuse a document that is too large or too deep, before any recursive traversal.

    >>> check_size({"type": "object"})
    """
    size, pending = 0, [(schema, 0)]
    while pending:
        value, depth = pending.pop()
        if depth > MAX_NESTING:
            raise SchemaTooLarge("levels", MAX_NESTING, depth, "this schema")
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            size += sum(len(k) + 4 if isinstance(k, str) else 4 for k in value)
            pending.extend((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list | tuple):
            pending.extend((inner, depth + 1) for inner in value)
        size += 4
        if size > MAX_BYTES:
            raise SchemaTooLarge("bytes", MAX_BYTES, size, "this schema")
