"""`JsonSchema`: the constraint of a JSON Schema or a Pydantic model."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from diffinity.constraints.base import Constraint
from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.schema.compiler import ORDER_STATES, Compiler
from diffinity.constraints.schema.document import MAX_BYTES, MAX_NESTING, Document, check_size
from diffinity.constraints.schema.options import Options, Order, Spellings, Whitespace
from diffinity.constraints.schema.refusals import SchemaTooLarge
from diffinity.constraints.schema.respelling import all_spellings
from diffinity.errors import ConstraintError, ConstraintSyntaxError, ConstraintTooLarge, InvalidArgument
from diffinity.limits import compiling


@dataclass(frozen=True, init=False)
class JsonSchema(Constraint):
    """The JSON texts of the values that a schema accepts, each value in its canonical spelling.

    By default an object has the properties that the schema names, in this order, and other properties only if the
    schema describes them. `open=True` accepts all properties that the schema accepts. `order="any"` accepts any
    order. `spelling="any"` accepts other spellings of strings and numbers. Every accepted text validates; an
    unsupported keyword raises `UnsupportedKeyword`.

    >>> point = JsonSchema({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
    >>> point.accepts('{"x": 3}'), point.accepts('{"x": 3.5}'), point.accepts('{}')
    (True, False, False)
    """

    text: str
    options: Options
    model: Any = None

    def __init__(
        self,
        schema: dict[str, Any] | bool | str | type,
        *,
        whitespace: Whitespace = "dumps",
        order: Order = "declared",
        open: bool = False,  # noqa: A002 (the word of the specification)
        lenient: bool = False,
        max_depth: int | None = Options.max_depth,
        any_depth: int | None = Options.any_depth,
        max_string: int = Options.max_string,
        max_space: int = Options.max_space,
        max_branches: int = Options.max_branches,
        spelling: Spellings = "canonical",
    ) -> None:
        text, model = _read(schema)
        options = Options(
            whitespace, order, open, lenient, max_depth, any_depth, max_string, max_space, max_branches, spelling
        )
        for name, value in (("text", text), ("options", options), ("model", model)):
            object.__setattr__(self, name, value)

    @property
    def schema(self) -> Any:
        """The schema as Python data, a fresh copy.

        >>> JsonSchema(True).schema
        True
        """
        return json.loads(self.text)

    def parse(self, text: str | bytes) -> Any:
        """The value of a text: an instance of the Pydantic model if there is one, plain data otherwise.

        >>> JsonSchema({"type": "integer"}).parse("7")
        7
        """
        if self.model is not None:
            return self.model.model_validate_json(text)
        return json.loads(text)

    def _build(self) -> ByteDFA:
        try:
            document = Document(self.schema, lenient=self.options.lenient)
            dfa = self._canonical(document)
            if self.options.spelling == "any":
                return all_spellings(dfa, decimal_integers=document.root.draft > 4)
            return dfa
        except RecursionError:
            raise SchemaTooLarge("levels", MAX_NESTING, MAX_NESTING + 1, "this schema") from None

    def _canonical(self, document: Document) -> ByteDFA:
        """The machine with one spelling per value; `order="any"` may use up to half of the compile budget."""
        with compiling() as budget:
            half = (budget.limits.compile_steps + budget.meter.steps) // 2
            for order_states in ORDER_STATES if self.options.order == "any" else ():
                with compiling(replace(budget.limits, compile_steps=half)):
                    dfa = self._in_any_order(document, order_states)
                if dfa is not None:
                    return dfa
            return Compiler(document, replace(self.options, order="declared")).document_language()

    def _in_any_order(self, document: Document, order_states: int) -> ByteDFA | None:
        """The automaton with properties in any order; None if that is too large."""
        try:
            compiler = Compiler(document, self.options, order_states)
            dfa = compiler.document_language()
        except ConstraintTooLarge:
            self.__dict__["_ordered"] = ("#",)
            return None
        self.__dict__["_ordered"] = tuple(compiler.ordered)
        return dfa

    @property
    def ordered_places(self) -> tuple[str, ...]:
        """The places where properties keep an order although `order="any"` was requested, because of the size.

        `#` alone may mean the whole schema.

        >>> JsonSchema({"properties": {"a": {}, "b": {}}}, order="any").ordered_places
        ()
        """
        self.dfa()
        places: tuple[str, ...] = self.__dict__.get("_ordered", ())
        return places

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:57] + "…"
        return f"JsonSchema({text})"


def _read(schema: object) -> tuple[str, Any]:
    """The schema as JSON text, and its Pydantic model, if any."""
    model = None
    if isinstance(schema, type):
        if not hasattr(schema, "model_json_schema"):
            raise InvalidArgument(f"{schema.__name__} is no Pydantic model; give a schema or a model")
        model = schema
    try:
        if model is not None:
            schema = model.model_json_schema()
        if isinstance(schema, str):
            if len(schema) > MAX_BYTES:
                raise SchemaTooLarge("bytes", MAX_BYTES, len(schema), "this schema")
            schema = json.loads(schema)
        if not isinstance(schema, dict | bool):
            raise ConstraintSyntaxError(f"a schema is an object or a boolean, not {type(schema).__name__}")
        check_size(schema)
        return json.dumps(schema, ensure_ascii=False, allow_nan=False), model
    except ConstraintError:
        raise
    except json.JSONDecodeError as error:
        raise ConstraintSyntaxError(f"the schema is not JSON: {error.msg}", error.doc, error.pos) from None
    except RecursionError:
        raise SchemaTooLarge("levels", MAX_NESTING, MAX_NESTING + 1, "this schema") from None
    except (TypeError, ValueError) as error:
        raise ConstraintSyntaxError(f"the schema is not JSON: {error}") from None
