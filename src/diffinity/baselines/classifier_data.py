"""Training texts for a classifier: positives and negatives for a constraint, all similar to the model's texts.

Uniform strings of an automaton do not resemble text, and a classifier would only learn to distinguish them from
text. So every example starts as a sample of the model, is noised, and is drawn again from the denoiser's
distributions: given acceptance by the constraint (a positive, exactly), given acceptance by another constraint, or
without a constraint. Near misses are positives with one word or token changed so that they violate the constraint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance import decode
from diffinity.alignment import TokenAutomaton, Vocabulary, align
from diffinity.alignment.vocabulary import before_end
from diffinity.constraints.base import Constraint
from diffinity.errors import ConstraintError, UnsupportedConstraint
from diffinity.models.protocol import DiffusionLM
from diffinity.models.schedule import NoiseLevel
from diffinity.sampling import sample

# Times, noisy to clean. The draw at the first time fits the text to the constraint, the later draws repair it.
REDRAWN_AT = (0.75, 0.5, 0.25)
SHARPER = 1.5  # factor on the logits: independent draws per position are more random than the model's texts
HELD_OUT = 0.25  # share of the model's samples; the texts derived from them are held out too
ROUNDS = 2  # over all words of a text, to find a near miss
PASS = 64  # sequences per network call


@dataclass(frozen=True)
class Examples:
    """Token sequences with labels; held-out sequences share no sample of the model with the others."""

    tokens: Tensor  # (N, L)
    label: NDArray[np.bool_]  # (N,)
    near: NDArray[np.bool_]  # (N,) whether it is a near miss
    held_out: NDArray[np.bool_]  # (N,)

    def where(self, chosen: NDArray[np.bool_]) -> Examples:
        """The examples selected by `chosen` (N,)."""
        rows = torch.from_numpy(np.flatnonzero(chosen)).to(self.tokens.device)
        return Examples(self.tokens[rows], self.label[chosen], self.near[chosen], self.held_out[chosen])


@dataclass(frozen=True)
class Pool:
    """The shared data of all classifiers: samples, and texts for other constraints or for none."""

    samples: Tensor  # (M, L)
    texts: Tensor  # (N, L)
    origin: NDArray[np.int64]  # (N,) the sample that a text was derived from


def own_samples(model: DiffusionLM, n: int, length: int, steps: int, seed: int = 0) -> Tensor:
    """`n` unguided samples of the model, (n, length).

    >>> import diffinity as dy
    >>> own_samples(dy.fit_markov(["a cat.", "a dog."]), n=3, length=4, steps=4).shape
    torch.Size([3, 4])
    """
    parts = [
        sample(model, min(PASS, n - i), length, num_inference_steps=steps, seed=seed, first_index=i).tokens
        for i in range(0, n, PASS)
    ]
    return torch.cat(parts)


def redraw(
    model: DiffusionLM, tokens: Tensor, automaton: TokenAutomaton | None, generator: torch.Generator
) -> Tensor:
    """Texts (N, L) similar to `tokens` (N, L): noised and drawn again, given acceptance if there is an automaton.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a cat.", "a dog."])
    >>> vocabulary = Vocabulary.from_tokenizer(model.tokenizer, model.eos_token_id)
    >>> tokens = own_samples(model, n=2, length=5, steps=4)
    >>> drawn = redraw(model, tokens, align(dy.Text("a dog."), vocabulary), torch.Generator().manual_seed(0))
    >>> dy.texts(model, drawn)
    ['a dog.', 'a dog.']
    """
    parts = [_redraw(model, tokens[i : i + PASS], automaton, generator) for i in range(0, len(tokens), PASS)]
    return torch.cat(parts)


@torch.no_grad()
def _redraw(
    model: DiffusionLM, tokens: Tensor, automaton: TokenAutomaton | None, generator: torch.Generator
) -> Tensor:
    for t in REDRAWN_AT:
        noise_level = model.noise_level(
            torch.full((tokens.shape[0],), t, dtype=torch.float64, device=model.device)
        )
        z = noise(model, tokens, noise_level, generator)
        logits = SHARPER * model.denoise(z, noise_level.to(model.dtype), torch.zeros_like(z))
        last = t == REDRAWN_AT[-1]
        if automaton is not None:
            seed = int(torch.randint(2**62, (), generator=generator))
            tokens = decode(logits, automaton, "best" if last else "sample", logits=True, seed=seed).tokens
        elif last:
            tokens = logits.argmax(dim=-1)
        else:
            flat = logits.softmax(dim=-1).flatten(0, 1).cpu()
            tokens = torch.multinomial(flat, 1, generator=generator).view(tokens.shape).to(tokens.device)
    return tokens


def noise(model: DiffusionLM, tokens: Tensor, noise_level: Tensor, generator: torch.Generator) -> Tensor:
    """z = α·E[x] + σ·ε (N, L, d) for tokens (N, L) at noise levels (N,), in the model's type.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a cat."], embed_dim=8)
    >>> noise(model, torch.zeros(2, 4, dtype=torch.long), torch.zeros(2), torch.Generator()).shape
    torch.Size([2, 4, 8])
    """
    level = NoiseLevel(noise_level.double()[:, None, None])
    x = model.embedding[tokens].double()
    epsilon = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device)
    return (level.alpha * x + level.sigma * epsilon).to(model.dtype)


def make_pool(
    model: DiffusionLM,
    vocabulary: Vocabulary,
    samples: Tensor,
    others: Sequence[Constraint],
    n: int,
    seed: int,
) -> Pool:
    """At least `n` texts: half without a constraint, the rest in equal parts under each of `others`.

    Guidance starts from unconstrained texts, so they are half of the pool. Constraints that are too large, or that
    no text of this length satisfies, are left out.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a cat.", "a dog."])
    >>> vocabulary = Vocabulary.from_tokenizer(model.tokenizer, model.eos_token_id)
    >>> samples = own_samples(model, n=2, length=5, steps=4)
    >>> make_pool(model, vocabulary, samples, [dy.Text("a dog."), dy.Text("x" * 99)], n=4, seed=0).texts.shape
    torch.Size([4, 5])
    """
    automata: list[TokenAutomaton] = []
    for other in others:
        try:
            automaton = align(other, vocabulary, "eos")
            automaton.check_feasible(samples.shape[1])
        except ConstraintError:
            continue
        automata.append(automaton)
    n_free = -(-n // 2) if automata else n
    groups: list[tuple[TokenAutomaton | None, int]] = [(None, n_free)]
    groups += [(automaton, -(-n_free // len(automata))) for automaton in automata]
    generator = torch.Generator().manual_seed(seed)
    origin = np.arange(sum(size for _, size in groups)) % len(samples)
    samples_of_groups = torch.split(samples[torch.from_numpy(origin)], [size for _, size in groups])
    texts = [
        redraw(model, tokens, automaton, generator)
        for (automaton, _), tokens in zip(groups, samples_of_groups, strict=True)
    ]
    return Pool(samples, torch.cat(texts), origin)


def make_examples(
    model: DiffusionLM, vocabulary: Vocabulary, constraint: Constraint, pool: Pool, positives: int, seed: int
) -> Examples:
    """`positives` texts that satisfy the constraint, a near miss of each if one is found, and the pool's texts.

    Raises `InfeasibleConstraint` if no text of this length satisfies the constraint, and `UnsupportedConstraint`
    if no text was found that fails it.
    """
    length, m = pool.samples.shape[1], pool.samples.shape[0]
    automaton = align(constraint, vocabulary, "eos")
    automaton.check_feasible(length)
    generator = torch.Generator().manual_seed(seed)
    origin = np.arange(positives) % m
    positives_drawn = redraw(model, pool.samples[torch.from_numpy(origin)], automaton, generator)
    rng = np.random.default_rng((seed, 2))
    donors = pool.texts.tolist()
    candidates = [near_miss(ids, constraint, vocabulary, donors, rng) for ids in positives_drawn.tolist()]
    near = [(i, ids) for i, ids in enumerate(candidates) if ids is not None]
    negatives = [i for i, ids in enumerate(donors) if not satisfies(ids, constraint, vocabulary)]
    if not near and not negatives:
        raise UnsupportedConstraint(
            "no text was found that fails the constraint: a classifier has nothing to tell apart"
        )
    near_misses = torch.tensor(
        [ids for _, ids in near], dtype=positives_drawn.dtype, device=positives_drawn.device
    ).reshape(-1, length)
    sizes = (positives, len(near), len(negatives))
    origins = np.concatenate([origin, origin[[i for i, _ in near]], pool.origin[negatives]]).astype(np.int64)
    return Examples(
        tokens=torch.cat([positives_drawn, near_misses, pool.texts[negatives]]),
        label=np.repeat([True, False, False], sizes),
        near=np.repeat([False, True, False], sizes),
        held_out=origins >= m - max(1, round(HELD_OUT * m)),
    )


def most_informative_tokens(examples: Examples, vocab_size: int, k: int) -> tuple[int, ...]:
    """The k tokens whose presence differs most between positives and negatives, most informative first.

    >>> labels = np.array([True, True, False, False])
    >>> one = Examples(torch.tensor([[2, 1], [2, 0], [0, 1], [1, 0]]), labels, ~labels, ~labels)
    >>> most_informative_tokens(one, vocab_size=4, k=2)
    (2, 0)
    """
    present = np.zeros((examples.tokens.shape[0], vocab_size), np.bool_)
    present[np.arange(examples.tokens.shape[0])[:, None], examples.tokens.cpu().numpy()] = True
    rates = [
        (present[examples.label == kind].sum(axis=0) + 0.5) / ((examples.label == kind).sum() + 1)
        for kind in (0, 1)
    ]
    overall_rate = present.mean(axis=0).clip(1e-3, 1 - 1e-3)
    z_score = (rates[1] - rates[0]) / np.sqrt(overall_rate * (1 - overall_rate))
    return tuple(np.argsort(-np.abs(z_score), kind="stable")[:k].tolist())


def satisfies(ids: Sequence[int], constraint: Constraint, vocabulary: Vocabulary) -> bool:
    """Whether the text before the first end token satisfies the constraint.

    >>> import diffinity as dy
    >>> satisfies([0, 1, 0], dy.Text("a"), Vocabulary([b"a", None], eos_id=1))
    True
    """
    return constraint.accepts(vocabulary.spell(before_end(ids, vocabulary.eos_id)))


def near_miss(
    ids: Sequence[int],
    constraint: Constraint,
    vocabulary: Vocabulary,
    donors: Sequence[Sequence[int]],
    rng: np.random.Generator,
) -> list[int] | None:
    """The token sequence with one word replaced, deleted or swapped, or one token replaced, so that it fails.

    None if no such change was found. A word is a token that begins with white space and the tokens up to the next
    word.

    >>> import diffinity as dy
    >>> vocabulary = Vocabulary([b"a", b" b", b" c", None], eos_id=3)
    >>> near_miss([0, 1, 3, 3], dy.Text("a b"), vocabulary, [[0, 2, 3, 3]], np.random.default_rng(0)) is None
    False
    """
    text, end = before_end(ids, vocabulary.eos_id), vocabulary.eos_id
    words = _words(text, vocabulary)
    for word_index in np.concatenate([rng.permutation(len(words)) for _ in range(ROUNDS)]):
        changed = _changed(words, int(word_index), vocabulary, donors[int(rng.integers(len(donors)))], rng)
        # The text itself must fail, not only lack its end token, so it must not fill the last position.
        if len(changed) < len(ids) and not constraint.accepts(vocabulary.spell(changed)):
            padding = ids[len(text) :]
            return [*changed, *padding, *([end] * len(ids) if end is not None else padding)][: len(ids)]
    return None


def _words(text: Sequence[int], vocabulary: Vocabulary) -> list[list[int]]:
    words: list[list[int]] = []
    for token in text:
        if not words or (vocabulary.tokens[token] or b"x")[:1].isspace():
            words.append([])
        words[-1].append(token)
    return words


def _changed(
    words: list[list[int]],
    word_index: int,
    vocabulary: Vocabulary,
    donor: Sequence[int],
    rng: np.random.Generator,
) -> list[int]:
    """The tokens with a change at word `word_index`; new words and tokens come from the donor's text."""
    kind = rng.choice(["replace", "delete", "swap", "token"])
    donor_words = _words(before_end(donor, vocabulary.eos_id), vocabulary)
    left, word, right = words[:word_index], words[word_index], words[word_index + 1 :]
    if kind == "swap" and right:
        changed = [*left, right[0], word, *right[1:]]
    elif kind == "replace" and donor_words:
        changed = [*left, donor_words[rng.integers(len(donor_words))], *right]
    elif kind == "token" and donor_words:
        new_token, position = donor_words[rng.integers(len(donor_words))][0], rng.integers(len(word))
        changed = [*left, [*word[:position], new_token, *word[position + 1 :]], *right]
    else:
        changed = [*left, *right]
    return [token for word in changed for token in word]
