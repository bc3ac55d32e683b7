"""The fidelity studies: their truth against enumeration, their distances against simulation, their rows."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import diffinity as dy
from diffinity.alignment import TokenAutomaton
from diffinity.bench import fidelity, fight_club
from diffinity.bench.draws import Draws, drawn, masked_autoregressive, word_tokenizer
from diffinity.bench.fidelity import OTHER, conditional, expected_total_variation, total_variation
from diffinity.constraints import Constraint
from diffinity.models.markov import MarkovLM
from diffinity.models.protocol import text_of

TEXTS = ["a b c", "a b", "b c a", "c", "b b c", "a c b"]
TINY = fidelity.Study(samples=6, steps=4, pool=30, scales=(1.0,), particles=(("posterior", (1, 2)),))


def small_model(restart: float = 0.05) -> MarkovLM:
    return dy.fit_markov(TEXTS, order=2, tokenizer=word_tokenizer(TEXTS), restart=restart, embed_dim=8)


def aligned(model: MarkovLM, constraint: Constraint) -> TokenAutomaton:
    return dy.align(constraint, dy.Vocabulary.from_tokenizer(model.tokenizer))


def enumerated(model: MarkovLM, automaton: TokenAutomaton, length: int) -> tuple[float, dict[str, float]]:
    """P(L) and p(text | L) from the probability of every token string there is."""
    found: Counter[str] = Counter()
    for ids in itertools.product(range(model.embedding.shape[0]), repeat=length):
        if automaton.accepts(ids):
            found[text_of(model, list(ids))] += math.exp(model.log_p_text(ids))  # type: ignore[assignment]
    total = sum(found.values())
    return total, {text: share / total for text, share in found.items() if share > 0}


@pytest.mark.parametrize("pattern", ["a.*", ".*c", "(a|b)( [abc])?"])
def test_the_truth_is_that_of_enumeration(pattern: str) -> None:
    model = small_model()
    automaton = aligned(model, dy.Regex(pattern))
    p_language, every = enumerated(model, automaton, 4)
    found_p, found = conditional(model, automaton, 4, smallest=0.01)
    assert found_p == pytest.approx(p_language)
    listed = {text: share for text, share in every.items() if share >= 0.01}
    assert found.keys() - {OTHER} >= listed.keys()
    for text in found.keys() - {OTHER}:
        assert found[text] == pytest.approx(every[text])
    assert sum(found.values()) == pytest.approx(1.0)
    assert found[OTHER] < 0.1


def test_expected_distance_is_that_of_simulation() -> None:
    truth = {"a": 0.55, "b": 0.3, "c": 0.1499, "d": 0.0001}
    rng = np.random.default_rng(0)
    shares = rng.multinomial(50, list(truth.values()), size=20_000) / 50
    simulated = 0.5 * np.abs(shares - list(truth.values())).sum(axis=1).mean()
    assert expected_total_variation(truth, 50) == pytest.approx(simulated, rel=0.01)


def test_distance_counts_what_the_truth_does_not_know() -> None:
    assert total_variation({"a": 1, "x": 1}, {"a": 1.0}) == pytest.approx(0.5)
    assert total_variation({"x": 4}, {"a": 0.25, "b": 0.75}) == pytest.approx(1.0)


def test_draws_follow_their_shares() -> None:
    share = np.array([[0.0, 2.0, 0.0, 6.0, 0.0]])
    points = (np.arange(4000) + 0.5) / 4000
    found = np.bincount(drawn(np.repeat(share, 4000, axis=0), points), minlength=5)
    assert found.tolist() == [0, 1000, 0, 3000, 0]


def test_masked_decoding_chooses_the_first_word_by_its_own_probability() -> None:
    """Of the six texts three start with a, two with b; that only one of b's goes on to "b b" is not looked at."""
    model = small_model(restart=0.0)
    automaton = aligned(model, dy.Regex("a.*|b b.*"))
    found = masked_autoregressive(model, automaton, 4000, 5, seed=0)
    texts = Counter(text_of(model, ids) for ids in found.tolist())
    assert all(automaton.accepts(ids) for ids in found.tolist())
    assert sum(texts[text] for text in texts if text.startswith("a")) / 4000 == pytest.approx(0.6, abs=0.03)
    assert texts["b b c"] / 4000 == pytest.approx(0.4, abs=0.03)  # the truth is 1 in 4
    assert conditional(model, automaton, 5)[1]["b b c"] == pytest.approx(0.25)


def test_masked_decoding_goes_on_where_the_model_would_not() -> None:
    model = small_model(restart=0.0)
    automaton = aligned(model, dy.Regex("c( [abc])+"))  # the model never writes anything after c at the start
    assert all(automaton.accepts(ids) for ids in masked_autoregressive(model, automaton, 50, 5).tolist())
    first = masked_autoregressive(model, automaton, 3, 5)
    assert first.tolist() == masked_autoregressive(model, automaton, 50, 5)[:3].tolist()


def test_rows_are_the_same_for_the_same_seed() -> None:
    study = replace(TINY, methods=("posterior", "path"), constraints=("first word",))
    told: list[str] = []
    first = [{**row, "seconds": 0} for row in fidelity.measure(study, told.append)]
    two = [{**row, "seconds": 0} for row in fidelity.measure(study)]
    assert first == two
    assert [(row["method"], row["scale"], row["K"]) for row in first] == [
        ("rejection", None, None),
        ("decoding", None, None),
        ("autoregressive", None, None),
        ("posterior", 1.0, None),
        ("path", 1.0, None),
        ("particles (posterior)", 1.0, 1),
        ("particles (posterior)", 1.0, 2),
    ]
    assert all(row["n"] == 6 and 0 <= row["tv"] <= 1 and row["tv_floor"] > 0 for row in first)
    assert told


def test_particles_come_closer_to_the_truth_than_their_proposal() -> None:
    model = fidelity.study_model()
    draws = Draws(model, length=8, steps=24)
    automaton = aligned(model, fidelity.study_constraints()["two words"])
    _, truth = conditional(model, automaton, 8)

    def distance(k: int) -> float:
        tokens = draws.by_particles(automaton, 150, k).tokens.tolist()
        texts = (text_of(model, ids) for ids in tokens)
        return total_variation(Counter(text if text in truth else OTHER for text in texts), truth)

    assert distance(1) > 0.3
    assert distance(12) < 0.15


def test_the_papers_guidance_is_the_gradient_for_a_model_without_self_conditioning() -> None:
    model = small_model()
    draws = Draws(model, length=5, steps=12)
    automaton = aligned(model, dy.Regex(".*c"))
    paper, gradient = (draws.guided(automaton, 5, method, 2.5).tolist() for method in ("paper", "gradient"))
    assert paper == gradient
    with pytest.raises(dy.InvalidArgument, match="posterior, gradient"):
        draws.guided(automaton, 1, "nothing", 1.0)


@pytest.mark.parametrize("name", list(fight_club.REGEXES))
def test_the_true_share_is_that_of_the_texts(name: str) -> None:
    model = fight_club.club_model()
    constraint = fight_club.constraints()[name]
    _, truth = conditional(model, aligned(model, constraint), 10, smallest=1e-6)
    wanted = sum(share for text, share in truth.items() if text.startswith("The "))
    assert fight_club.true_share(model, constraint, 10) == pytest.approx(wanted, abs=2e-3)


def test_the_share_of_any_model_is_estimated_by_particles() -> None:
    model = fight_club.club_model()
    constraint = fight_club.constraints()["one subject"]
    share, error = fight_club.estimated_share(Draws(model, length=10, steps=48), constraint, n=16, k=16)
    assert 0 < error < 0.15
    assert share == pytest.approx(fight_club.true_share(model, constraint, 10), abs=2 * error)


def test_masked_decoding_gets_the_share_of_the_wrong() -> None:
    """P(The) / (P(The) + P(It)) = 45/72 of the corpus, whatever the regex says of what follows."""
    rows = list(fight_club.measure(fight_club.Study(samples=2000, steps=2, pool=2, guided=(), particles=())))
    masked = [row for row in rows if row["system"] == "autoregressive"]
    assert [row["regex"] for row in masked] == list(fight_club.REGEXES)
    assert all(row["share_the"] == pytest.approx(45 / 72, abs=0.045) for row in masked)
    assert all(row["satisfied"] == row["n"] == 2000 for row in masked)


class Fixed:
    """Writes what it is told to, but can't do one of the regexes."""

    name = "fixed"

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        if constraint == fight_club.constraints()["one rule"]:
            raise dy.UnsupportedConstraint("not this one")
        return (["The man starts Fight Club.", "It is dark.", "He is tired."] * n)[:n]


def test_texts_of_any_system_are_counted() -> None:
    both, rule, subject = fight_club.measure_systems([Fixed()], n=6, length=10)
    assert (both["share_the"], both["started"], both["satisfied"], both["n"]) == (0.5, 4, 2, 6)
    assert rule["n"] == 0
    assert math.isnan(rule["share_the"])
    assert subject["true_share"] is None


def test_the_command_lines_write_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    fidelity.main(["--quick", "--samples", "2", "--steps", "2", "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["constraint"] for row in rows} == set(fidelity.QUICK.constraints)
    fight_club.main(["--quick", "--samples", "2", "--steps", "2", "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["regex"] for row in rows} == set(fight_club.REGEXES)
    printed = capsys.readouterr().out
    assert fight_club.table(rows) in printed
    assert "| exact draws (expected) |" in printed


def test_the_systems_of_the_registry_are_counted_beside_the_estimated_truth(tmp_path: Path) -> None:
    fight_club.club_model().save_pretrained(tmp_path / "model")
    out = tmp_path / "rows.jsonl"
    sizes = ["--samples", "2", "--steps", "6", "--length", "10"]
    fight_club.main(["--systems", "path", "--diffusion", str(tmp_path / "model"), *sizes, "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["system"] for row in rows] == ["path"] * 3
    assert all(0 < row["true_share"] < 1 and row["satisfied"] == 2 for row in rows)
