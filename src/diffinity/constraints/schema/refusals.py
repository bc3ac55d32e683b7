"""Errors for schemas that are not supported, each with its keyword and place."""

from __future__ import annotations

from diffinity.errors import ConstraintError, ConstraintSyntaxError, ConstraintTooLarge, UnsupportedConstraint


class UnsupportedKeyword(UnsupportedConstraint):
    """A schema keyword that is not supported exactly; `lenient=True` ignores it.

    >>> str(UnsupportedKeyword("$ref", "#/items", "nothing is fetched"))
    '`$ref` at #/items: nothing is fetched (`lenient=True` ignores it)'
    """

    def __init__(self, keyword: str, pointer: str, reason: str) -> None:
        self.keyword = keyword
        self.pointer = pointer
        self.reason = reason
        super().__init__(f"`{keyword}` at {pointer}: {reason} (`lenient=True` ignores it)")


class MalformedSchema(ConstraintSyntaxError):
    """A document that is not a JSON Schema; `pointer` says where.

    >>> raise MalformedSchema("#/type", "no JSON type is called 'text'")
    Traceback (most recent call last):
    diffinity.constraints.schema.refusals.MalformedSchema: #/type: no JSON type is called 'text'
    """

    def __init__(self, pointer: str, reason: str) -> None:
        self.pointer = pointer
        super().__init__(f"{pointer}: {reason}")


class SchemaTooLarge(ConstraintTooLarge):
    """A schema that is too large to analyse; `option` is the argument of `JsonSchema` that raises the limit.

    >>> str(SchemaTooLarge("max_branches", 256, 300, "the schema at #", option=True))
    'the schema at # needs max_branches of at least 300, and the limit is 256. Simplify it, or set `max_branches`.'
    """

    def __init__(self, limit: str, allowed: int, needed: int, doing: str, *, option: bool = False) -> None:
        self.limit = limit
        self.allowed = allowed
        self.needed = needed
        advice = f"Simplify it, or set `{limit}`." if option else "Simplify it."
        message = f"{doing} needs {limit} of at least {needed:,}, and the limit is {allowed:,}. {advice}"
        ConstraintError.__init__(self, message)
