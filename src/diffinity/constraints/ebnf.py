"""The parser of `Grammar`'s notation: from text to rules, with line and column in every error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from diffinity.errors import ConstraintSyntaxError
from diffinity.limits import PYTHON_STEPS, compiling


@dataclass(frozen=True)
class Terminal:
    """A literal text."""

    data: bytes


@dataclass(frozen=True)
class Pattern:
    """A regular expression: `/…/`, or a character class `[…]`."""

    source: str
    at: int


@dataclass(frozen=True)
class Rule:
    """The use of another rule."""

    name: str
    at: int


@dataclass(frozen=True)
class Series:
    """One item after another."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Options:
    """Any one of the items."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Times:
    """From `low` to `high` of the item; None for no upper bound."""

    item: Expression
    low: int
    high: int | None


Expression = Terminal | Pattern | Rule | Series | Options | Times

_TOKEN = re.compile(
    r"""(?P<blank>\s+|\#[^\n]*|\(\*.*?\*\))
    |(?P<name>[A-Za-z_][A-Za-z0-9_-]*)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<regex>/(?:\\.|[^/\\\n])+/)
    |(?P<set>\[\^?\]?(?:\\.|[^\]\\\n])+\])
    |(?P<count>\{[ ]*(?:[0-9]+[ ]*)?(?:,[ ]*(?:[0-9]+[ ]*)?)?\})
    |(?P<is>::=|:=|=)
    |(?P<mark>[|()?*+;,])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "/": "/"}


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def read_rules(source: str) -> dict[str, Expression]:
    """The rules of a grammar by name, in order.

    >>> list(read_rules('greeting = "hi" name? ; name ::= [a-z]+'))
    ['greeting', 'name']
    """
    with compiling() as budget:
        budget.check("pattern_length", len(source), "this grammar")
        budget.spend(PYTHON_STEPS * len(source), "reading this grammar")
    return _Reader(source).rules()


def complain(source: str, at: int, message: str) -> NoReturn:
    """Raise an error with this message, the line and column, and an excerpt of the source."""
    line = source.count("\n", 0, at) + 1
    column = at - source.rfind("\n", 0, at)
    raise ConstraintSyntaxError(f"line {line}, column {column}: {message}", source, at)


class _Level:
    """The items since an open parenthesis."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.alternatives: list[list[Expression]] = [[]]

    def expression(self) -> Expression:
        series = [items[0] if len(items) == 1 else Series(tuple(items)) for items in self.alternatives]
        return series[0] if len(series) == 1 else Options(tuple(series))


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = self._split(source)
        self.place = 0

    def _split(self, source: str) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while at < len(source):
            match = _TOKEN.match(source, at)
            if match is None:
                complain(source, at, f"{source[at]!r} does not begin a token of this notation")
            if match.group() == "(" and source.startswith("(*", at):
                complain(source, at, "this comment is never closed")
            kind = match.lastgroup or ""
            if kind != "blank":
                tokens.append(_Token(kind, match.group(), at))
            at = match.end()
        return [*tokens, _Token("end", "", len(source))]

    def peek(self, ahead: int = 0) -> _Token:
        return self.tokens[min(self.place + ahead, len(self.tokens) - 1)]

    def take(self, kind: str, expected: str) -> _Token:
        token = self.peek()
        if token.kind != kind:
            complain(self.source, token.at, f"expected {expected}, not {token.text or 'the end'!r}")
        self.place += 1
        return token

    def rules(self) -> dict[str, Expression]:
        rules: dict[str, Expression] = {}
        while self.peek().kind != "end":
            name = self.take("name", "the name of a rule")
            self.take("is", "'=' or '::='")
            if name.text in rules:
                complain(self.source, name.at, f"rule {name.text!r} is defined twice")
            rules[name.text] = self.expression()
            if self.peek().text == ";":
                self.place += 1
            elif not self.at_next_rule():
                complain(self.source, self.peek().at, f"unexpected {self.peek().text!r}")
        if not rules:
            complain(self.source, len(self.source), "a grammar needs at least one rule")
        return rules

    def at_next_rule(self) -> bool:
        return self.peek().kind == "end" or (self.peek().kind == "name" and self.peek(1).kind == "is")

    def expression(self) -> Expression:
        """One right-hand side; open parentheses are on a stack, without recursion."""
        levels = [_Level(-1)]
        while True:
            if self.peek().kind == "mark" and self.peek().text == ",":
                self.place += 1  # ISO's comma between items, equivalent to juxtaposition
            token = self.peek()
            if token.text == "|" and token.kind == "mark":
                self.place += 1
                levels[-1].alternatives.append([])
            elif token.text == "(" and token.kind == "mark":
                self.place += 1
                levels.append(_Level(token.at))
                with compiling() as budget:
                    budget.check("nesting_depth", len(levels) - 1, "this grammar")
            elif token.kind in ("end", "is") or token.text in (")", ";") or self.at_next_rule():
                level = levels.pop()
                if not levels:
                    return level.expression()
                if token.text != ")":
                    complain(self.source, level.at, "this parenthesis is never closed")
                self.place += 1
                levels[-1].alternatives[-1].append(self.repeated(level.expression()))
            else:
                levels[-1].alternatives[-1].append(self.repeated(self.atom()))

    def repeated(self, item: Expression) -> Expression:
        while self.peek().kind == "count" or self.peek().text in ("?", "*", "+"):
            token = self.peek()
            self.place += 1
            low, high = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(token.text) or self.count(token)
            item = Times(item, low, high)
        return item

    def count(self, token: _Token) -> tuple[int, int | None]:
        low, comma, high = token.text.strip("{}").replace(" ", "").partition(",")
        if not low and not high:
            complain(self.source, token.at, "a count is {n}, {m,n}, {m,} or {,n}")
        smallest = int(low or 0)
        largest = None if comma and not high else int(high) if high else smallest
        if largest is not None and largest < smallest:
            complain(self.source, token.at, f"the count {token.text} has an upper bound below its lower bound")
        return smallest, largest

    def atom(self) -> Expression:
        token = self.peek()
        self.place += 1
        if token.kind == "name":
            return Rule(token.text, token.at)
        if token.kind == "text":
            return Terminal(self.unescaped(token))
        if token.kind == "regex":
            return Pattern(token.text[1:-1].replace("\\/", "/"), token.at + 1)
        if token.kind == "set":
            return Pattern(token.text, token.at)
        complain(self.source, token.at, f"unexpected {token.text!r}")

    def unescaped(self, token: _Token) -> bytes:
        def plain(match: re.Match[str]) -> str:
            code = match.group(1) or match.group(2) or match.group(3)
            if code:
                return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else "\ud800"
            if match.group(4) not in _PLAIN:
                complain(self.source, token.at + 1 + match.start(), f"unknown escape \\{match.group(4)}")
            return _PLAIN[match.group(4)]

        try:
            return _ESCAPE.sub(plain, token.text[1:-1]).encode()
        except UnicodeEncodeError:
            complain(self.source, token.at, "this text has a code point that is no character")
