"""Tampered model folders, each refused with a reason before memory is taken."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import diffinity as dy
from diffinity.errors import CheckpointError, DiffinityError, InvalidArgument
from tests.models.test_checkpoints import tiny_plaid
from tests.models.test_markov import small_model


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders without checksums, so that the next line of defence has to find what is wrong."""
    folders = {}
    for name, model in (("plaid", tiny_plaid()), ("markov", small_model())):
        folders[name] = tmp_path_factory.mktemp("sound") / name
        model.save_pretrained(folders[name])
        change_config(folders[name], sha256={})
    return folders


@pytest.fixture
def folders(sound: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    return {name: Path(shutil.copytree(path, tmp_path / name)) for name, path in sound.items()}


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_tokenizer(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "tokenizer.json"
    description = json.loads(path.read_text())
    change(description)
    path.write_text(json.dumps(description))


def announce(folder: Path, name: str, shape: list[int]) -> None:
    """Let the weights announce one more tensor of bytes; the file has a hole in its place and takes no disk."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    many = 1
    for extent in shape:
        many *= extent
    header[name] = {"dtype": "U8", "shape": shape, "data_offsets": [len(body), len(body) + many]}
    spelled = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(spelled)) + spelled + body)
        file.truncate(8 + len(spelled) + len(body) + many)


def test_the_sound_folders_load(folders: dict[str, Path]) -> None:
    assert isinstance(dy.load(folders["plaid"]), dy.PlaidLM)
    assert isinstance(dy.load(folders["markov"]), dy.MarkovLM)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_inference_steps": 10**12}, "num_inference_steps must be a whole number from 1 to 100,000"),
        ({"num_inference_steps": "64"}, "num_inference_steps must be a whole number"),
        ({"num_inference_steps": True}, "num_inference_steps must be a whole number"),
        ({"length": 0}, "length must be a whole number from 1"),
        ({"length": 10**15}, "length must be a whole number from 1"),
        ({"length": 7.5}, "length must be a whole number"),
        ({"score_temp": "warm"}, "score_temp must be a finite number above 0"),
        ({"score_temp": float("nan")}, "score_temp must be a finite number above 0"),
        ({"score_temp": -1}, "score_temp must be a finite number above 0"),
        ({"method": ["ddim"]}, "method must be 'ancestral' or 'ddim'"),
        ({"colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_sampling_defaults_are_checked(changes: dict[str, object], message: str, folders: dict[str, Path]) -> None:
    change_config(folders["plaid"], sampling_defaults=changes)
    with pytest.raises(CheckpointError, match=f"sampling_defaults: .*{message}"):
        dy.load(folders["plaid"])


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling_defaults": [1, 2]},
        {"sampling_defaults": "fast"},
        {"sha256": "abc"},
        {"eos_token_id": True},
        {"dim": 10**9, "n_heads": 1},
        {"n_blocks": 10**9},
        {"vocab_size": 10**15},
        {"embed_dim": 10**15},
        {"dim": "16"},
    ],
    ids=str,
)
def test_absurd_configs_are_refused(changes: dict[str, object], folders: dict[str, Path]) -> None:
    change_config(folders["plaid"], **changes)
    with pytest.raises(CheckpointError):
        dy.load(folders["plaid"])


@pytest.mark.parametrize("bounds", [None, "ab", [1], [0, "x"], [0.0, float("inf")], {"0": 1, "1": 2}], ids=str)
def test_noise_levels_of_a_markov_model_are_checked(bounds: object, folders: dict[str, Path]) -> None:
    change_config(folders["markov"], gamma_bounds=bounds)
    with pytest.raises(CheckpointError, match="gamma_bounds must be two finite numbers"):
        dy.load(folders["markov"])


def vocab(description: dict[str, Any]) -> dict[str, Any]:
    return description["model"]["vocab"]


def last_token(description: dict[str, Any]) -> str:
    return max(vocab(description), key=vocab(description).__getitem__)


@pytest.mark.parametrize("name", ["plaid", "markov"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: vocab(d).update({last_token(d): 2**31}), "has id 2147483648, not one from 0 to"),
        (lambda d: vocab(d).update({last_token(d): -1}), "has id -1, not one from 0 to"),
        (lambda d: vocab(d).update({last_token(d): 1.5}), "has id 1.5, not one from 0 to"),
        (lambda d: vocab(d).update({last_token(d): 1}), "have the same id 1"),
        (lambda d: vocab(d).update({last_token(d): 99_999}), "no token has id"),
        (lambda d: d["added_tokens"].append({"content": "<big>", "id": 2**31}), "has id 2147483648"),
        (lambda d: d.update(model=3), "is not a tokenizers JSON file"),
    ],
    ids=["huge", "negative", "fraction", "twice", "hole", "added", "no model"],
)
def test_ids_of_a_tokenizer_are_checked(
    name: str, change: Callable[[dict[str, Any]], object], message: str, folders: dict[str, Path]
) -> None:
    change_tokenizer(folders[name], change)
    with pytest.raises(CheckpointError, match=message):
        dy.load(folders[name])


def test_a_tokenizer_by_itself_may_have_holes_but_no_absurd_ids(folders: dict[str, Path]) -> None:
    path = folders["plaid"] / "tokenizer.json"
    change_tokenizer(folders["plaid"], lambda d: vocab(d).update({last_token(d): 40}))
    spelled = dy.Vocabulary.from_tokenizer(path)
    assert len(spelled) == 41
    assert spelled.tokens[40] is not None
    assert spelled.tokens[39] is None
    change_tokenizer(folders["plaid"], lambda d: vocab(d).update({last_token(d): 2**31}))
    with pytest.raises(InvalidArgument, match="has id 2147483648"):
        dy.Vocabulary.from_tokenizer(path)
    from diffinity.alignment.vocabulary import check_ids

    with pytest.raises(InvalidArgument, match="no tokens"):
        check_ids([])


@pytest.mark.parametrize("name", ["plaid", "markov"])
@pytest.mark.parametrize("shape", [[16_000_000_000], [1 << 40]], ids=str)
def test_a_tensor_that_is_not_in_the_model_is_not_read(
    name: str, shape: list[int], folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(folders[name], "backdoor", shape)
    monkeypatch.setattr(torch.Tensor, "clone", lambda _: pytest.fail("a tensor was read"))
    with pytest.raises(CheckpointError, match=r"backdoor.*not part of this model"):
        dy.load(folders[name])


def test_weights_beyond_memory_are_refused(folders: dict[str, Path]) -> None:
    path = folders["plaid"] / "model.safetensors"
    announce(folders["plaid"], "large", [1 << 42])
    from diffinity.models.pretrained import read_tensors

    with pytest.raises(CheckpointError, match="GB of memory are free"):
        read_tensors(path)["large"]


@pytest.mark.parametrize(
    "source", [7, 3.5, b"model", ["model"], "x" * 300, "x" * 100_000, "a/" + "b" * 300, "a\0b"]
)
def test_what_names_no_model_is_refused(source: Any) -> None:
    with pytest.raises(DiffinityError, match="model"):
        dy.load(source)


@pytest.mark.parametrize("device", ["abacus", "cuda:99", "", "cpu:x", 3.5, None, "meta:cuda"])
def test_a_device_that_is_not_here_is_refused(device: Any, folders: dict[str, Path]) -> None:
    with pytest.raises(InvalidArgument, match="can't be used"):
        dy.load(folders["plaid"], device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_where_there_is_none_is_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(InvalidArgument, match="device cuda can't be used"):
        dy.load(folders["plaid"], device="cuda")
