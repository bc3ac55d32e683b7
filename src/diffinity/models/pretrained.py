"""Models on disk: config.json, model.safetensors, tokenizer.json and README.md, as the Hugging Face hub expects.

Reading is strict: every file is checked against the checksums in the config, every tensor against the
shape that the config implies. A missing or extra key is an error, never a random initialisation.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import torch
from huggingface_hub import ModelHubMixin
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.alignment.bigrams import PREFIX, Bigrams
from diffinity.errors import CheckpointError
from diffinity.models.hub import CARD, CONFIG, TOKENIZER, WEIGHTS, fetch_model, verify_cached
from diffinity.models.protocol import SamplingDefaults

FORMAT_VERSION = 1


class PretrainedLM(
    ModelHubMixin,
    library_name="diffinity",
    license="apache-2.0",
    tags=["diffusion-language-model", "constrained-generation"],
):
    """The part of a model that knows files: `save_pretrained`, `from_pretrained`, `push_to_hub`."""

    kind: ClassVar[str]

    @abstractmethod
    def config_fields(self) -> dict[str, Any]:
        """What the config says of this kind of model, as plain JSON."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """All that the weights file holds."""

    @classmethod
    @abstractmethod
    def from_parts(
        cls,
        fields: dict[str, Any],
        tensors: dict[str, Tensor],
        tokenizer: Tokenizer,
        eos_token_id: int | None,
        sampling_defaults: SamplingDefaults,
    ) -> Self:
        """The model that `config_fields` and `tensors` describe; raises CheckpointError where they disagree."""

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer: ...

    eos_token_id: int | None
    sampling_defaults: SamplingDefaults
    card: str | None = None
    bigrams: Bigrams | None = None  # which tokens are neighbours, for chain guidance; part of the weights file

    def _save_pretrained(self, save_directory: Path) -> None:
        tensors = {**self.tensors(), **(self.bigrams.tensors() if self.bigrams else {})}
        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, save_directory / WEIGHTS, metadata={"format": "pt"})
        (save_directory / WEIGHTS).chmod(0o666 & ~_umask())  # safetensors lets only the owner read
        self.tokenizer.save(str(save_directory / TOKENIZER))
        config = {
            "kind": self.kind,
            "format_version": FORMAT_VERSION,
            **self.config_fields(),
            "eos_token_id": self.eos_token_id,
            "sampling_defaults": dataclasses.asdict(self.sampling_defaults),
            "sha256": {name: file_sha256(save_directory / name) for name in (WEIGHTS, TOKENIZER)},
        }
        (save_directory / CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
        (save_directory / CARD).write_text(self.card or self.default_card())

    def default_card(self) -> str:
        """A model card that says how to load the model; trainers write a better one into `card`."""
        return (
            "---\nlibrary_name: diffinity\ntags:\n- diffusion-language-model\n---\n\n"
            f"# A `{self.kind}` continuous diffusion language model\n\n"
            '```python\nimport diffinity as dy\n\nmodel = dy.load("this folder or its hub id")\n'
            "print(dy.texts(model, dy.sample(model, n=1).tokens)[0])\n```\n\n"
            f"Config: `{json.dumps(self.config_fields())}`\n"
        )

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **model_kwargs: Any,
    ) -> Self:
        folder = Path(model_id)
        if not folder.is_dir():
            folder = fetch_model(
                model_id,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
            )
        config = read_config(folder)
        if config["kind"] != cls.kind:
            raise CheckpointError(f"{folder / CONFIG} describes a {config['kind']!r} model, not {cls.kind!r}")
        return cls.read(folder, config, verify=bool(model_kwargs.get("verify", True)))

    @classmethod
    def read(cls, folder: Path, config: dict[str, Any], *, verify: bool = True) -> Self:
        """The model in `folder`, whose config.json says `config`; `verify=False` skips the checksums."""
        reserved = {"kind", "format_version", "eos_token_id", "sampling_defaults", "sha256"}
        fields = {name: value for name, value in config.items() if name not in reserved}
        if verify:
            verify_cached(folder / CONFIG)
            verify_checksums(folder, config.get("sha256", {}))
        tokenizer = read_tokenizer(folder / TOKENIZER)
        try:
            defaults = SamplingDefaults(**config.get("sampling_defaults", {}))
        except TypeError as error:
            raise CheckpointError(f"{folder / CONFIG}: sampling_defaults: {error}") from None
        eos = config.get("eos_token_id")
        if eos is not None and not (isinstance(eos, int) and 0 <= eos < tokenizer.get_vocab_size()):
            raise CheckpointError(f"{folder / CONFIG}: eos_token_id {eos!r} is not a token of {TOKENIZER}")
        try:
            tensors = read_tensors(folder / WEIGHTS)
            pairs = {name: tensors.pop(name) for name in list(tensors) if name.startswith(PREFIX)}
            model = cls.from_parts(fields, tensors, tokenizer, eos, defaults)
            if pairs:
                model.bigrams = Bigrams.from_tensors(pairs)
            return model
        except CheckpointError as error:
            raise CheckpointError(f"{folder}: {error}") from None


def is_published_langflow(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is one of LangFlow's own, which say no `kind`.

    >>> is_published_langflow({"model_type": "LangFlow", "hidden_size": 768})
    True
    """
    return config.get("model_type") == "LangFlow"


def read_config(folder: Path) -> dict[str, Any]:
    """config.json as a dictionary with a 'kind'.

    >>> read_config(Path("no such folder"))
    Traceback (most recent call last):
    diffinity.errors.CheckpointError: no such folder: there is no config.json; a model folder has \
config.json, model.safetensors and tokenizer.json
    """
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(
            f"{folder}: there is no {CONFIG}; a model folder has {CONFIG}, {WEIGHTS} and {TOKENIZER}"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None
    if isinstance(config, dict) and is_published_langflow(config):
        return {**config, "kind": "langflow"}
    if not isinstance(config, dict) or not isinstance(config.get("kind"), str):
        raise CheckpointError(f'{path} has no "kind": it is not the config of a diffinity model')
    if config.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format_version {config['format_version']!r}; this version reads {FORMAT_VERSION}"
        )
    return config


def transformers_config(folder: Path) -> dict[str, Any] | None:
    """config.json where it is one of the `transformers` library, and of none of our models; else None.

    >>> transformers_config(Path("no such folder")) is None
    True
    """
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return None
    if not isinstance(config, dict) or is_published_langflow(config) or "kind" in config:
        return None
    return config if "model_type" in config else None


def verify_checksums(folder: Path, checksums: Mapping[str, str]) -> None:
    """Compare files with their SHA-256 from the config."""
    for name, expected in checksums.items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{folder}: {name} is missing")
        found = file_sha256(path)
        if found != expected:
            raise CheckpointError(
                f"{path} is not the file that {CONFIG} describes (SHA-256 {found[:12]}…, expected "
                f"{str(expected)[:12]}…): it is truncated or changed; fetch it again, or load with verify=False"
            )


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_tokenizer(path: Path) -> Tokenizer:
    """A `tokenizers` JSON file."""
    if not path.is_file():
        raise CheckpointError(f"there is no tokenizer file {path}")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise CheckpointError(f"{path} is not a tokenizers JSON file: {error}") from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, each in memory of its own.

    In the file they begin at any byte, from which products round otherwise on some processors: a model could write
    other texts when it is read back. The file is opened for each, so that not all are in memory twice at once.
    """
    if not path.is_file():
        raise CheckpointError(f"there is no weights file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
        return {name: _own(path, name) for name in names}
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a complete safetensors file: {error}") from None


def _own(path: Path, name: str) -> Tensor:
    with safe_open(path, framework="pt") as file:
        mapped: Tensor = file.get_tensor(name)
    return mapped.clone()


SMALL = 50_000_000  # parameters
M = TypeVar("M", bound=torch.nn.Module)


def unfilled(build: Callable[[], M], parameters: int) -> M:
    """A network for weights to be put into, of about so many parameters.

    A large one has no memory of its own. A small one has: without, torch would import its compiler, which takes
    longer than all the rest.

    >>> unfilled(lambda: torch.nn.Linear(2, 3), 6).weight.device.type
    'cpu'
    """
    if parameters > SMALL:
        with torch.device("meta"):
            return build()
    with torch.random.fork_rng(devices=[]):
        return build()


def load_strictly(module: torch.nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put `tensors` in place of the module's parameters and buffers (which may be on the meta device).

    Floating types are converted to the module's; keys and shapes must be exactly the module's.
    """
    wanted = module.state_dict()
    problems = [f"{name} is missing" for name in wanted.keys() - tensors.keys()]
    problems += [f"{name} is not part of this model" for name in tensors.keys() - wanted.keys()]
    for name in wanted.keys() & tensors.keys():
        if tensors[name].shape != wanted[name].shape:
            problems.append(
                f"{name} has shape {tuple(tensors[name].shape)}, the config asks for {tuple(wanted[name].shape)}"
            )
        elif not tensors[name].is_floating_point():
            problems.append(f"{name} has type {tensors[name].dtype}, expected a floating type")
        elif not bool(torch.isfinite(tensors[name]).all()):
            problems.append(f"{name} has values that are not finite")
    if problems:
        shown = "; ".join(sorted(problems)[:4])
        more = f"; and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise CheckpointError(f"the weights do not fit: {shown}{more}")
    converted = {name: tensors[name].to(wanted[name].dtype) for name in wanted}
    module.load_state_dict(converted, strict=True, assign=True)


def _umask() -> int:
    """What the user takes away from the rights of new files; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
