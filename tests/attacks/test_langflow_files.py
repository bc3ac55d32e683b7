"""LangFlow checkpoints that are wrong, truncated or hostile, each with the refusal that it gets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import diffinity as dy
from tests.models.langflow_fixture import small_langflow

PUBLISHED = {
    "model_type": "LangFlow",
    "auto_map": {"AutoConfig": "config.LangFlowConfig", "AutoModelForMaskedLM": "model.LangFlow"},
    "n_blocks": 2,
    "gumbel_loc": 4.723,
    "gumbel_scale": 0.852,
    "gumbel_cutoff": 1e-5,
    "self_conditioning": True,
    "use_bias": True,
    "use_normalized_embedding": True,
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in LangFlow's own layout, with a tokenizer."""
    folder = tmp_path_factory.mktemp("langflow")
    small_langflow().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(PUBLISHED))
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_the_sound_folder_loads(folder: Path) -> None:
    assert isinstance(dy.load(folder), dy.LangFlowLM)


@pytest.fixture
def marker(folder: Path, tmp_path: Path) -> Path:
    """A file that exists as soon as code of the folder has run."""
    path = tmp_path / "was run"
    for name in ("config.py", "model.py", "__init__.py"):
        (folder / name).write_text(f"from pathlib import Path\nPath({str(path)!r}).touch()\n")
    return path


@pytest.mark.parametrize("trust", [False, True])
def test_code_named_in_auto_map_is_not_run(folder: Path, marker: Path, trust: bool) -> None:
    """Not even where code of other models may run: nothing here needs it."""
    assert isinstance(dy.load(folder, trust_remote_code=trust), dy.LangFlowLM)
    assert not marker.exists()


def test_code_of_a_folder_that_is_not_langflow_s_is_not_run_unasked(folder: Path, marker: Path) -> None:
    (folder / "config.json").write_text(json.dumps(PUBLISHED | {"model_type": "LangFlow2"}))
    with pytest.raises(dy.CheckpointError):
        dy.load(folder)
    assert not marker.exists()


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_is_refused(folder: Path, share: float) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: int(share * weights.stat().st_size)])
    with pytest.raises(dy.CheckpointError, match="not a complete safetensors file"):
        dy.load(folder)


EMBEDDING, QKV = "backbone.vocab_embed.embedding", "backbone.blocks.1.attn_qkv.weight"
ROTARY, SCALE = "backbone.rotary_emb.inv_freq", "proposal.scale"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.pop(EMBEDDING), "vocab_embed.embedding' is missing"),
        (lambda t: t.pop(QKV), "blocks.1.attn_qkv.weight is missing"),
        (lambda t: t.pop(SCALE), "proposal.scale is missing"),
        (lambda t: t.update({"backbone.extra": torch.ones(2)}), "backbone.extra is not part of this model"),
        (lambda t: t.update({QKV: t[QKV][:-1].clone()}), r"has shape \(95, 32\), the config asks for \(96, 32\)"),
        (lambda t: t.update({QKV: t[QKV].int()}), "has type torch.int32, expected a floating type"),
        (lambda t: t[QKV].fill_(float("nan")), "attn_qkv.weight has values that are not finite"),
        (lambda t: t.update({EMBEDDING: t[EMBEDDING][0].clone()}), "wrong rank"),
        (lambda t: t[ROTARY].mul_(2), "does not hold the rotary frequencies"),
        (lambda t: t.update({ROTARY: torch.ones(0)}), "does not hold the rotary frequencies"),
        (lambda t: t[SCALE].fill_(0), "proposal.scale must be positive, but is 0.0"),
        (lambda t: [t.pop(n) for n in list(t) if "blocks.1." in n], "says n_blocks 2, model.safetensors has 1"),
        (lambda t: t.update({EMBEDDING: t[EMBEDDING][:-1].clone()}), "linear.weight has shape"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    folder: Path, change: Callable[[dict[str, Tensor]], object], reason: str
) -> None:
    change_tensors(folder, change)
    with pytest.raises(dy.CheckpointError, match=reason):
        dy.load(folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gumbel_cutoff": None}, "gumbel_cutoff must be a number, but is None; no tensor has it"),
        ({"gumbel_cutoff": 0.7}, "gumbel_cutoff must be a number between 0 and 0.5, not 0.7"),
        ({"gumbel_cutoff": float("nan")}, "gumbel_cutoff must be a number between 0 and 0.5, not nan"),
        ({"use_bias": "yes"}, "skip_logits must be true or false, not 'yes'"),
        ({"self_conditioning": False}, "self_cond_proj.weight is not part of this model"),
        ({"n_blocks": 12}, "says n_blocks 12, model.safetensors has 2"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(folder: Path, changes: dict[str, object], reason: str) -> None:
    (folder / "config.json").write_text(json.dumps(PUBLISHED | changes))
    with pytest.raises(dy.CheckpointError, match=reason):
        dy.load(folder)


@pytest.mark.parametrize(
    "changes",
    [{"vocab_size": 7}, {"hidden_size": 1024}, {"gumbel_loc": 99.0}, {"gumbel_scale": 9.0}, {"n_heads": 1}],
)
def test_tensors_win_over_the_config(folder: Path, sound: Path, changes: dict[str, object]) -> None:
    (folder / "config.json").write_text(json.dumps(PUBLISHED | changes))
    found, wanted = dy.load(folder), dy.load(sound)
    z = torch.randn(1, 4, 32, generator=torch.Generator().manual_seed(0))
    t = torch.tensor([0.3])
    assert torch.equal(found.noise_level(t), wanted.noise_level(t))
    level = t.float() * 10
    assert torch.equal(found.denoise(z, level, z), wanted.denoise(z, level, z))


def test_another_model_s_tokenizer_is_refused(folder: Path) -> None:
    from diffinity.models.tokenization import train_bpe

    train_bpe(["a b"], 260).save(str(folder / "tokenizer.json"))
    with pytest.raises(dy.CheckpointError, match=r"the tokenizer has 258 tokens, the network 292"):
        dy.load(folder)


def test_a_model_without_a_tokenizer_says_what_to_do(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(
        dy.CheckpointError, match=r"no known tokenizer has 292 tokens .* put the model's tokenizer"
    ):
        dy.load(folder)


def test_a_tokenizer_can_be_named(folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizer.json").rename(tmp_path / "words.json")
    model = dy.load(folder, tokenizer=str(tmp_path / "words.json"))
    assert model.tokenizer.get_vocab_size() == 292


def test_a_saved_copy_that_was_changed_is_refused(tmp_path: Path) -> None:
    small_langflow().save_pretrained(tmp_path)
    change_tensors(tmp_path, lambda tensors: tensors[QKV].add_(1e-3))
    with pytest.raises(dy.CheckpointError, match=r"is not the file that config\.json describes"):
        dy.load(tmp_path)
