"""LangFlow as a model like any other: files, guidance, framings, WordPiece."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

import diffinity as dy
from diffinity.guidance.base import DenoisingStep
from diffinity.guidance.presets import named_guidance
from diffinity.models.langflow_lm import LangFlowLM
from diffinity.models.schedule import NoiseLevel
from tests.models.langflow_fixture import random_modules, small_langflow


@pytest.fixture(scope="module")
def model() -> LangFlowLM:
    return small_langflow()


def inputs(model: LangFlowLM, batch: int = 2, length: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    z, x = torch.randn(2, batch, length, model.config.hidden_size, generator=generator)
    return z, torch.linspace(3.0, 9.0, batch), x


def test_a_model_read_back_computes_the_same(model: LangFlowLM, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "model")
    loaded = dy.load(tmp_path / "model")
    assert isinstance(loaded, LangFlowLM)
    assert torch.equal(loaded.denoise(*inputs(model)), model.denoise(*inputs(model)))
    assert (loaded.start_token_id, loaded.eos_token_id) == (model.start_token_id, model.eos_token_id)
    assert (loaded.config, loaded.sampling_defaults) == (model.config, model.sampling_defaults)
    again = LangFlowLM.from_pretrained(tmp_path / "model")
    assert torch.equal(again.embedding, model.embedding)


def test_an_imported_model_read_back_computes_the_same(langflow_fixtures: Path, tmp_path: Path) -> None:
    imported = dy.load(langflow_fixtures)
    imported.save_pretrained(tmp_path / "model")
    loaded = dy.load(tmp_path / "model")
    assert isinstance(imported, LangFlowLM)
    assert torch.equal(loaded.denoise(*inputs(imported)), imported.denoise(*inputs(imported)))
    t = torch.linspace(0, 1, 9)
    assert torch.equal(loaded.noise_level(t), imported.noise_level(t))


@pytest.mark.parametrize("guidance", ["gradient", "auto", "path"])
def test_texts_do_not_depend_on_the_batch(model: LangFlowLM, guidance: str) -> None:
    options = {"n": 4, "length": 16, "num_inference_steps": 8, "guidance": guidance, "decode": "argmax"}
    whole = dy.generate(model, dy.Regex("the [a-z ]+"), batch_size=4, **options)  # type: ignore[arg-type]
    alone = dy.generate(model, dy.Regex("the [a-z ]+"), batch_size=1, **options)  # type: ignore[arg-type]
    assert [(text.tokens, text.log_p_text) for text in alone] == [(text.tokens, text.log_p_text) for text in whole]


def test_without_context_the_gradient_is_the_closed_form(model: LangFlowLM) -> None:
    """Where the network adds nothing, J is (α/σ²)·E alone, so that gradient and posterior guidance agree."""
    modules = random_modules(model.config)
    torch.nn.init.zeros_(modules.backbone.output_layer.linear.weight)
    torch.nn.init.zeros_(modules.backbone.output_layer.linear.bias)
    bare = LangFlowLM(modules, model.tokenizer, model.eos_token_id, start_token_id=model.start_token_id)
    vocabulary = dy.Vocabulary.from_tokenizer(bare.tokenizer, bare.eos_token_id, bare.start_token_id)
    automaton = dy.align(dy.Regex("the [a-z ]+"), vocabulary)
    z, _, _ = inputs(bare, batch=1, length=8)
    step = DenoisingStep(z.double(), NoiseLevel(torch.tensor(4.0, dtype=torch.float64)), torch.zeros_like(z), 0, 1)
    shifts = []
    for name in ("gradient", "posterior"):
        guidance = named_guidance(name, [automaton], 1.0)
        assert guidance is not None
        shifts.append(guidance.predict(bare, step).shift)
    gradient, posterior = shifts
    assert gradient is not None
    assert posterior is not None
    assert float(gradient.abs().max()) > 0.1
    assert torch.allclose(gradient, posterior, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["ancestral", "ddim"])
@pytest.mark.parametrize("guidance", ["auto", "gradient", "posterior", "path"])
def test_texts_stand_between_start_and_end_token(model: LangFlowLM, method: str, guidance: str) -> None:
    found = dy.generate(
        model,
        dy.Regex("the [a-z ]+"),
        n=2,
        length=16,
        num_inference_steps=6,
        method=method,
        guidance=guidance,
    )
    for text in found:
        assert text.satisfied
        assert text.text.startswith("the ")
        assert text.tokens[0] == model.start_token_id
        assert model.eos_token_id in text.tokens[1:]
        assert "endoftext" not in text.text


def test_a_text_may_fill_the_window(model: LangFlowLM) -> None:
    (found,) = dy.generate(model, dy.Regex("the [a-z ]+"), length=12, num_inference_steps=4, framing="exact")
    assert found.tokens[0] == model.start_token_id
    assert found.text == model.tokenizer.decode(list(found.tokens[1:]), skip_special_tokens=False)
    assert dy.Regex("the [a-z ]+").accepts(found.text)


def test_a_match_may_stand_anywhere_after_the_start(model: LangFlowLM) -> None:
    (found,) = dy.generate(model, dy.Regex("river"), length=12, num_inference_steps=4, framing="search")
    assert found.tokens[0] == model.start_token_id
    assert "river" in found.text


def test_free_samples_are_read_without_their_start_token(model: LangFlowLM) -> None:
    ids = model.tokenizer.encode("a dog").ids
    tokens = torch.tensor([[model.start_token_id, *ids, model.eos_token_id, *ids]])
    assert dy.texts(model, tokens) == ["a dog"]


def test_a_trace_and_its_drafts_leave_the_start_token_out(model: LangFlowLM) -> None:
    from diffinity.trace import Pieces

    pieces, ids = Pieces(model), model.tokenizer.encode("a dog").ids
    shown = pieces.before_end([model.eos_token_id or 0, *ids, model.eos_token_id or 0, *ids])
    spelled = pieces.spelled(shown)
    assert "".join(pieces.texts[number] for number, _ in spelled) == "a dog"
    assert sum(size for _, size in spelled) == len(ids) + 1


def test_the_variational_bound_is_finite(model: LangFlowLM) -> None:
    tokens = torch.tensor([[model.start_token_id, *model.tokenizer.encode("a dog").ids]])
    bound = dy.variational_bound(model, tokens, n_times=4)
    assert bool(torch.isfinite(bound.total).all())


WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "dog",
    "ran",
    "river",
    "s",
    "##s",
    "##ning",
    "run",
    "##n",
]
WORDS += [".", ",", '"', "{", "}", ":", *"0123456789", *(f"##{digit}" for digit in "0123456789")]


def word_piece() -> Tokenizer:
    """A small tokenizer built as BERT's is."""
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(WORDS[:5])
    return tokenizer


def word_piece_model() -> LangFlowLM:
    tokenizer = word_piece()
    config = dy.LangFlowConfig(vocab_size=len(WORDS), hidden_size=32, cond_dim=16, n_blocks=2, n_heads=2)
    start = tokenizer.token_to_id("[CLS]")
    return LangFlowLM(random_modules(config), tokenizer, start, start_token_id=start)


@pytest.mark.parametrize("seed", range(3))
def test_word_pieces_spell_what_their_decoder_writes(seed: int) -> None:
    model = word_piece_model()
    pattern = dy.Regex(r"(the|a) (dog|river)s? (ran|running)( [a-z]+)*\.")
    (found,) = dy.generate(model, pattern, length=12, num_inference_steps=4, seed=seed)
    assert found.satisfied
    assert pattern.accepts(found.text)
    assert found.text == model.tokenizer.decode(
        list(found.tokens[1 : found.tokens.index(model.eos_token_id or 0, 1)]), skip_special_tokens=False
    )


def test_word_pieces_write_json_with_spaces() -> None:
    """Every symbol is a word of its own, so a schema must allow white space; numbers go on with ## pieces."""
    pattern = dy.Regex(r'\{ ?" ?dogs ?" ?: ?[0-9]{2} ?\}')
    (found,) = dy.generate(word_piece_model(), pattern, length=16, num_inference_steps=4)
    assert pattern.accepts(found.text)
    assert found.text.startswith('{ " dogs "')


def test_what_word_pieces_cannot_spell_is_refused_before_the_first_step() -> None:
    with pytest.raises(dy.InfeasibleConstraint, match=r"constraint: no token of the model has 'T'$"):
        dy.generate(word_piece_model(), dy.Regex("The dog"), length=8, num_inference_steps=4)


def test_the_model_s_own_sampler_is_the_default(model: LangFlowLM) -> None:
    options = {"length": 10, "num_inference_steps": 4, "decode": "argmax", "guidance": "none"}
    given = {
        method: dy.generate(model, dy.Regex("[a-z ]+"), method=method, **options)[0].tokens  # type: ignore[arg-type]
        for method in (None, "ddim", "ancestral")
    }
    assert given[None] == given["ddim"] != given["ancestral"]
    assert torch.equal(
        dy.sample(model, length=10, num_inference_steps=4).tokens,
        dy.sample(model, length=10, num_inference_steps=4, method="ddim").tokens,
    )


def test_particles_are_ancestral_whatever_the_model_s_sampler(model: LangFlowLM) -> None:
    (found,) = dy.generate(model, dy.Regex("the [a-z ]+"), length=10, num_inference_steps=4, particles=2)
    assert found.satisfied


@pytest.mark.parametrize("threads", [1, 2])
def test_a_sample_and_its_gradient_are_the_same_in_every_batch(threads: int) -> None:
    model = small_langflow(hidden_size=64)
    z, noise_level, x = inputs(model, batch=3, length=48)
    weight = torch.randn(1, 48, model.vocab_size, generator=torch.Generator().manual_seed(0))

    def run(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = z[:batch].clone().requires_grad_()
        logits = model.denoise(at, noise_level[:batch], x[:batch])
        (gradient,) = torch.autograd.grad(logits, at, weight.expand(batch, -1, -1).contiguous())
        return logits.detach(), gradient

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        whole = run(3)
        for batch in (1, 2):
            for alone, among in zip(run(batch), whole, strict=True):
                assert torch.equal(alone, among[:batch])
    finally:
        torch.set_num_threads(before)
