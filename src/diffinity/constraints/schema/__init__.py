"""JSON Schema as a constraint: the values that a schema admits, as an automaton over their canonical spelling.

Every JSON value has one spelling: `json.dumps(value, ensure_ascii=False)` in the chosen white space, with whole
numbers as integers and an object's properties in the order in which the schema declares them, others behind them.
The one law is that every string the automaton accepts validates; `literals` says why it holds.

What makes the language smaller than the schema's own, and which option changes it:

- properties that the schema permits without describing them do not appear (`open=True`); undeclared names come in
  an order that rules out a name that comes twice (free with `open=True`);
- recursion and values of which nothing is asked are finite (`max_depth`, `any_depth`); strings with a large
  `maxLength` stop at `max_string`; without `open=True` there are no control characters that need `\\u00XX`;
- numbers have at most 15 significant digits (`open=True`: any number of them where only closed bounds are asked);
- formats are asserted, some of them narrower than their specification (`formats`);
- arrays of unique items that have more than a few values are those whose items can be told apart (`distinct`).

What is refused, by keyword and place (`UnsupportedKeyword`; `lenient=True` goes on without): references to other
documents and dynamic ones with several candidates, `uniqueItems` with more items than can be told apart,
`unevaluatedProperties` and `unevaluatedItems` under a negation, patterns with back-references or with lookarounds
that are not at the start, dialects that are not known. Keywords that no draft knows are annotations.

| module | its job |
|---|---|
| `constraint`, `options` | what a caller sees |
| `document`, `drafts` | nodes, addresses and references; which keyword means what in which draft |
| `literals`, `listed` | the logic: conjunctions of schemas and negated schemas multiplied out |
| `keywords` | the keywords of one plain schema as records |
| `strings`, `ecma`, `formats`, `numbers` | scalars |
| `objects`, `names`, `name_tries`, `arrays`, `distinct`, `values` | containers |
| `compiler`, `assembly` | places put together, large values by reference |
| `spelling`, `respelling`, `refusals` | how values are written; what is refused |
"""

from diffinity.constraints.schema.constraint import JsonSchema
from diffinity.constraints.schema.refusals import MalformedSchema, SchemaTooLarge, UnsupportedKeyword

__all__ = ["JsonSchema", "MalformedSchema", "SchemaTooLarge", "UnsupportedKeyword"]
