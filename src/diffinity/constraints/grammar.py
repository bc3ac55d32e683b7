"""`Grammar`: context-free rules as a constraint, exact if they are regular, with recursion unrolled to a depth.

The notation, an EBNF:

    rule   = expression ;          also `rule ::= expression`; the `;` may be left out; the first rule is the start
    a b    one after the other     (a comma between them is allowed)
    a | b  either
    ( a )  grouping
    a?  a*  a+  a{3}  a{2,5}  a{2,}  a{,5}
    "text" or 'text', with \\n \\t \\r \\\\ \\" \\' \\xHH \\uHHHH \\UHHHHHHHH
    [a-z_]    a character class, /[a-z]{2}/  a regular expression: both in Python's dialect
    # comment to the end of the line, or (* comment *)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from diffinity.constraints.base import Constraint
from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.ebnf import (
    Expression,
    Options,
    Pattern,
    Rule,
    Series,
    Terminal,
    Times,
    complain,
    read_rules,
)
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.regex import compile_regex
from diffinity.errors import ConstraintSyntaxError, InvalidArgument
from diffinity.limits import compiling


@dataclass(frozen=True)
class Grammar(Constraint):
    """Texts that the rules derive with at most `max_depth` levels of each recursion.

    A rule that calls itself only at the end of its alternatives (`list = item | item "," list`) is a loop, which
    is exact at any depth.

    >>> nested = Grammar('value = "x" | "(" value ")"', max_depth=3)
    >>> nested.accepts("((x))"), nested.accepts("((((x))))")
    (True, False)
    """

    ebnf: str
    max_depth: int = 5
    start: str | None = None

    def __post_init__(self) -> None:
        if self.max_depth < 0:
            raise InvalidArgument(f"max_depth must be 0 or more, not {self.max_depth}")
        rules = read_rules(self.ebnf)
        if self.start is not None and self.start not in rules:
            raise InvalidArgument(f"the grammar has no rule {self.start!r}; it has {', '.join(rules)}")
        for expression in rules.values():
            for part in _walk(expression):
                if isinstance(part, Rule) and part.name not in rules:
                    complain(self.ebnf, part.at, f"there is no rule {part.name!r}")

    def _build(self) -> ByteDFA:
        rules = read_rules(self.ebnf)
        return _Compiler(self.ebnf, rules, self.max_depth).language(self.start or next(iter(rules)))


def _walk(expression: Expression) -> list[Expression]:
    """The expression and all its parts."""
    parts, pending = [], [expression]
    while pending:
        parts.append(part := pending.pop())
        match part:
            case Series(items) | Options(items):
                pending.extend(items)
            case Times(item, _, _):
                pending.append(item)
    return parts


class _Compiler:
    """The languages of rules; groups of mutually recursive rules are compiled bottom-up."""

    def __init__(self, source: str, rules: dict[str, Expression], max_depth: int) -> None:
        self.source = source
        self.rules = rules
        self.max_depth = max_depth
        self.uses = {
            name: [part.name for part in _walk(expression) if isinstance(part, Rule)]
            for name, expression in rules.items()
        }
        self.finished: dict[str, ByteDFA] = {}
        self.patterns: dict[str, ByteDFA] = {}

    def language(self, start: str) -> ByteDFA:
        """The language of a rule; the rules that it uses are compiled first."""
        order, recursive_uses = self._depth_first(start)
        groups = self._groups(order)
        uses = Counter(other for name in order for other in self.uses[name])
        for name in order:  # the rules that a rule uses come before it
            group = groups[name]
            recursive = len(group) > 1 or name in self.uses[name]
            if name in self.finished:
                continue
            if not recursive:
                if name != start and uses[name] == 1 and not self._repeats(name):
                    continue  # a rule that is used once is inlined
                self.finished[name] = self._rule(name, {})
                for other in self.uses[name]:
                    uses[other] -= 1
                    if not uses[other]:
                        self.finished.pop(other, None)
            elif all(self._only_last(self.rules[other], {*group}) for other in group):
                self._loop(group)
            else:
                self._unroll(group, recursive_uses)
        return self.finished[start]

    def _repeats(self, name: str) -> bool:
        return any(isinstance(part, Times) for part in _walk(self.rules[name]))

    def _depth_first(self, start: str) -> tuple[list[str], set[tuple[str, str]]]:
        """The rules in post-order, and the uses that lead back to an open rule."""
        order: list[str] = []
        recursive_uses: set[tuple[str, str]] = set()
        path, is_open, visited = [start], {start}, {start}
        pending = [iter(self.uses[start])]
        while pending:
            name = next(pending[-1], None)
            if name is None:
                pending.pop()
                order.append(finished := path.pop())
                is_open.discard(finished)
            elif name in is_open:
                recursive_uses.add((path[-1], name))
            elif name not in visited:
                visited.add(name)
                is_open.add(name)
                path.append(name)
                pending.append(iter(self.uses[name]))
        return order, recursive_uses

    def _groups(self, order: list[str]) -> dict[str, list[str]]:
        """For each rule the rules that are mutually recursive with it (Kosaraju), in the order of `order`."""
        used_by: dict[str, list[str]] = {name: [] for name in order}
        for name in order:
            for other in self.uses[name]:
                used_by[other].append(name)
        leader: dict[str, str] = {}
        for name in reversed(order):
            pending = [name] if name not in leader else []
            while pending:
                if (other := pending.pop()) not in leader:
                    leader[other] = name
                    pending.extend(x for x in used_by[other] if x not in leader)
        members: dict[str, list[str]] = {}
        for name in order:
            members.setdefault(leader[name], []).append(name)
        return {name: members[leader[name]] for name in order}

    def _only_last(self, expression: Expression, group: set[str]) -> bool:
        """Whether the group's rules are used only at the end of an alternative."""
        pending = [(expression, True)]
        while pending:
            part, last = pending.pop()
            match part:
                case Rule(name, _):
                    if not last and name in group:
                        return False
                case Options(items):
                    pending.extend((item, last) for item in items)
                case Series(items):
                    pending.extend((item, last and i == len(items) - 1) for i, item in enumerate(items))
                case Times(item, _, _):
                    pending.append((item, False))
        return True

    def _loop(self, group: list[str]) -> None:
        """Right-linear rules: the use of a rule is a jump to its beginning."""
        nfa = NfaBuilder()
        end = nfa.state()
        entries = {name: nfa.state() for name in group}
        for name in group:
            self._add(nfa, self.rules[name], entries[name], end, {}, entries)
        for name in group:
            self.finished[name] = nfa.build(entries[name], [end])

    def _unroll(self, group: list[str], recursive_uses: set[tuple[str, str]]) -> None:
        """Languages by the remaining depth of recursion: a recursive use costs one level."""
        previous = {name: ByteDFA.empty() for name in group}
        for _ in range(self.max_depth + 1):
            languages: dict[str, ByteDFA] = {}
            for name in group:
                available = {
                    other: previous[other] if (name, other) in recursive_uses else languages[other]
                    for other in self.uses[name]
                    if other in previous and (other in languages or (name, other) in recursive_uses)
                }
                languages[name] = self._rule(name, available)
            if languages == previous:
                break
            previous = languages
        self.finished.update(previous)

    def _rule(self, name: str, languages: dict[str, ByteDFA]) -> ByteDFA:
        nfa = NfaBuilder()
        start, end = nfa.state(), nfa.state()
        self._add(nfa, self.rules[name], start, end, languages, {})
        return nfa.build(start, [end])

    def _add(
        self,
        nfa: NfaBuilder,
        expression: Expression,
        entry: int,
        end: int,
        languages: dict[str, ByteDFA],
        jumps: dict[str, int],
    ) -> None:
        """Add paths from `entry` to `end` that read the texts of `expression`."""
        repeated: dict[int, ByteDFA] = {}  # the languages of repetitions, the innermost first
        for part in reversed(_walk(expression)):
            if isinstance(part, Times) and id(part) not in repeated:
                inner = NfaBuilder()
                start, stop = inner.state(), inner.state()
                self._lay_out(inner, part.item, start, stop, languages, {}, repeated)
                repeated[id(part)] = inner.build(start, [stop]).repeat(part.low, part.high)
        self._lay_out(nfa, expression, entry, end, languages, jumps, repeated)

    def _lay_out(
        self,
        nfa: NfaBuilder,
        expression: Expression,
        entry: int,
        end: int,
        languages: dict[str, ByteDFA],
        jumps: dict[str, int],
        repeated: dict[int, ByteDFA],
    ) -> None:
        pending = [(expression, entry, end)]
        while pending:
            part, entry, end = pending.pop()
            match part:
                case Terminal(data):
                    nfa.literal(data, entry, end)
                case Pattern():
                    nfa.embed(self._pattern(part), entry, end)
                case Rule(name, _) if name in jumps:
                    nfa.epsilon(entry, jumps[name])
                case Rule(name, _) if name in languages or name in self.finished:
                    nfa.embed(languages[name] if name in languages else self.finished[name], entry, end)
                case Rule(name, _):
                    inner = nfa.state()
                    nfa.epsilon(entry, inner)
                    pending.append((self.rules[name], inner, end))
                case Options(items):
                    pending.extend((item, entry, end) for item in items)
                case Series(items):
                    for i, item in enumerate(items):
                        next_state = end if i == len(items) - 1 else nfa.state()
                        pending.append((item, entry, next_state))
                        entry = next_state
                    if not items:
                        nfa.epsilon(entry, end)
                case Times():
                    nfa.embed(repeated[id(part)], entry, end)

    def _pattern(self, pattern: Pattern) -> ByteDFA:
        if pattern.source not in self.patterns:
            try:
                with compiling():
                    self.patterns[pattern.source] = compile_regex(pattern.source)
            except ConstraintSyntaxError as error:
                complain(self.source, pattern.at + (error.position or 0), error.reason)
        return self.patterns[pattern.source]
