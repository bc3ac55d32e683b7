"""Where embeddings start, against the neighbours that the tokens of a small grammar can have."""

from random import Random

import torch

from diffinity.training.embeddings import neighbour_embeddings

ARTICLES, ADJECTIVES, NOUNS, VERBS = range(1, 4), range(4, 12), range(12, 24), range(24, 32)


def sentences(n: int) -> torch.Tensor:
    rng = Random(0)
    kinds = (ARTICLES, ADJECTIVES, NOUNS, VERBS, ARTICLES, NOUNS)
    return torch.tensor([[rng.choice(kind) for kind in kinds] + [0, 0, 0] for _ in range(n)])


def test_words_of_a_class_lie_together_and_apart_from_the_others() -> None:
    near = neighbour_embeddings([sentences(4000)], vocab_size=32, dim=8, eos=0)
    assert torch.allclose(near.norm(dim=1), torch.ones(32))
    cosine = near @ near.T
    for kind in (ADJECTIVES, NOUNS, VERBS):
        rows = torch.tensor(kind)
        others = torch.tensor([t for t in range(1, 32) if t not in kind])
        within = cosine[rows][:, rows]
        assert within.mean() > cosine[rows][:, others].mean() + 0.4
        assert within[~torch.eye(len(rows), dtype=torch.bool)].max() < 0.9999  # and can be told apart


def test_the_same_text_gives_the_same_embeddings_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first = neighbour_embeddings([sentences(300)], 32, 8, 0, seed=1)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first, neighbour_embeddings([sentences(300)], 32, 8, 0, seed=1))


def test_more_numbers_than_tokens_is_no_error() -> None:
    assert neighbour_embeddings([sentences(10)], vocab_size=32, dim=64, eos=0).shape == (32, 64)


def test_a_large_vocabulary_needs_no_table_of_all_pairs() -> None:
    near = neighbour_embeddings([sentences(200) * 1500], vocab_size=50_000, dim=8, eos=0)  # 40 GB as a table
    assert torch.allclose(near.norm(dim=1), torch.ones(50_000), atol=1e-5)
