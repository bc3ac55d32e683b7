"""JSON Schema as a constraint: the values that a schema admits, as an automaton over their canonical spelling.

Every JSON value has one spelling: `json.dumps(value, ensure_ascii=False)` in the chosen white space, with whole
numbers as integers and an object's properties in the order in which the schema declares them, others after them.
Every string that the automaton accepts validates; `literals` explains why.

The language is smaller than the schema's own in these ways; options in parentheses change them:

- properties that the schema permits without describing them do not appear (`open=True`); undeclared names have an
  order that excludes duplicate names (free with `open=True`);
- recursion and unconstrained values have a finite depth (`max_depth`, `any_depth`); strings with a large
  `maxLength` stop at `max_string`; without `open=True` there are no control characters that need `\\u00XX`;
- numbers have at most 15 significant digits (`open=True`: any number of digits if there are only closed bounds);
- formats are asserted, some of them narrower than their specification (`formats`);
- arrays of unique items with many possible values contain only items that can be distinguished (`distinct`).

These are refused, by keyword and place (`UnsupportedKeyword`; `lenient=True` ignores the keyword): references to
other documents and dynamic references with several candidates, `uniqueItems` with more items than can be
distinguished, `unevaluatedProperties` and `unevaluatedItems` under a negation, patterns with back-references or
with lookarounds that are not at the start, unknown dialects. Keywords that no draft defines are annotations.

| module | its job |
|---|---|
| `constraint`, `options` | the public interface |
| `document`, `drafts` | nodes, addresses and references; which keyword means what in which draft |
| `literals`, `listed` | the logic: conjunctions of schemas and negated schemas multiplied out |
| `keywords` | the keywords of one plain schema as records |
| `strings`, `ecma`, `formats`, `numbers` | scalars |
| `objects`, `names`, `name_tries`, `arrays`, `distinct`, `values` | containers |
| `compiler`, `assembly` | combining places, large values by reference |
| `spelling`, `respelling`, `refusals` | how values are written; what is refused |
"""

from diffinity.constraints.schema.constraint import JsonSchema
from diffinity.constraints.schema.refusals import MalformedSchema, SchemaTooLarge, UnsupportedKeyword

__all__ = ["JsonSchema", "MalformedSchema", "SchemaTooLarge", "UnsupportedKeyword"]
