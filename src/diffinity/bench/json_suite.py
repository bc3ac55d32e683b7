"""The JSON suite: our 70 schemas or schemas that the user names, and the selection of those that a run can use."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from diffinity.alignment import Vocabulary, align
from diffinity.alignment.automaton import Framing
from diffinity.bench.cases import Case, Rule
from diffinity.constraints import JsonSchema
from diffinity.errors import ConstraintError, DownloadError, InfeasibleConstraint, InvalidArgument

OURS = Path(__file__).parent / "schemas"
HUB_ID = "epfl-dlab/JSONSchemaBench"
SUBSETS = (
    "Github_trivial",
    "Github_easy",
    "Github_medium",
    "Github_hard",
    "Github_ultra",
    "Glaiveai2K",
    "Kubernetes",
    "Snowplow",
    "WashingtonPost",
    "JsonSchemaStore",
)

# The limits of the paper's published program, from its own memory estimate before it builds an automaton.
PAPER_LENGTH = 64
PAPER_VOCABULARY = 32_768
PAPER_BYTES = 42_000_000_000  # a GPU of 48 GB minus the 6 GB reserved for the model
PAPER_CUBIC_STATES = 256  # up to this size it multiplies matrices in a tree, above it in sequence


@dataclass(frozen=True)
class FramingChoice:
    """One interpretation of "the output is the JSON": our name, the paper's notation, and its meaning."""

    name: Framing
    notation: str
    meaning: str


FRAMINGS = (
    FramingChoice("eos", "R<EOS>.*", "the text up to the first end token; anything may follow"),
    FramingChoice("eos_strict", "R<EOS>+", "the text, then end tokens to the end"),
    FramingChoice("search", ".*R.*", "somewhere in the output"),
)
"""The three framings that are compared on JSON; for the last, `Case.found_in` decides validity."""


@dataclass(frozen=True)
class Skipped:
    """A schema that a run omits, and the reason."""

    id: str
    category: str
    reason: str


class Selection(NamedTuple):
    """The cases of a run, and the omitted schemas."""

    cases: list[Case]
    skipped: list[Skipped]


def chosen(
    schemas: str | Path | None = None,
    *,
    rule: Rule = "ours",
    vocabulary: Vocabulary | None = None,
    length: int | None = None,
    framing: Framing = "eos",
) -> Selection:
    """Read the schemas (ours without a source) with `read`, and select among them with `selected`.

    >>> chosen().cases[0].category, len(chosen().cases)
    ('Github_trivial', 70)
    """
    readable = read(schemas)
    if schemas is None and rule == "ours" and vocabulary is None:
        return readable  # no check: a test compiles each of our schemas
    selection = selected(readable.cases, rule=rule, vocabulary=vocabulary, length=length, framing=framing)
    return Selection(selection.cases, readable.skipped + selection.skipped)


def read(schemas: str | Path | None = None) -> Selection:
    """The schemas as cases: of a .jsonl file, one .json file, a folder, or JSONSchemaBench ("hub", "hub:SUBSET").

    A line of a .jsonl file has `schema` or `json_schema` (an object, or its JSON text) and may have `subset` and
    `name` (or `unique_id`). The category of a file is its folder. The test splits are fetched from the hub only if
    "hub" is given. Anything that is not a schema is listed as skipped.

    >>> read("nowhere.jsonl")
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: there are no schemas at 'nowhere.jsonl': give a .json or .jsonl file, \
a folder of .json files, or "hub"
    """
    cases, skipped = [], []
    for row in _rows(schemas):
        identity = f"json/{row.subset}/{row.name}"
        try:
            constraint = JsonSchema(row.schema)
        except ConstraintError as refusal:
            skipped.append(Skipped(identity, row.subset, _first_line(refusal)))
            continue
        cases.append(Case(identity, row.subset, constraint, "json", constraint.text))
    return Selection(_unique(cases), skipped)


def selected(
    cases: Iterable[Case],
    *,
    rule: Rule = "ours",
    vocabulary: Vocabulary | None = None,
    length: int | None = None,
    framing: Framing = "eos",
) -> Selection:
    """The cases that a run can take, and the others with the reason.

    "ours": the schema compiles under the current limits and some text satisfies it; if a vocabulary and a length
    are given, a text of this length satisfies it. "paper": in addition, the paper's published program would not
    refuse it for its memory (`paper_bytes`). That program also refuses schemas that do not fit the length.
    """
    if rule not in ("ours", "paper"):
        raise InvalidArgument(f"the selection rule is 'ours' or 'paper', not {rule!r}")
    if (vocabulary is None) != (length is None):
        raise InvalidArgument("give a vocabulary and a length together: whether a schema fits depends on both")
    accepted, skipped = [], []
    for case in cases:
        try:
            _check(case, rule, vocabulary, length, framing)
        except ConstraintError as refusal:
            skipped.append(Skipped(case.id, case.category, _first_line(refusal)))
        else:
            accepted.append(case)
    return Selection(accepted, skipped)


def paper_bytes(states: int) -> int:
    """The memory estimate of the paper's program for one sample and an automaton of `states` states.

    One float32 for each state and token, and for the product of transition matrices, at each of 64 positions.

    >>> round(paper_bytes(100) / 1e9, 2), paper_bytes(5000) > PAPER_BYTES
    (1.09, True)
    """
    products = states**3 if states <= PAPER_CUBIC_STATES else states**2
    return PAPER_LENGTH * (states * PAPER_VOCABULARY + products) * 4


def _check(case: Case, rule: Rule, vocabulary: Vocabulary | None, length: int | None, framing: Framing) -> None:
    """Raise the error that excludes a case from a run."""
    dfa = copy.copy(case.constraint).dfa()  # a copy, so that thousands of automata do not stay in memory
    if dfa.is_empty:
        raise InfeasibleConstraint("no text satisfies the schema")
    if rule == "paper" and paper_bytes(dfa.n_states) > PAPER_BYTES:
        raise ConstraintError(
            f"{dfa.n_states:,} states: the paper's program estimates {paper_bytes(dfa.n_states) / 1e9:,.0f} GB "
            f"a sample, more than {PAPER_BYTES / 1e9:.0f}"
        )
    if vocabulary is not None and length is not None:
        align(dfa, vocabulary, framing).check_feasible(length)


def _first_line(refusal: Exception) -> str:
    return f"{type(refusal).__name__}: {str(refusal).splitlines()[0]}"


def _unique(cases: list[Case]) -> list[Case]:
    """The cases with unique ids, even if two files or lines have the same name."""
    count_of_id: dict[str, int] = {}
    unique = []
    for case in cases:
        count_of_id[case.id] = count_of_id.get(case.id, 0) + 1
        if (count := count_of_id[case.id]) > 1:
            case = Case(f"{case.id}-{count}", case.category, case.constraint, case.kind, case.source)
        unique.append(case)
    return unique


# ---- sources of schemas


class _Row(NamedTuple):
    subset: str
    name: str
    schema: Any


def _rows(schemas: str | Path | None) -> Iterator[_Row]:
    if schemas is None:
        for subset in SUBSETS:
            yield from _folder(OURS / subset)
        return
    if isinstance(schemas, str) and (schemas == "hub" or schemas.startswith("hub:")):
        yield from _hub(schemas.removeprefix("hub").removeprefix(":"))
        return
    path = Path(schemas)
    if path.is_dir():
        yield from _folder(path)
    elif path.suffix == ".jsonl" and path.is_file():
        yield from _lines(path)
    elif path.suffix == ".json" and path.is_file():
        yield _Row("file", path.stem, _text(path))
    else:
        raise InvalidArgument(
            f"there are no schemas at {str(schemas)!r}: give a .json or .jsonl file, a folder of .json files, "
            'or "hub"'
        )


def _folder(folder: Path) -> Iterator[_Row]:
    files = sorted(folder.rglob("*.json"))
    if not files:
        raise InvalidArgument(f"there are no .json files in the folder {str(folder)!r}")
    for file in files:
        yield _Row(file.parent.name or "file", file.stem, _text(file))


def _lines(path: Path) -> Iterator[_Row]:
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidArgument(f"{path}, line {number} is not JSON: {error.msg}") from None
        if not isinstance(row, dict) or not {"schema", "json_schema"} & row.keys():
            raise InvalidArgument(f'{path}, line {number} has no "schema" (or "json_schema")')
        yield _row(row, path.stem, str(number))


def _row(row: dict[str, Any], subset: str, name: str) -> _Row:
    schema = row["schema"] if "schema" in row else row["json_schema"]
    schema_name = str(row.get("name") or row.get("unique_id") or name).removesuffix(".json")
    return _Row(str(row.get("subset") or subset), schema_name, schema)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from None


def _hub(subset: str) -> Iterator[_Row]:
    """The test split of one subset of JSONSchemaBench, or of all ten."""
    if subset and subset not in SUBSETS:
        raise InvalidArgument(f"JSONSchemaBench has no subset {subset!r}; it has {', '.join(SUBSETS)}")
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise InvalidArgument(
            "reading JSONSchemaBench from the hub needs pyarrow: `pip install pyarrow`"
        ) from None
    for name in [subset] if subset else SUBSETS:
        for file in _fetched(f"{name}/test-*.parquet"):
            for row in parquet.read_table(file).to_pylist():
                yield _row(row, name, "")


def _fetched(pattern: str) -> list[Path]:
    """The files of the dataset on the hub that match, in the local cache."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(HUB_ID, repo_type="dataset", allow_patterns=[pattern]))
    except Exception as error:  # an error of the hub, the network or the disk
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DownloadError(f"{HUB_ID} could not be fetched from the hub: {reason}") from error
    files = sorted(folder.glob(pattern))
    if not files:
        raise DownloadError(f"{HUB_ID} has no file {pattern}")
    return files
