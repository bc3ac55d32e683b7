"""The suites: how many cases of what, that each can be met, and that validity is what others say it is."""

from __future__ import annotations

import json
import pickle
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from diffinity.alignment import Vocabulary, align
from diffinity.bench import json_suite
from diffinity.bench.cases import Case, suite
from diffinity.bench.json_suite import FRAMINGS, SUBSETS, chosen, read, selected
from diffinity.bench.natural_language import WORDS
from diffinity.constraints import JsonSchema
from diffinity.constraints.sentences import Sentence
from diffinity.errors import DownloadError, InvalidArgument
from diffinity.models.loading import EMBEDDED
from tests.conftest import shared_folder

BYTES = Vocabulary([*(bytes([b]) for b in range(256)), None], eos_id=256)
SENTENCES = suite("natural-language")
SCHEMAS = suite("json")


def sentence(case: Case) -> Sentence:
    assert isinstance(case.constraint, Sentence)
    return case.constraint


# ---- natural language


def test_the_110_constraints_are_of_the_six_templates() -> None:
    counted = Counter(case.category for case in SENTENCES)
    assert counted == {"prefix": 20, "suffix": 20, "appearance": 20, "between-n": 20, "between": 20, "length": 10}


def test_no_constraint_and_no_id_comes_twice() -> None:
    assert len({case.id for case in SENTENCES + SCHEMAS}) == 180
    meanings = {
        (c.template, frozenset(c.wanted) if c.template == "appearance" else c.wanted, c.n)
        for c in map(sentence, SENTENCES)
    }
    assert len(meanings) == 110


def test_positions_stay_within_the_paper_s_bounds() -> None:
    found: dict[str, set[int | None]] = {}
    for case in SENTENCES:
        found.setdefault(case.category, set()).add(sentence(case).n)
    assert found["prefix"] == {1, 2, 3, 4, 5}
    assert found["suffix"] == found["between-n"] == {1, 2, 3}
    assert found["appearance"] == found["between"] == {None}
    assert len(found["length"]) == 10


def test_words_are_from_the_list_and_ignore_case_throughout() -> None:
    assert len(set(WORDS)) == 100
    assert (WORDS[0], WORDS[49], WORDS[-1]) == ("the", "time", "find")
    for case in SENTENCES:
        assert set(sentence(case).wanted) <= set(WORDS)
        assert sentence(case).ignore_case == (case.category != "length")


def test_the_seed_decides_the_words() -> None:
    assert suite("natural-language", seed=0) == SENTENCES
    assert suite("natural-language", seed=1) != SENTENCES
    # Pinned: results on disk are filed under these names.
    firsts = [
        next(c.id for c in SENTENCES if c.category == name) for name in ("prefix", "appearance", "between-n")
    ]
    assert firsts == [
        "natural-language/prefix/01-have-1",
        "natural-language/appearance/01-who-his",
        "natural-language/between-n/01-as-c-1",
    ]


def test_every_sentence_fits_into_32_tokens() -> None:
    # Of single bytes, so all the more of a byte-level BPE, which has them all.
    assert all(align(case.constraint, BYTES).feasible(32) for case in SENTENCES)


OTHER_WORDS = ("river", "Mill", "don't", "1990", "information", "sea", "electricity", "house", "cats")


def holds(wanted: Sentence, text: str) -> bool:
    """What the template says, by splitting the text into words."""
    words = [word for word in re.split(r"[^A-Za-z0-9']+", text.lower()) if word]
    n = wanted.n or 0
    if wanted.template == "prefix":
        return len(words) >= n and words[n - 1] == wanted.wanted[0]
    if wanted.template == "suffix":
        return len(words) >= n and words[-n] == wanted.wanted[0]
    if wanted.template == "appearance":
        return set(wanted.wanted) <= set(words)
    if wanted.template == "length":
        return any(len(word.replace("'", "")) == n for word in words)
    first, second = wanted.wanted
    gaps = [
        j - i - 1
        for i, w in enumerate(words)
        for j in range(i + 1, len(words))
        if (w, words[j]) == (first, second)
    ]
    return bool(gaps) if wanted.template == "between" else n in gaps


def test_validity_is_what_splitting_into_words_says() -> None:
    rng = random.Random(0)
    verdicts: Counter[tuple[str, bool]] = Counter()
    for case in SENTENCES:
        pool = [*sentence(case).wanted * 3, *OTHER_WORDS]
        for _ in range(12):
            words = [w if rng.random() < 0.5 else w.capitalize() for w in rng.choices(pool, k=rng.randint(1, 7))]
            text = "".join(w + rng.choice([" ", ", ", ". ", "\n"]) for w in words).strip() + rng.choice(["", "."])
            expected = holds(sentence(case), text)
            assert case.valid(text) == case.constraint.accepts(text) == expected, (case.id, text)
            verdicts[case.category, expected] += 1
    assert all(verdicts[case.category, outcome] > 3 for case in SENTENCES for outcome in (True, False))


# ---- our schemas


def test_there_are_seven_schemas_in_the_manner_of_each_subset() -> None:
    assert Counter(case.category for case in SCHEMAS) == dict.fromkeys(SUBSETS, 7)


def test_the_schemas_are_schemas() -> None:
    assert all(jsonschema_rs.meta.is_valid(json.loads(case.source)) for case in SCHEMAS)


def test_the_schemas_use_what_real_ones_use() -> None:
    words = Counter(word for case in SCHEMAS for word in set(re.findall(r'"([$\w]+)":', case.source)))
    common = "title description enum const pattern format minimum maximum minItems maxItems required oneOf anyOf"
    assert all(words[word] >= 3 for word in [*common.split(), "$ref", "definitions", "$defs", "patternProperties"])


def test_every_schema_compiles_within_the_limits_and_its_texts_validate() -> None:
    rng = random.Random(0)
    for case in SCHEMAS:
        dfa = case.constraint.dfa()
        assert dfa.n_states < 5_000
        shortest = dfa.shortest()
        assert shortest is not None
        texts = [shortest, *(dfa.sample(rng, 200) for _ in range(5))]
        assert all(case.valid(text.decode()) for text in texts), case.id
        assert len(shortest) <= 180, case.id


def test_every_schema_fits_the_embedded_model() -> None:
    tokenizer = EMBEDDED / "tokenizer.json"
    if not tokenizer.is_file():
        pytest.skip("there is no embedded model yet")
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    found = chosen(vocabulary=vocabulary, length=64)
    assert (len(found.cases), found.skipped) == (70, [])


# ---- validity of JSON


def case_of(schema: Any) -> Case:
    return Case("json/test/1", "test", JsonSchema(schema), "json", json.dumps(schema))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"when": "2024-02-29", "n": 1}', True),
        (' {"n": 1.0,\n"when": "2024-02-29"} ', True),  # JSON, whatever its spelling and order
        ('{"when": "2023-02-29", "n": 1}', False),  # formats are asserted
        ('{"when": "2024-02-29", "n": 1.5}', False),
        ('{"when": "2024-02-29"}', False),
        ('{"when": "2024-02-29", "n": NaN}', False),
        ('{"when": "\\ud800", "n": 1}', False),
        ('{"when": "2024-02-29", "n": ' + "9" * 5000 + "}", False),
        ("[" * 100_000, False),
        ('{"when": "2024-02-29", "n": 1} and more', False),
        ("", False),
    ],
)
def test_json_validity(text: str, expected: bool) -> None:
    properties = {"when": {"type": "string", "format": "date"}, "n": {"type": "integer"}}
    case = case_of({"type": "object", "properties": properties, "required": ["when", "n"]})
    assert case.valid(text) is expected


def test_search_finds_a_value_inside_other_text() -> None:
    case = case_of({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}})
    assert case.found_in('x {"b": 1} y {"a": 2} z')
    assert case.found_in('{"outer": {"a": 2}}')
    assert not case.found_in('x {"a": "2"} {"a": 2')
    assert not case.valid('x {"a": 2}')


def test_search_finds_a_sentence_inside_other_text() -> None:
    case = next(case for case in SENTENCES if case.category == "between")
    first, second = sentence(case).wanted
    assert case.found_in(f"€ {first} and {second} €")
    assert not case.found_in(f"€ {first} € {second} €")


def test_the_framings_are_three_of_ours() -> None:
    assert [framing.name for framing in FRAMINGS] == ["eos", "eos_strict", "search"]
    assert all(align(JsonSchema({"const": 1}), BYTES, framing.name).feasible(4) for framing in FRAMINGS)


# ---- all cases


def test_cases_travel_between_processes() -> None:
    for case in (SENTENCES[0], SENTENCES[50], SCHEMAS[30]):
        case.constraint.dfa()
        copy = pickle.loads(pickle.dumps(case))
        assert copy == case
        assert copy.valid("{}") == case.valid("{}")


@pytest.mark.parametrize(("name", "size"), [("natural-language", 12), ("json", 10)])
def test_a_quick_suite_is_part_of_the_whole(name: str, size: int) -> None:
    quick, whole = suite(name, quick=True), suite(name)
    assert len(quick) == size
    assert {case.category for case in quick} == {case.category for case in whole}
    assert [case for case in whole if case in quick] == quick


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="natural-language, json"):
        suite("poetry")
    with pytest.raises(InvalidArgument, match="takes no schemas"):
        suite("natural-language", schemas="x.jsonl")


# ---- the user's schemas

ROWS = [
    {"subset": "A", "name": "good.json", "schema": {"enum": ["yes", "no"]}, "tests": []},
    {"subset": "A", "name": "good.json", "schema": {"const": "x" * 40}},
    {"unique_id": "text", "json_schema": '{"type": "boolean"}'},
    {"subset": "B", "name": "never", "schema": {"type": "string", "maxLength": 2, "minLength": 3}},
    {"subset": "B", "name": "remote", "schema": {"$ref": "https://example.org/other.json"}},
    {"subset": "B", "name": "no schema", "schema": 7},
    {"subset": "B", "name": "huge", "schema": {"type": "string", "pattern": "^(ab){2500}$"}},
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    return path


def test_schemas_of_a_file_of_lines(rows: Path) -> None:
    found = read(rows)
    assert [case.id for case in found.cases] == [
        "json/A/good",
        "json/A/good-2",
        "json/mine/text",
        "json/B/never",
        "json/B/remote",
        "json/B/huge",
    ]
    assert [case.id for case in found.skipped] == ["json/B/no schema"]
    assert found.cases[2].valid("true")


def test_what_cannot_run_is_left_out_with_the_reason(rows: Path) -> None:
    found = chosen(rows, vocabulary=BYTES, length=32)
    assert [case.id for case in found.cases] == ["json/A/good", "json/mine/text"]
    reasons = {case.id: case.reason for case in found.skipped}
    assert "an object or a boolean" in reasons["json/B/no schema"]
    assert "no text satisfies" in reasons["json/B/never"]
    assert "$ref" in reasons["json/B/remote"]
    assert "the shortest has 43" in reasons["json/A/good-2"]
    assert "the shortest has 5003" in reasons["json/B/huge"]


def test_without_a_vocabulary_length_does_not_count(rows: Path) -> None:
    assert [case.id for case in suite("json", schemas=rows)] == [
        "json/A/good",
        "json/A/good-2",
        "json/mine/text",
        "json/B/huge",
    ]


def test_the_paper_s_rule_leaves_out_what_its_memory_would_not_hold(rows: Path) -> None:
    found = chosen(rows, rule="paper")
    assert [case.id for case in found.cases] == ["json/A/good", "json/A/good-2", "json/mine/text"]
    assert any(case.id == "json/B/huge" and "states" in case.reason for case in found.skipped)


def test_length_and_vocabulary_go_together() -> None:
    with pytest.raises(InvalidArgument, match="together"):
        selected(SCHEMAS[:1], length=64)
    with pytest.raises(InvalidArgument, match="rule"):
        selected(SCHEMAS[:1], rule="mine")  # type: ignore[arg-type]


def test_schemas_of_a_folder_and_of_one_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.json").write_text('{"type": "null"}')
    (tmp_path / "two.json").write_text("not JSON")
    found = read(tmp_path)
    assert [(case.id, case.category) for case in found.cases] == [("json/a/one", "a")]
    assert "not JSON" in found.skipped[0].reason
    assert read(tmp_path / "a" / "one.json").cases[0].valid("null")


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"schema": true}\n{"schem', "line 2 is not JSON"), ('{"name": "x"}', 'line 1 has no "schema"')],
)
def test_a_damaged_file_is_refused_with_the_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidArgument, match=message):
        read(path)


def test_missing_schemas_are_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none.jsonl", "hub:Poetry"):
        with pytest.raises(InvalidArgument):
            read(place)


def test_the_real_schemas_are_read() -> None:
    shared = shared_folder()
    if shared is None or not (path := shared / "data" / "jsonschemabench-200.jsonl").is_file():
        pytest.skip("JSONSchemaBench is not here (set DIFFINITY_SHARED)")
    found = read(path)
    assert len(found.cases) + len(found.skipped) == 200
    assert {case.category for case in found.cases} == set(SUBSETS)


def test_the_hub_is_read_by_subset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pip install 'diffinity[bench]'")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'diffinity[bench]'")
    for subset in SUBSETS:
        (tmp_path / subset).mkdir()
        table = pyarrow.table({"json_schema": ['{"const": 5}'], "unique_id": [f"{subset}_1"]})
        parquet.write_table(table, tmp_path / subset / "test-00000-of-00001.parquet")
        (tmp_path / subset / "train-00000-of-00001.parquet").write_text("not to be read")
    asked: list[tuple[str, Any]] = []

    def snapshot(name: str, *, repo_type: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert [case.id for case in read("hub").cases] == [f"json/{subset}/{subset}_1" for subset in SUBSETS]
    assert [case.category for case in suite("json", schemas="hub:Snowplow")] == ["Snowplow"]
    assert asked[-1] == (json_suite.HUB_ID, ["Snowplow/test-*.parquet"])


def test_a_hub_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow.parquet", reason="pip install 'diffinity[bench]'")

    def snapshot(*_: object, **__: object) -> str:
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    with pytest.raises(DownloadError, match="no route to host"):
        read("hub:Snowplow")
