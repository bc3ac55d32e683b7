"""Scores of a run's texts, stored in its folder: nats by a language model, fluency by a judge."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from diffinity.bench import grammar
from diffinity.bench.grammar import GrammarCounts
from diffinity.bench.judge import Judge
from diffinity.bench.provenance import fingerprint
from diffinity.bench.scorers import EMBEDDED_SCORER, HUGGING_FACE, Score, Scorer, load_scorer, scorer_folder
from diffinity.bench.store import SCORES, Run, SampleRow, repair

FLUENCY = "fluency.jsonl"
GRAMMAR = "grammar.jsonl"
BATCH_SIZE = 256
JUDGED = 50  # default number of samples of each system


def text_key(text: str) -> str:
    """The key of a text in the files of scores.

    >>> len(text_key("a text"))
    32
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def scorer_id(source: str) -> str:
    """The name of a scorer with a hash of its weights, so that scores of other weights are not reused.

    >>> scorer_id("hf:gpt2")
    'hf:gpt2'
    """
    if source.startswith(HUGGING_FACE):
        return source
    folder = scorer_folder(source)
    weights = fingerprint(folder).get("model.safetensors", "none")
    return f"{source if source == EMBEDDED_SCORER else folder.name}:{weights[:12]}"


def likelihoods(
    run: Run, source: str = EMBEDDED_SCORER, *, on_progress: Callable[[int, int], None] = lambda *_: None
) -> dict[str, Score]:
    """The score of every text of a run by its `text_key`; missing scores are computed and stored in its folder."""
    scorer_name = scorer_id(source)
    score_of_key = {
        row["key"]: Score(row["nats"], row["tokens"])
        for row in _stored_rows(run.path / SCORES, "scorer", scorer_name)
    }
    missing = _unknown([row.text for row in run.samples if row.text is not None], score_of_key)
    if missing:
        add_scores(run.path / SCORES, scorer_name, load_scorer(source), missing, score_of_key, on_progress)
    return score_of_key


def add_scores(
    path: Path,
    scorer_name: str,
    scorer: Scorer,
    texts: Sequence[str],
    score_of_key: dict[str, Score],
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> None:
    """Add scores of texts to `score_of_key` and the file, in batches: a killed process loses at most one batch."""
    repair(path)
    for first in range(0, len(texts), BATCH_SIZE):
        batch = texts[first : first + BATCH_SIZE]
        # A text that is not valid Unicode is scored with replacement characters.
        scores = scorer.score([text.encode("utf-8", "replace").decode() for text in batch])
        rows = []
        for text, score in zip(batch, scores, strict=True):
            score_of_key[text_key(text)] = score
            rows.append({"scorer": scorer_name, "key": text_key(text), "nats": score.nats, "tokens": score.tokens})
        _add(path, rows)
        on_progress(min(first + BATCH_SIZE, len(texts)), len(texts))


def grammar_counts(
    run: Run, *, on_progress: Callable[[int, int], None] = lambda *_: None
) -> dict[str, GrammarCounts]:
    """The grammar judge's counts for every text of a sentence case, by `text_key`; empty without the judge.

    Missing counts are computed and stored in the run's folder.
    """
    path = run.path / GRAMMAR
    counts_of_key = {row["key"]: GrammarCounts(*row["counts"]) for row in _stored_rows(path)}
    texts = [row.text for row in run.samples if row.text and run.cases[row.case].kind == "sentence"]
    missing = _unknown(texts, counts_of_key) if grammar.available() else []
    repair(path)
    for first in range(0, len(missing), BATCH_SIZE):
        batch = missing[first : first + BATCH_SIZE]
        counts_of_batch = {
            text_key(text): GrammarCounts.of(verdicts)
            for text, verdicts in zip(batch, grammar.judge(batch), strict=True)
        }
        counts_of_key |= counts_of_batch
        _add(path, [{"key": key, "counts": astuple(counts)} for key, counts in counts_of_batch.items()])
        on_progress(first + len(batch), len(missing))
    return counts_of_key


def ratings(run: Run) -> dict[str, tuple[str, int]]:
    """The fluency ratings that a judge gave texts of this run, by `text_key`, each with the judge's name."""
    return {row["key"]: (row["judge"], row["fluency"]) for row in _stored_rows(run.path / FLUENCY)}


def ask_judge(
    run: Run,
    judge: Judge,
    texts_per_system: int = JUDGED,
    *,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> None:
    """Let a judge rate up to `texts_per_system` matching samples of every system, distributed over its cases.

    The ratings are stored with the run.
    """
    rated_keys = {row["key"] for row in _stored_rows(run.path / FLUENCY, "judge", judge.endpoint.model)}
    texts = [text for system in run.systems for text in to_be_judged(run.samples, system, texts_per_system)]
    missing = _unknown(texts, rated_keys)
    repair(run.path / FLUENCY)
    for first in range(0, len(missing), BATCH_SIZE // 8):
        batch = missing[first : first + BATCH_SIZE // 8]
        rated_texts = zip(batch, judge.ratings(batch), strict=True)
        rows = [
            {"judge": judge.endpoint.model, "key": text_key(text), "fluency": rating}
            for text, rating in rated_texts
            if rating is not None
        ]
        _add(run.path / FLUENCY, rows)
        on_progress(min(first + len(batch), len(missing)), len(missing))


def to_be_judged(samples: Sequence[SampleRow], system: str, texts_per_system: int) -> list[str]:
    """Up to `texts_per_system` matching texts of a system: the first text of every case, then the second …

    >>> from diffinity.bench.summary import example
    >>> to_be_judged(example().run.samples, "auto", 3)
    ['a y0', 'b y0', 'a y1']
    """
    valid = [row for row in samples if row.system == system and row.valid and row.text]
    ordered = sorted(enumerate(valid), key=lambda numbered: (numbered[1].index, numbered[0]))
    return [str(row.text) for _, row in ordered[:texts_per_system]]


def _unknown(texts: Sequence[str], known_keys: Mapping[str, object] | set[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text_key(text) not in known_keys]


def _add(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def _stored_rows(path: Path, field: str = "", value: str = "") -> list[dict[str, Any]]:
    """The complete lines of a file whose field has this value."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return [row for row in rows if not field or row[field] == value]
