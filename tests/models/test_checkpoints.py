"""Models on disk: round trips, and a refusal with its reason for every way in which files can be wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import diffinity as dy
from diffinity.models.pretrained import read_tensors
from tests.models.plaid_fixture import expected, import_fixture, relative_error, small_tokenizer
from tests.models.test_markov import small_model


def tiny_plaid() -> dy.PlaidLM:
    shape = dy.PlaidConfig(vocab_size=16, dim=16, n_blocks=2, n_heads=2, embed_dim=4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = dy.PlaidLM.create(shape, small_tokenizer(16), eos_token_id=0)
        torch.nn.init.normal_(model.modules.model.output_linear.weight)
    return model


def logits_of(model: dy.PlaidLM) -> torch.Tensor:
    z = torch.randn(2, 5, model.config.embed_dim, generator=torch.Generator().manual_seed(0))
    return model.denoise(z, torch.tensor([0.5, -1.0]), torch.zeros_like(z))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_plaid().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_weights_are_read_to_where_products_round_alike(tmp_path: Path) -> None:
    save_file({"a": torch.ones(3), "b": torch.ones(5, 5), "c": torch.ones(2)}, tmp_path / "weights.safetensors")
    read = read_tensors(tmp_path / "weights.safetensors")
    assert {name: tensor.data_ptr() % 64 for name, tensor in read.items()} == {"a": 0, "b": 0, "c": 0}


def test_import_save_load_gives_bit_identical_logits(plaid_fixtures: Path, tmp_path: Path) -> None:
    imported = import_fixture(plaid_fixtures, tmp_path)
    imported.save_pretrained(tmp_path / "model")
    loaded = dy.load(tmp_path / "model")
    numbers = expected(plaid_fixtures)
    inputs = (numbers["forward.z"], numbers["forward.gamma"], numbers["forward.x_selfcond"])
    assert torch.equal(loaded.denoise(*inputs), imported.denoise(*inputs))
    assert torch.equal(loaded.noise_level(numbers["schedule.t"]), imported.noise_level(numbers["schedule.t"]))


def test_folder_has_the_hub_layout(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    config = json.loads((folder / "config.json").read_text())
    assert config["kind"] == "plaid"
    assert config["dim"] == 16


def test_the_hub_s_from_pretrained_reads_it(folder: Path) -> None:
    assert torch.equal(logits_of(dy.PlaidLM.from_pretrained(folder)), logits_of(tiny_plaid()))


def test_half_storage_is_half_the_size_and_close(tmp_path: Path) -> None:
    model = tiny_plaid()
    model.save_pretrained(tmp_path / "full")
    model.half_storage = True
    model.save_pretrained(tmp_path / "half")
    weights = load_file(tmp_path / "half" / "model.safetensors")
    assert weights["model.output_linear.weight"].dtype == torch.float16
    assert weights["noise_schedule.W1"].dtype == torch.float32
    loaded = dy.load(tmp_path / "half")
    assert 0 < relative_error(logits_of(loaded), logits_of(model)) < 1e-3


def test_sampling_defaults_and_end_token_survive(tmp_path: Path) -> None:
    model = tiny_plaid()
    model.sampling_defaults = dy.SamplingDefaults(num_inference_steps=17, length=9, score_temp=0.6)
    model.save_pretrained(tmp_path / "model")
    loaded = dy.load(tmp_path / "model")
    assert loaded.sampling_defaults == model.sampling_defaults
    assert loaded.eos_token_id == 0


def test_markov_round_trip_gives_identical_logits(tmp_path: Path) -> None:
    model = small_model()
    model.save_pretrained(tmp_path / "markov")
    loaded = dy.load(tmp_path / "markov")
    z = torch.randn(2, 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    noise_level = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert torch.equal(loaded.denoise(z, noise_level, z), model.denoise(z, noise_level, z))


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(changes)
    path.write_text(json.dumps(config))


def edit_weights(folder: Path, change: str) -> None:
    """Change the weights and make the checksum fit, so that the next line of defence has to find it."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    name = "model.input_linear.weight"
    if change == "missing":
        del weights[name]
    elif change == "extra":
        weights["backdoor"] = torch.zeros(3)
    elif change == "shape":
        weights[name] = torch.zeros(3, 3)
    elif change == "nan":
        weights[name] = torch.full_like(weights[name], float("nan"))
    elif change == "integers":
        weights[name] = weights[name].to(torch.int32)
    save_file(weights, path)
    edit_config(folder, sha256={})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("missing", "model.input_linear.weight is missing"),
        ("extra", "backdoor is not part of this model"),
        ("shape", r"has shape \(3, 3\), the config asks for \(16, 4\)"),
        ("nan", "values that are not finite"),
        ("integers", "expected a floating type"),
    ],
)
def test_weights_that_do_not_fit_are_refused(folder: Path, change: str, reason: str) -> None:
    edit_weights(folder, change)
    with pytest.raises(dy.CheckpointError, match=reason):
        dy.load(folder)


def test_a_truncated_weights_file_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(dy.CheckpointError, match="truncated or changed"):
        dy.load(folder)
    with pytest.raises(dy.CheckpointError, match="not a complete safetensors file"):
        dy.load(folder, verify=False)


def test_a_flipped_bit_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(dy.CheckpointError, match=r"not the file that config\.json describes"):
        dy.load(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(dy.CheckpointError, match=name.replace(".", r"\.")):
        dy.load(folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "gpt"}, "unknown kind 'gpt'; known: plaid, langflow, markov"),
        ({"kind": 5}, 'has no "kind"'),
        ({"format_version": 99}, "format_version 99"),
        ({"dim": 17}, "dim must be n_heads times an even number"),
        ({"dim": -16}, "dim must be a positive whole number"),
        ({"n_layers": 3}, "does not describe a PLAID network"),
        ({"vocab_size": 17}, r"has shape \(16, 4\), the config asks for \(17, 4\)"),
        ({"eos_token_id": 99}, "eos_token_id 99 is not a token"),
        ({"sampling_defaults": {"steps": 3}}, "sampling_defaults"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(folder: Path, changes: dict[str, object], reason: str) -> None:
    edit_config(folder, **changes)
    with pytest.raises(dy.CheckpointError, match=reason):
        dy.load(folder)


def test_a_config_that_is_not_json_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(dy.CheckpointError, match="not valid JSON"):
        dy.load(folder)


def test_a_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    small_tokenizer(17).save(str(folder / "tokenizer.json"))
    edit_config(folder, sha256={})
    with pytest.raises(dy.CheckpointError, match="17 tokens, the network 16"):
        dy.load(folder)


def test_a_markov_model_is_not_a_plaid_model(tmp_path: Path) -> None:
    small_model().save_pretrained(tmp_path / "markov")
    with pytest.raises(dy.CheckpointError, match="describes a 'markov' model, not 'plaid'"):
        dy.PlaidLM.from_pretrained(tmp_path / "markov")


def test_a_markov_chain_that_points_outside_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "markov"
    small_model().save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    weights["target"][0] = 10**6
    save_file(weights, folder / "model.safetensors")
    edit_config(folder, sha256={})
    with pytest.raises(dy.CheckpointError, match="do not fit each other"):
        dy.load(folder)


def write_plaid_files(folder: Path, model: dy.PlaidLM) -> None:
    folder.mkdir()
    for part in ("model", "embedding_matrix", "noise_schedule", "gamma_bounds"):
        torch.save(getattr(model.modules, part).state_dict(), folder / f"{part}.pt")
    model.tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture
def plaid_files(tmp_path: Path) -> Path:
    write_plaid_files(tmp_path / "weights", tiny_plaid())
    return tmp_path / "weights"


def test_plaid_s_layout_is_read_back(plaid_files: Path) -> None:
    model = dy.import_plaid(plaid_files, plaid_files / "tokenizer.json")
    assert model.config == tiny_plaid().config
    assert torch.equal(logits_of(model), logits_of(tiny_plaid()))


class RunsCode:
    """What a hostile pickle does: calls a function when it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('the pickle ran code')",))


def test_a_pickle_with_code_is_refused_and_not_run(plaid_files: Path) -> None:
    torch.save({"matrix": RunsCode()}, plaid_files / "embedding_matrix.pt")
    with pytest.raises(dy.CheckpointError, match="a pickle can run code"):
        dy.import_plaid(plaid_files, plaid_files / "tokenizer.json")


def test_a_truncated_pickle_is_refused(plaid_files: Path) -> None:
    path = plaid_files / "model.pt"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(dy.CheckpointError, match="truncated or not a PyTorch file"):
        dy.import_plaid(plaid_files, plaid_files / "tokenizer.json")


def test_something_other_than_a_dictionary_is_refused(plaid_files: Path) -> None:
    torch.save([1, 2], plaid_files / "model.pt")
    with pytest.raises(dy.CheckpointError, match="not a dictionary of tensors"):
        dy.import_plaid(plaid_files, plaid_files / "tokenizer.json")


def test_files_of_two_models_are_refused(plaid_files: Path) -> None:
    torch.save({"matrix": torch.zeros(16, 5)}, plaid_files / "embedding_matrix.pt")
    with pytest.raises(dy.CheckpointError, match="the files come from different models"):
        dy.import_plaid(plaid_files, plaid_files / "tokenizer.json")


def test_a_missing_plaid_file_is_named(plaid_files: Path) -> None:
    (plaid_files / "gamma_bounds.pt").unlink()
    with pytest.raises(dy.CheckpointError, match=r"gamma_bounds\.pt is missing"):
        dy.import_plaid(plaid_files, plaid_files / "tokenizer.json")


def test_another_tokenizer_is_refused(plaid_files: Path) -> None:
    small_tokenizer(20).save(str(plaid_files / "tokenizer.json"))
    with pytest.raises(dy.CheckpointError, match="they do not belong together"):
        dy.import_plaid(plaid_files, plaid_files / "tokenizer.json")


def test_strange_rotary_frequencies_are_refused(plaid_files: Path) -> None:
    state = torch.load(plaid_files / "model.pt", weights_only=True)
    state["rotary_emb.inv_freq"] = torch.ones(4)
    torch.save(state, plaid_files / "model.pt")
    with pytest.raises(dy.CheckpointError, match="rotary"):
        dy.import_plaid(plaid_files, plaid_files / "tokenizer.json")


def test_a_hub_id_that_can_not_be_fetched_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(dy.CheckpointError, match="is not on this machine, and HF_HUB_OFFLINE forbids to fetch it"):
        dy.load("nobody/no-such-model")


def test_saving_over_a_model_replaces_it_whole(folder: Path) -> None:
    shutil.copy(folder / "README.md", folder / "old")
    tiny_plaid().save_pretrained(folder)
    assert torch.equal(logits_of(dy.load(folder)), logits_of(tiny_plaid()))


def test_push_to_hub_uploads_the_whole_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's own client with its two network calls replaced: what would be uploaded, and where to."""
    uploaded: dict[str, list[str]] = {}

    class Repo:
        repo_id = "someone/tiny"

    def upload(self: object, *, repo_id: str, folder_path: str, **_: object) -> str:
        uploaded[repo_id] = sorted(path.name for path in Path(folder_path).iterdir())
        return "done"

    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", lambda self, **_: Repo())
    monkeypatch.setattr("huggingface_hub.HfApi.upload_folder", upload)
    tiny_plaid().push_to_hub("someone/tiny")
    assert uploaded == {"someone/tiny": ["README.md", "config.json", "model.safetensors", "tokenizer.json"]}
