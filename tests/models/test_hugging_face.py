"""Diffusion models of `transformers` by folder: the interfaces of LLaDA, Dream, MDLM and Duo, small and random."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import diffinity as dy
from diffinity.models.hugging_face import HuggingFaceCausal, HuggingFaceDiffusion
from diffinity.models.tokenization import train_bpe
from diffinity.testing import CausalModelLaws

transformers: Any = pytest.importorskip("transformers", reason="pip install 'diffinity[bench]'")

CODE = '''
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput


class SmallConfig(PretrainedConfig):
    model_type = "MODEL_TYPE"

    def __init__(self, vocab_size=8, width=8, **options):
        super().__init__(**options)
        self.vocab_size, self.width = vocab_size, width


class SmallModel(PreTrainedModel):
    """Every position sees all others: embeddings, their mean, a readout."""

    config_class = SmallConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, config.width)
        self.place = torch.nn.Embedding(64, config.width)
        self.read = torch.nn.Linear(config.width, config.vocab_size)
        self.post_init()

    def forward(self, input_ids, SIGNATURE):
        x = self.embed(input_ids) + self.place.weight[: input_ids.shape[1]]
        x = torch.tanh(x + x.mean(dim=1, keepdim=True) EXTRA)
        return MaskedLMOutput(logits=self.read(x))
'''
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}: {{ m['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant: {% endif %}"
)


def written(folder: Path, model_type: str, *, timed: bool = False, dtype: str = "float32") -> Path:
    """A folder as a hub repository with code of its own has it."""
    tokenizer = train_bpe(["the old river and the cat. yes no"], 300)
    tokenizer.add_special_tokens(["<|mdm_mask|>", "<|start|>", "<|eot_id|>"])
    size = tokenizer.get_vocab_size() + 3  # more logits than tokens, as networks have
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        mask_token="<|mdm_mask|>",
        chat_template=TEMPLATE,
    ).save_pretrained(folder)
    code = CODE.replace("MODEL_TYPE", model_type)
    code = code.replace("SIGNATURE", "timesteps" if timed else "attention_mask=None, **options")
    code = code.replace("EXTRA", "+ timesteps[:, None, None]" if timed else "")
    name = f"modeling_small_{model_type.lower()}"
    (folder / f"{name}.py").write_text(code)
    names: dict[str, Any] = {}
    exec(code, names)
    torch.manual_seed(0)
    network = names["SmallModel"](names["SmallConfig"](vocab_size=size))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    network.to(getattr(torch, dtype)).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": f"{name}.SmallConfig", "AutoModel": f"{name}.SmallModel"}
    config["mask_token_id"] = tokenizer.token_to_id("<|mdm_mask|>")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    kinds = {"llada": {}, "Dream": {"dtype": "bfloat16"}, "mdlm": {"timed": True}, "duo": {"timed": True}}
    return {
        kind: written(tmp_path_factory.mktemp(kind), kind, **options)  # type: ignore[arg-type]
        for kind, options in kinds.items()
    }


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, HuggingFaceDiffusion]:
    return {kind: dy.load(folder, trust_remote_code=True) for kind, folder in folders.items()}


@pytest.mark.parametrize("kind", ["llada", "Dream", "mdlm", "duo"])
def test_a_folder_is_loaded_and_its_texts_satisfy(models: dict[str, HuggingFaceDiffusion], kind: str) -> None:
    model = models[kind]
    for options in ({}, {"prompt": "the old river"}, {"messages": [{"role": "user", "content": "cat?"}]}):
        texts = dy.generate(model, dy.Regex("yes|no|[a-z ]+cat"), n=2, length=10, num_inference_steps=4, **options)
        assert all(re.fullmatch("yes|no|[a-z ]+cat", text.text) for text in texts)


def test_code_of_a_repository_runs_only_where_it_is_asked_for(folders: dict[str, Path]) -> None:
    with pytest.raises(dy.CheckpointError, match="transformers can't load"):
        dy.load(folders["llada"])


def test_a_conversation_goes_through_the_chat_template(models: dict[str, HuggingFaceDiffusion]) -> None:
    model = models["llada"]
    ids = model.encode_prompt(None, [{"role": "user", "content": "cat?"}])
    shown = model.tokenizer.decode(ids, skip_special_tokens=False)
    assert shown == "<|start|>user: cat?<|eot_id|><|start|>assistant: "


def test_a_prompt_changes_what_is_written_and_the_constraint_does_not_see_it(
    models: dict[str, HuggingFaceDiffusion],
) -> None:
    texts = {
        prompt: dy.generate(models["llada"], dy.Regex("[a-z ]+"), length=8, num_inference_steps=8, prompt=prompt)[
            0
        ].text
        for prompt in ("the cat.", "yes no yes no")
    }
    assert len(set(texts.values())) == 2
    assert all(re.fullmatch("[a-z ]+", text) for text in texts.values())


def test_dream_s_logits_are_those_of_the_position_before(models: dict[str, HuggingFaceDiffusion]) -> None:
    model = models["Dream"]
    tokens, context = torch.full((1, 3), model.mask_id), torch.tensor([[4, 5]])
    raw = model.network(torch.cat([context, tokens], dim=1)).logits
    ordinary = [token for token in range(250) if token != model.eos_token_id]
    assert torch.equal(model.logits(tokens, torch.ones(1), context)[:, :, ordinary], raw[:, 1:4, ordinary])
    assert raw.dtype == model.dtype == torch.bfloat16


def test_llada_s_logits_are_its_own(models: dict[str, HuggingFaceDiffusion]) -> None:
    model = models["llada"]
    tokens, context = torch.full((1, 3), model.mask_id), torch.tensor([[4, 5]])
    raw = model.network(torch.cat([context, tokens], dim=1)).logits
    assert torch.equal(model.logits(tokens, torch.ones(1), context)[:, :, 1:250], raw[:, 2:, 1:250])


def test_a_token_that_ends_a_turn_ends_the_text(models: dict[str, HuggingFaceDiffusion]) -> None:
    model = models["llada"]
    end, turn = model.eos_token_id, model.tokenizer.token_to_id("<|eot_id|>")
    assert end is not None
    tokens = torch.full((1, 2), model.mask_id)
    raw, scores = model.network(tokens).logits, model.logits(tokens, torch.ones(1))
    assert torch.allclose(scores[..., end], raw[..., [end, turn]].logsumexp(dim=-1))
    assert bool(torch.isinf(scores[..., [turn, model.mask_id]]).all())


def test_classifier_free_guidance_is_llada_s_formula(models: dict[str, HuggingFaceDiffusion]) -> None:
    from diffinity.processes.tokens import Network

    model = models["llada"]
    tokens = torch.full((2, 3), model.mask_id)
    given = Network(model, [4, 5, 6])(tokens, 1.0)
    free = Network(model, [model.mask_id] * 3)(tokens, 1.0)
    finite = given.isfinite()
    guided = Network(model, [4, 5, 6], cfg_scale=0.7)(tokens, 1.0)
    assert torch.allclose(guided[finite], (free + 1.7 * (given - free))[finite], atol=1e-5)
    assert bool(guided[~finite].isneginf().all())  # the mask is no prediction


def test_the_families_have_their_own_ways(models: dict[str, HuggingFaceDiffusion]) -> None:
    llada = models["llada"]
    assert (llada.noise, llada.order, llada.temperature) == ("mask", "confidence", 0.0)
    assert (models["Dream"].order, models["mdlm"].order) == ("entropy", "ancestral")
    assert models["duo"].noise == "uniform"


def test_networks_with_a_clock_are_told_the_time(models: dict[str, HuggingFaceDiffusion]) -> None:
    model = models["duo"]
    tokens = torch.ones(1, 3, dtype=torch.long)
    early, late = (model.logits(tokens, torch.tensor([t])) for t in (0.9, 0.1))
    assert not torch.allclose(early, late)


def test_a_model_without_a_chat_template_says_so(tmp_path: Path) -> None:
    tokenizer = train_bpe(["the old river"], 300)
    tokenizer.add_special_tokens(["[MASK]"])
    config = transformers.BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", mask_token="[MASK]"
    ).save_pretrained(tmp_path)
    model = dy.load(tmp_path)
    with pytest.raises(dy.InvalidArgument, match="no chat template"):
        dy.generate(model, dy.Regex("a"), messages=[{"role": "user", "content": "hello"}], length=4)


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> HuggingFaceCausal:
    """A small random GPT-2 with a chat template, loaded from its folder."""
    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = train_bpe(["the old river and the cat. yes no"], 300)
    tokenizer.add_special_tokens(["<|start|>", "<|eot_id|>"])
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=tokenizer.get_vocab_size() + 3, n_embd=16, n_layer=2, n_head=2, n_positions=64, eos_token_id=0
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", chat_template=TEMPLATE
    ).save_pretrained(folder)
    loaded = dy.load(folder)
    assert isinstance(loaded, HuggingFaceCausal)
    return loaded


@pytest.mark.parametrize(
    "options", [{}, {"prompt": "the old"}, {"messages": [{"role": "user", "content": "cat?"}]}]
)
@pytest.mark.parametrize("particles", [None, 3])
def test_a_causal_model_is_loaded_and_its_texts_satisfy(
    causal: HuggingFaceCausal, options: dict[str, Any], particles: int | None
) -> None:
    pattern = "yes|no|[a-z ]+cat"
    texts = dy.generate(causal, dy.Regex(pattern), n=3, length=10, particles=particles, **options)
    assert all(re.fullmatch(pattern, text.text) for text in texts)
    if particles is None:
        own = causal.encode_prompt(options.get("prompt"), options.get("messages")) if options else [0]
        ids = list(texts[0].tokens)
        ids = ids[: ids.index(0) + 1] if 0 in ids else ids
        logits = causal.network(torch.tensor([[*own, *ids]])).logits[0, len(own) - 1 : -1].double()
        turn = causal.tokenizer.token_to_id("<|eot_id|>")  # counts as the end
        logits[:, 0] = logits[:, [0, turn]].logsumexp(dim=1)
        logits[:, turn] = -torch.inf
        expected = logits.log_softmax(dim=1)[torch.arange(len(ids)), ids].sum()
        assert texts[0].log_p_text == pytest.approx(float(expected), abs=1e-3)


def test_a_causal_model_of_transformers_satisfies_the_laws(causal: HuggingFaceCausal) -> None:
    class Laws(CausalModelLaws):
        @staticmethod
        def model() -> Any:
            return causal

    laws = Laws()
    for name in dir(laws):
        if name.startswith("test_"):
            getattr(laws, name)()
