"""Masked and uniform noise on tokens: what holds for embeddings holds for them."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tokenizers import Tokenizer
from torch import Tensor

import diffinity as dy
from diffinity.batch import run_batch
from diffinity.bench.draws import word_tokenizer
from diffinity.models.markov import MarkovLM
from diffinity.models.protocol import Noise, TokenDiffusion
from diffinity.models.tokenization import train_bpe
from diffinity.models.transformer import MaskedLM, Transformer, TransformerConfig
from diffinity.processes.uniform import bridge, log_bridge
from diffinity.sampling import sample_particles
from tests.baselines.small_models import END, TOKENS, few_tokens

NOISES: tuple[Noise, ...] = ("mask", "uniform")
TEXTS = ["a b c", "a b", "b c a", "c", "b b c", "a c b", "a b c", "c c"]
LETTERS = "abc"


class Hashed(TokenDiffusion):
    """Random logits that depend on all tokens and on nothing else: a network that knows nothing."""

    eos_token_id = END

    def __init__(self, noise: Noise, size: int = 4, sharpness: float = 3.0) -> None:
        self.noise, self._size, self._sharpness = noise, size, sharpness
        self.calls: list[Tensor] = []

    @property
    def tokenizer(self) -> Tokenizer:
        return few_tokens(self._size)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @property
    def vocab_size(self) -> int:
        return self._size

    @property
    def mask_id(self) -> int:
        return self._size

    def logits(self, tokens: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        self.calls.append(tokens.clone())
        rows = []
        for ids in tokens.tolist():
            rng = np.random.default_rng([len(ids), *ids])
            rows.append(self._sharpness * rng.standard_normal((len(ids), self._size)))
        return torch.from_numpy(np.stack(rows)).float()


def random_pattern(rng: np.random.Generator, depth: int = 0) -> str:
    """A regular expression over a, b and c."""
    kind = rng.integers(6 if depth < 3 else 2)
    if kind == 0:
        return str(rng.choice(list(LETTERS)))
    if kind == 1:
        return f"[{''.join(sorted(set(rng.choice(list(LETTERS), 2))))}]"
    if kind == 2:
        return f"(?:{random_pattern(rng, depth + 1)}|{random_pattern(rng, depth + 1)})"
    if kind == 3:
        return f"(?:{random_pattern(rng, depth + 1)})" + str(rng.choice(["*", "+", "?", "{1,2}"]))
    return random_pattern(rng, depth + 1) + random_pattern(rng, depth + 1)


@pytest.mark.parametrize("noise", NOISES)
def test_five_hundred_random_constraints_are_always_satisfied(noise: Noise) -> None:
    model = Hashed(noise, size=9)  # with tokens of several letters
    rng, written = np.random.default_rng(7), 0
    methods = ["joint", "marginals", *(["dingo"] if noise == "mask" else [])]
    orders = ["confidence", "entropy", "random", "left-to-right", "ancestral"]
    while written < 500:
        pattern = random_pattern(rng)
        options: dict[str, Any] = {
            "guidance": str(rng.choice(methods)),
            "temperature": float(rng.choice([0, 0.5, 1])),
        }
        if noise == "mask":
            options |= {"order": str(rng.choice(orders)), "block_length": int(rng.integers(1, 9))}
        try:
            (text,) = dy.generate(
                model,
                dy.Regex(pattern),
                length=8,
                num_inference_steps=int(rng.integers(1, 9)),
                seed=written,
                **options,
            )
        except dy.InfeasibleConstraint:
            continue
        assert re.fullmatch(pattern, text.text), (pattern, text, options)
        assert text.satisfied
        written += 1


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("framing", ["exact", "eos", "eos_strict", "search"])
def test_every_framing_is_honoured(noise: Noise, framing: str) -> None:
    for text in dy.generate(
        Hashed(noise, 4), dy.Regex("(?:ab|c)+"), n=6, length=7, num_inference_steps=4, framing=framing
    ):
        assert text.satisfied
        shown = re.search if framing == "search" else re.fullmatch
        assert shown("(?:ab|c)+", text.text)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("options", [{}, {"particles": 3}, {"guidance": "marginals"}, {"guidance": "none"}])
def test_a_text_is_the_same_whatever_its_batch(noise: Noise, options: dict[str, Any]) -> None:
    model, constraint = Hashed(noise, sharpness=1.0), dy.Regex("[abc]{1,6}")
    whole = dy.generate(model, constraint, n=7, length=8, num_inference_steps=5, seed=3, **options)
    for size in (1, 3):
        parts = dy.generate(
            model, constraint, n=7, length=8, num_inference_steps=5, seed=3, batch_size=size, **options
        )
        assert [sample.tokens for sample in parts] == [sample.tokens for sample in whole]
    alone = dy.generate(model, constraint, seeds=[(3, 4)], length=8, num_inference_steps=5, **options)
    assert alone[0].tokens == whole[4].tokens
    assert len({sample.tokens for sample in whole}) > 1
    other = dy.generate(model, constraint, n=7, length=8, num_inference_steps=5, seed=4, **options)
    assert [sample.tokens for sample in other] != [sample.tokens for sample in whole]


@pytest.mark.parametrize("noise", NOISES)
def test_however_a_run_ends_its_text_satisfies(noise: Noise) -> None:
    write = dy.Generator(Hashed(noise), dy.Regex("(?:ab)+c"), length=8, num_inference_steps=8, order=None)
    event = threading.Event()
    event.set()
    for text in (
        *write(callback_on_step_end=lambda step, _: step == 2),
        *write(cancel=event),
        *write(deadline=0.0),
    ):
        assert re.fullmatch("(?:ab)+c", text.text)
    assert write(callback_on_step_end=lambda step, _: step == 2)[0].finish_reason == "stopped"
    assert write(cancel=event)[0].finish_reason == "cancelled"
    assert write(deadline=0.0)[0].finish_reason == "deadline"


@pytest.mark.parametrize("noise", NOISES)
def test_drafts_are_streamed_and_end_in_the_text(noise: Noise) -> None:
    write = dy.Generator(Hashed(noise), dy.Regex("[abc]+"), length=6, num_inference_steps=6, framing="exact")
    *drafts, text = write.stream(seed=2)
    assert [draft.step for draft in drafts if isinstance(draft, dy.Draft)] == list(range(1, 7))
    assert text == write(seed=2)[0]
    last = drafts[-1]
    assert isinstance(last, dy.Draft)
    assert isinstance(text, dy.Generated)
    assert last.texts[0] == text.text


def test_what_is_unmasked_stays() -> None:
    seen: list[Tensor] = []
    dy.generate(
        Hashed("mask"),
        dy.Regex("[abc]*"),
        length=9,
        num_inference_steps=5,
        framing="exact",
        callback_on_step_end=lambda _, state: seen.append(state.tokens[0]) or False,  # type: ignore[func-returns-value]
    )
    for before, after in pairwise(seen):
        stands = before >= 0
        assert bool((after[stands] == before[stands]).all())
    assert [int((tokens >= 0).sum()) for tokens in seen] == [2, 4, 6, 8, 9]


def test_blocks_are_finished_one_after_another() -> None:
    seen: list[Tensor] = []
    model = Hashed("mask")
    dy.generate(
        model,
        dy.Regex("[abc]*"),
        length=9,
        num_inference_steps=9,
        block_length=3,
        framing="exact",
        callback_on_step_end=lambda _, state: seen.append(state.tokens[0]) or False,  # type: ignore[func-returns-value]
    )
    for step, tokens in enumerate(seen):
        done = 3 * (step // 3)
        assert bool((tokens[:done] >= 0).all())
        assert bool((tokens[done + 3 :] == -1).all())


@pytest.mark.parametrize("block", [1, 2, 3, 8])
def test_a_model_that_sees_only_its_block_is_as_safe(block: int) -> None:
    model = Hashed("mask", size=9)
    model.canvas = "block"
    for pattern in ("(?:ab)+c", "a{7}|b{3}", "(?:abc|b)*", ".*é.*"):
        (text,) = dy.generate(model, dy.Regex(pattern), length=8, num_inference_steps=8, block_length=block)
        assert re.fullmatch(pattern, text.text)
    assert {tokens.shape[1] for tokens in model.calls} <= {min(k, 8) for k in range(block, 8 + block, block)}


def test_finished_texts_ask_the_network_no_more() -> None:
    model = Hashed("mask")
    dy.generate(model, dy.Text("a"), n=3, length=8, num_inference_steps=8, order="left-to-right")
    assert len(model.calls) == 2  # the letter and the end; what comes after does not matter
    model.calls.clear()
    dy.generate(model, dy.Text("a"), length=8, num_inference_steps=8, order="left-to-right", framing="eos_strict")
    assert len(model.calls) == 8


def markov(restart: float = 0.02) -> MarkovLM:
    return dy.fit_markov(TEXTS, order=2, tokenizer=word_tokenizer(TEXTS), restart=restart, embed_dim=8)


def exact_shares(model: MarkovLM, length: int) -> dict[tuple[int, ...], float]:
    """The probability of every string of tokens that has any."""
    strings = np.stack(np.meshgrid(*[np.arange(model.embedding.shape[0])] * length), -1).reshape(-1, length)
    return {tuple(ids): math.exp(model.log_p_text(ids)) for ids in strings.tolist()}


@pytest.mark.parametrize("noise", NOISES)
def test_posteriors_of_the_markov_model_are_exact(noise: Noise) -> None:
    model, length, t = markov(), 3, 0.6
    size = model.embedding.shape[0]
    tokens = torch.tensor([[1, size, 2] if noise == "mask" else [1, 3, 2]])
    emission = np.full((length, size), (t / size) if noise == "uniform" else 0.0)
    for k, token in enumerate(tokens[0].tolist()):
        if noise == "uniform":
            emission[k, token] += 1 - t
        elif token == size:
            emission[k] = 1.0
        else:
            emission[k, token] = 1.0
    wanted = np.zeros((length, size))
    for ids, share in exact_shares(model, length).items():
        wanted[range(length), ids] += share * emission[range(length), ids].prod()
    wanted /= wanted.sum(axis=1, keepdims=True)
    found = model.tokens(noise).logits(tokens, torch.tensor([t], dtype=torch.float64)).softmax(-1)[0]
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-9)


@pytest.mark.parametrize(
    ("noise", "options"),
    [
        ("mask", {"order": "random", "num_inference_steps": 4}),
        ("mask", {"order": "left-to-right", "num_inference_steps": 4}),
        ("mask", {"order": "ancestral", "num_inference_steps": 60}),
        ("mask", {"order": "random", "num_inference_steps": 3, "block_length": 2}),
        ("uniform", {"num_inference_steps": 60}),
    ],
)
def test_without_a_constraint_texts_have_the_exact_distribution(noise: Noise, options: dict[str, Any]) -> None:
    model, length, n = markov(), 3, 600
    expected = exact_shares(model, length)
    texts = dy.generate(
        model.tokens(noise),
        n=n,
        length=length,
        guidance="none",
        decode="argmax",
        framing="exact",
        batch_size=n,
        seed=1,
        **options,
    )
    seen = Counter(text.tokens for text in texts)
    likely = {ids: share for ids, share in expected.items() if share * n >= 5}
    counts = [seen[ids] for ids in likely]
    rest = n - sum(counts)
    shares = np.array([*likely.values(), 1 - sum(likely.values())])
    assert chisquare([*counts, rest], shares * n).pvalue > 1e-3


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("pattern", ["a.*", ".*c"])
def test_evidence_is_the_probability_of_the_language(noise: Noise, pattern: str) -> None:
    """Unbiased with one position at a time; of uniform noise up to what finitely many steps change."""
    model = markov()
    automaton = dy.align(dy.Regex(pattern), dy.Vocabulary.from_tokenizer(model.tokenizer))
    wanted = float(model.log_acceptance(automaton, length=4).exp())
    steps, slack = (4, 0.0) if noise == "mask" else (32, 0.08)
    run = sample_particles(model.tokens(noise), [automaton] * 40, 6, 4, num_inference_steps=steps)
    estimates = run.log_evidence.exp()
    error = float(estimates.std()) / math.sqrt(40)
    assert error < 0.1 * wanted
    assert float(estimates.mean()) == pytest.approx(wanted, abs=4 * error + slack * wanted)
    assert all(automaton.accepts(ids) for ids in run.tokens.tolist())


@pytest.mark.parametrize("noise", NOISES)
def test_bias_goes_away_with_more_particles(noise: Noise) -> None:
    model, pattern, n = markov(), ".*c", 150 if noise == "mask" else 80
    automaton = dy.align(dy.Regex(pattern), dy.Vocabulary.from_tokenizer(model.tokenizer))
    shares = {ids: share for ids, share in exact_shares(model, 4).items() if automaton.accepts(ids)}
    total = sum(shares.values())
    off = []
    for k in (1, 8):
        run = sample_particles(
            model.tokens(noise), [automaton] * n, k, 4, num_inference_steps=4 if noise == "mask" else 12
        )
        seen = Counter(map(tuple, run.tokens.tolist()))
        off.append(0.5 * sum(abs(seen[ids] / n - share / total) for ids, share in shares.items()))
    assert off[1] < 0.28  # so few exact draws show 0.14 and 0.19
    assert off[1] < off[0]


@pytest.mark.parametrize(("t", "s"), [(1.0, 0.7), (0.6, 0.3), (0.2, 0.1)])
def test_a_uniform_move_has_the_distribution_of_the_bridge(t: float, s: float) -> None:
    size, n, rng = 5, 20_000, np.random.default_rng(0)
    for now, clean in ((1, 1), (1, 3)):
        nows, cleans = np.full(n, now), np.full(n, clean)
        moved = bridge(nows, cleans, t, s, size, rng.random(n), rng.random(n))
        shares = np.exp(log_bridge(np.arange(size), np.full(size, now), np.full(size, clean), t, s, size))
        assert shares.sum() == pytest.approx(1.0)
        assert chisquare(np.bincount(moved, minlength=size), shares * n).pvalue > 1e-3


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Hashed("mask"), {"guidance": "gradient"}, "guidance of a Hashed must be one of auto, joint"),
        (Hashed("uniform"), {"guidance": "dingo"}, "guidance of a Hashed must be one of auto, joint, marginals"),
        (Hashed("uniform"), {"order": "random"}, "order is an option of a model with masked noise"),
        (Hashed("mask"), {"method": "ddim"}, "method is an option of a model of embeddings"),
        (Hashed("mask"), {"prompt": "hello"}, "a Hashed reads no prompt"),
        (Hashed("mask"), {"order": "backwards"}, "order must be one of confidence"),
        (Hashed("mask"), {"particles": 2, "guidance": "dingo"}, "particles are proposed by 'joint'"),
        (Hashed("mask"), {"cfg_scale": 1.0}, "cfg_scale needs a prompt"),
        (dy.fit_markov(["a"]), {"temperature": 0.5}, "temperature is an option of a model of tokens"),
    ],
)
def test_what_a_model_can_not_do_is_refused_by_name(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=message):
        dy.generate(model, dy.Regex("a"), length=4, **options)


def test_a_prompt_is_read_and_not_written() -> None:
    model = markov(0.001).tokens("mask")
    (text,) = dy.generate(
        model, dy.Regex(" ?[abc ]*"), prompt="a b", length=4, num_inference_steps=4, temperature=0
    )
    assert not text.text.startswith("a b")
    assert text.text in ("", " c")  # what follows "a b" in the chain


def test_temperature_zero_is_greedy_and_the_same_for_every_seed() -> None:
    model = Hashed("mask")
    texts = dy.generate(model, dy.Regex("[abc]+"), n=4, length=8, num_inference_steps=4, temperature=0)
    assert len({text.tokens for text in texts}) == 1


def test_tokens_of_several_letters_and_bytes_spell_the_text() -> None:
    for noise in NOISES:
        (text,) = dy.generate(Hashed(noise, 9), dy.Regex("é+(?:abc)?"), length=8, num_inference_steps=8)
        assert re.fullmatch("é+(?:abc)?", text.text)
    assert TOKENS[8] == "abc"


def test_the_embedded_masked_model_is_loaded_and_obeys() -> None:
    folder = dy.models.loading.EMBEDDED.with_name("masked")
    if not folder.is_dir():
        pytest.skip("this version has no embedded masked model")
    (text,) = dy.generate(dy.load(folder), dy.Regex("The [a-z ]+ sat."), length=12, num_inference_steps=6)
    assert re.fullmatch("The [a-z ]+ sat.", text.text)


def test_a_batch_file_of_a_masked_model_goes_on_where_it_ended(tmp_path: Path) -> None:
    network = Transformer(TransformerConfig(257, dim=8, n_blocks=1, n_heads=1, causal=False))
    folder = tmp_path / "model"
    MaskedLM(network, train_bpe(["a"], 257), eos_token_id=0).save_pretrained(folder)
    requests = [{"regex": "[ab]{2}", "length": 4, "steps": 2, "seed": i, "order": "random"} for i in range(4)]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(request) + "\n" for request in requests))
    assert run_batch(source, out, str(folder)).errors == 0
    whole = out.read_bytes()
    assert all(re.fullmatch("[ab]{2}", json.loads(line)["texts"][0]) for line in whole.splitlines())
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert run_batch(source, out, str(folder)).resumed == 2
    assert out.read_bytes() == whole


def test_sample_is_for_embeddings_and_says_what_to_use() -> None:
    with pytest.raises(dy.InvalidArgument, match="a Hashed is a model of tokens: use dy"):
        dy.sample(Hashed("mask"))  # type: ignore[arg-type]
