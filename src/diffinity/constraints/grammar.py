"""`Grammar`: context-free rules as a constraint, exact where they are regular, recursion unrolled to a depth.

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
    """Texts that the rules derive, where no recursion goes round more than `max_depth` times.

    A rule that leads back to itself only as the last thing of its alternatives (`list = item | item "," list`)
    is a loop, and exact at any depth.

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
    """The expression and all that it is made of."""
    found, todo = [], [expression]
    while todo:
        found.append(part := todo.pop())
        match part:
            case Series(items) | Options(items):
                todo.extend(items)
            case Times(item, _, _):
                todo.append(item)
    return found


class _Compiler:
    """Languages of rules, groups of mutually recursive ones from the bottom up."""

    def __init__(self, source: str, rules: dict[str, Expression], max_depth: int) -> None:
        self.source = source
        self.rules = rules
        self.max_depth = max_depth
        self.uses = {
            name: [part.name for part in _walk(expression) if isinstance(part, Rule)]
            for name, expression in rules.items()
        }
        self.whole: dict[str, ByteDFA] = {}  # the finished languages
        self.patterns: dict[str, ByteDFA] = {}

    def language(self, start: str) -> ByteDFA:
        order, back = self._depth_first(start)
        reach = {name: self._reachable(name) for name in order}
        for name in order:  # what a rule uses comes before it
            if name in self.whole:
                continue
            group = [other for other in order if other == name or (other in reach[name] and name in reach[other])]
            if name not in reach[name]:
                self.whole[name] = self._rule(name, {})
            elif all(self._only_last(self.rules[other], {*group}) for other in group):
                self._loop(group)
            else:
                self._unroll(group, back)
        return self.whole[start]

    def _depth_first(self, start: str) -> tuple[list[str], set[tuple[str, str]]]:
        """The rules in the order in which they are finished, and the uses that lead back to an open rule."""
        order: list[str] = []
        back: set[tuple[str, str]] = set()
        open_rules, done = [start], set[str]()
        todo = [iter(self.uses[start])]
        while todo:
            name = next(todo[-1], None)
            if name is None:
                todo.pop()
                order.append(finished := open_rules.pop())
                done.add(finished)
            elif name in open_rules:
                back.add((open_rules[-1], name))
            elif name not in done:
                open_rules.append(name)
                todo.append(iter(self.uses[name]))
        return order, back

    def _reachable(self, name: str) -> set[str]:
        found, todo = set[str](), list(self.uses[name])
        while todo:
            if (other := todo.pop()) not in found:
                found.add(other)
                todo.extend(self.uses[other])
        return found

    def _only_last(self, expression: Expression, group: set[str], last: bool = True) -> bool:
        """Whether the group's rules are used only as the last thing of an alternative."""
        match expression:
            case Rule(name, _):
                return last or name not in group
            case Options(items):
                return all(self._only_last(item, group, last) for item in items)
            case Series(items):
                return all(
                    self._only_last(item, group, last and i == len(items) - 1) for i, item in enumerate(items)
                )
            case Times(item, _, _):
                return self._only_last(item, group, False)
        return True

    def _loop(self, group: list[str]) -> None:
        """Right-linear rules: a use of a rule is a jump to its beginning."""
        nfa = NfaBuilder()
        end = nfa.state()
        entries = {name: nfa.state() for name in group}
        for name in group:
            self._add(nfa, self.rules[name], entries[name], end, {}, entries)
        for name in group:
            self.whole[name] = nfa.build(entries[name], [end])

    def _unroll(self, group: list[str], back: set[tuple[str, str]]) -> None:
        """Languages by how often a recursion may still go round: a use that leads back costs one."""
        below = {name: ByteDFA.empty() for name in group}
        for _ in range(self.max_depth + 1):
            now: dict[str, ByteDFA] = {}
            for name in group:
                known = {
                    other: below[other] if (name, other) in back else now[other]
                    for other in group
                    if other in now or (name, other) in back
                }
                now[name] = self._rule(name, known)
            if now == below:
                break
            below = now
        self.whole.update(below)

    def _rule(self, name: str, known: dict[str, ByteDFA]) -> ByteDFA:
        nfa = NfaBuilder()
        start, end = nfa.state(), nfa.state()
        self._add(nfa, self.rules[name], start, end, known, {})
        return nfa.build(start, [end])

    def _add(
        self,
        nfa: NfaBuilder,
        expression: Expression,
        entry: int,
        end: int,
        known: dict[str, ByteDFA],
        jumps: dict[str, int],
    ) -> None:
        """Make the texts of `expression` lead from `entry` to `end`."""
        match expression:
            case Terminal(data):
                nfa.literal(data, entry, end)
            case Pattern():
                nfa.embed(self._pattern(expression), entry, end)
            case Rule(name, _) if name in jumps:
                nfa.epsilon(entry, jumps[name])
            case Rule(name, _):
                nfa.embed(known[name] if name in known else self.whole[name], entry, end)
            case Options(items):
                for item in items:
                    self._add(nfa, item, entry, end, known, jumps)
            case Series(items):
                for i, item in enumerate(items):
                    after = end if i == len(items) - 1 else nfa.state()
                    self._add(nfa, item, entry, after, known, jumps)
                    entry = after
                if not items:
                    nfa.epsilon(entry, end)
            case Times(item, low, high):
                inner = NfaBuilder()
                start, stop = inner.state(), inner.state()
                self._add(inner, item, start, stop, known, {})
                nfa.embed(inner.build(start, [stop]).repeat(low, high), entry, end)

    def _pattern(self, pattern: Pattern) -> ByteDFA:
        if pattern.source not in self.patterns:
            try:
                with compiling():
                    self.patterns[pattern.source] = compile_regex(pattern.source)
            except ConstraintSyntaxError as error:
                complain(self.source, pattern.at + (error.position or 0), error.reason)
        return self.patterns[pattern.source]
