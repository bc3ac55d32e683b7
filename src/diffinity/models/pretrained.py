"""Models on disk: config.json, model.safetensors, tokenizer.json and README.md, as the Hugging Face hub expects.

Reading is strict: every file is checked against the checksums in the config, every tensor against the
shape that the config implies. A missing or extra key is an error, never a random initialisation.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import huggingface_hub  # its names are imported when they are used
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.alignment.bigrams import PREFIX, Bigrams
from diffinity.alignment.vocabulary import check_ids, token_ids
from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.memory import available_bytes
from diffinity.models.hub import CARD, CONFIG, TOKENIZER, WEIGHTS, fetch_model, verify_cached
from diffinity.models.protocol import SamplingDefaults

FORMAT_VERSION = 1
MOST_HEADER_BYTES = 100_000_000  # of a safetensors file


class PretrainedLM(ABC):
    """The file methods of a model: `save_pretrained`, `from_pretrained`, `push_to_hub`."""

    kind: ClassVar[str]

    @abstractmethod
    def config_fields(self) -> dict[str, Any]:
        """The config fields of this kind of model, as plain JSON."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the weights file."""

    @classmethod
    @abstractmethod
    def from_parts(
        cls,
        fields: dict[str, Any],
        tensors: Mapping[str, Tensor],
        tokenizer: Tokenizer,
        eos_token_id: int | None,
        sampling_defaults: SamplingDefaults,
    ) -> Self:
        """The model that `config_fields` and `tensors` describe; raises CheckpointError if they disagree."""

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer: ...

    eos_token_id: int | None
    sampling_defaults: SamplingDefaults
    card: str | None = None
    bigrams: Bigrams | None = None  # statistics of neighbouring tokens, for chain guidance; in the weights file

    def save_pretrained(self, save_directory: str | Path) -> None:
        """Write the model's files to a folder, which `dy.load` reads; an existing model is replaced."""
        save_directory = Path(save_directory)
        save_directory.mkdir(parents=True, exist_ok=True)
        (save_directory / CONFIG).unlink(missing_ok=True)  # an incomplete folder must not look like a model
        tensors = {**self.tensors(), **(self.bigrams.tensors() if self.bigrams else {})}
        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, save_directory / WEIGHTS, metadata={"format": "pt"})
        (save_directory / WEIGHTS).chmod(0o666 & ~_umask())  # safetensors gives access only to the owner
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
        """A model card that shows how to load the model; `card`, if set, is written in its place."""
        return (
            "---\nlibrary_name: diffinity\ntags:\n- diffusion-language-model\n---\n\n"
            f"# A `{self.kind}` continuous diffusion language model\n\n"
            '```python\nimport diffinity as dy\n\nmodel = dy.load("this folder or its hub id")\n'
            "print(dy.texts(model, dy.sample(model, n=1).tokens)[0])\n```\n\n"
            f"Config: `{json.dumps(self.config_fields())}`\n"
        )

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
        verify: bool = True,
    ) -> Self:
        """The model in a folder, or on the hub by its `owner/name`; `dy.load` does this for every kind."""
        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():
            folder = fetch_model(
                str(pretrained_model_name_or_path),
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
            )
        config = read_config(folder)
        if config["kind"] != cls.kind:
            raise CheckpointError(f"{folder / CONFIG} describes a {config['kind']!r} model, not {cls.kind!r}")
        return cls.read(folder, config, verify=verify)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        **upload: Any,
    ) -> str:
        """Upload the model's files to the hub in one commit and return the address.

        The repository is created if it does not exist. `upload` is passed to `huggingface_hub`'s `upload_folder`:
        `commit_message`, `revision` (a branch), `create_pr`, `delete_patterns` …
        """
        hub = huggingface_hub.HfApi(token=token)
        repo_id = hub.create_repo(repo_id=repo_id, private=private, exist_ok=True).repo_id
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            message = {"commit_message": f"A {self.kind} model of diffinity"}
            return str(hub.upload_folder(repo_id=repo_id, folder_path=folder, **(message | upload)))

    @classmethod
    def read(cls, folder: Path, config: dict[str, Any], *, verify: bool = True) -> Self:
        """The model in `folder` with the config `config`; `verify=False` skips the checksums."""
        reserved = {"kind", "format_version", "eos_token_id", "sampling_defaults", "sha256"}
        fields = {name: value for name, value in config.items() if name not in reserved}
        if verify:
            verify_cached(folder / CONFIG)
            verify_checksums(folder, config.get("sha256", {}))
        tokenizer = read_tokenizer(folder / TOKENIZER, without_gaps=True)
        defaults = _sampling_defaults(folder / CONFIG, config.get("sampling_defaults", {}))
        eos = config.get("eos_token_id")
        if eos is not None and not (type(eos) is int and 0 <= eos < tokenizer.get_vocab_size()):
            raise CheckpointError(f"{folder / CONFIG}: eos_token_id {eos!r} is not a token of {TOKENIZER}")
        try:
            pairs, tensors = read_tensors(folder / WEIGHTS).split(PREFIX)
            model = cls.from_parts(fields, tensors, tokenizer, eos, defaults)
            if pairs:
                _check_bigrams(pairs.shapes, tokenizer.get_vocab_size())
                model.bigrams = Bigrams.from_tensors(pairs)
            return model
        except CheckpointError as error:
            raise CheckpointError(f"{folder}: {error}") from None


def _sampling_defaults(path: Path, fields: object) -> SamplingDefaults:
    if not isinstance(fields, dict):
        raise CheckpointError(f"{path}: sampling_defaults must be an object, but is {str(fields)[:40]!r}")
    try:
        return SamplingDefaults(**fields)
    except (TypeError, InvalidArgument) as error:
        raise CheckpointError(f"{path}: sampling_defaults: {error}") from None


def _check_bigrams(shapes: Mapping[str, tuple[int, ...]], vocab_size: int) -> None:
    """Refuse tensors that cannot be bigrams of this vocabulary, before any tensor is read."""
    surplus = sorted(shapes.keys() - {PREFIX + name for name in ("size", "successor", "log_ratio", "log_unseen")})
    if surplus:
        raise CheckpointError(f"{', '.join(surplus)} is not part of this model")
    followers = shapes.get(f"{PREFIX}successor", ())
    expected: dict[str, tuple[int, ...]] = {f"{PREFIX}{name}": (vocab_size,) for name in ("size", "log_unseen")}
    expected |= {f"{PREFIX}log_ratio": followers}
    shapes_fit = all(shapes.get(name) == shape for name, shape in expected.items())
    if not shapes_fit or len(followers) != 1 or followers[0] > vocab_size**2:
        raise CheckpointError(f"the bigram tensors do not have the shapes for {vocab_size} tokens: {dict(shapes)}")


def is_published_langflow(config: Mapping[str, Any]) -> bool:
    """Whether a config.json has LangFlow's own format, which has no `kind`.

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
    """config.json if it is a config of the `transformers` library and not of one of our models; otherwise None.

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


def verify_checksums(folder: Path, checksums: object) -> None:
    """Compare files with their SHA-256 from the config."""
    if not isinstance(checksums, dict):
        raise CheckpointError(f"{folder / CONFIG}: sha256 must be an object with a checksum for each file")
    for name, expected in checksums.items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{folder}: {name} is missing")
        digest = file_sha256(path)
        if digest != expected:
            raise CheckpointError(
                f"{path} is not the file that {CONFIG} describes (SHA-256 {digest[:12]}…, expected "
                f"{str(expected)[:12]}…): it is truncated or changed; fetch it again, or load with verify=False"
            )


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_tokenizer(path: Path, *, without_gaps: bool = False) -> Tokenizer:
    """Read a `tokenizers` JSON file and check its ids; `without_gaps` if the ids are rows of an embedding."""
    if not path.is_file():
        raise CheckpointError(f"there is no tokenizer file {path}")
    try:
        check_ids(token_ids(json.loads(path.read_text(encoding="utf-8"))), without_gaps=without_gaps)
        return Tokenizer.from_file(str(path))
    except InvalidArgument as error:
        raise CheckpointError(f"{path}: {error}") from None
    except Exception as error:  # tokenizers raises plain Exception
        raise CheckpointError(f"{path} is not a tokenizers JSON file: {error}") from None


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a safetensors file: names and shapes are read at once, values on access.

    So a file can be compared with the config before memory is allocated. Each tensor is copied to its own memory.
    In the file a tensor can begin at any byte, and on some processors products of unaligned tensors round
    differently, so that a loaded model could generate different texts. The file is opened for each tensor, so that
    the tensors are not all in memory twice.
    """

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        if not path.is_file():
            raise CheckpointError(f"there is no weights file {path}")
        self._path, self.shapes = path, dict(_stored_shapes(path) if shapes is None else shapes)

    def split(self, prefix: str) -> tuple[StoredTensors, StoredTensors]:
        """The tensors whose names have the prefix, and the other tensors."""
        with_prefix = {name: shape for name, shape in self.shapes.items() if name.startswith(prefix)}
        without_prefix = {name: shape for name, shape in self.shapes.items() if name not in with_prefix}
        return StoredTensors(self._path, with_prefix), StoredTensors(self._path, without_prefix)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.shapes:
            raise KeyError(name)
        self._check_room(name)
        try:
            with safe_open(self._path, framework="pt") as file:
                mapped: Tensor = file.get_tensor(name)
        except (SafetensorError, RuntimeError) as error:  # RuntimeError: it can't be mapped
            raise CheckpointError(f"{self._path} is not a complete safetensors file: {error}") from None
        return mapped.clone()

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def _check_room(self, name: str) -> None:
        """Refuse a tensor that is larger than the free memory."""
        free = available_bytes(torch.device("cpu"))
        min_bytes = math.prod(self.shapes[name])  # if each number has one byte
        if free is not None and min_bytes > free:
            raise CheckpointError(
                f"{self._path}: {name} has shape {self.shapes[name]}, at least {min_bytes / 1e9:,.1f} GB, and "
                f"{free / 1e9:,.1f} GB of memory are free"
            )


def _stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes from the header of a safetensors file: the header's length in eight bytes, then JSON."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > min(MOST_HEADER_BYTES, path.stat().st_size - 8):
                raise ValueError(f"its header announces {size:,} bytes")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        shapes = {name: tuple(entry["shape"]) for name, entry in header.items()}
        if not all(type(extent) is int and extent >= 0 for shape in shapes.values() for extent in shape):
            raise ValueError("a shape is not a list of whole numbers")
        return shapes
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a complete safetensors file: {error}") from None


def read_tensors(path: Path) -> StoredTensors:
    """All tensors of a safetensors file, each read on access."""
    return StoredTensors(path)


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor, without reading tensors from files.

    >>> shapes_of({"a": torch.ones(2, 3)})
    {'a': (2, 3)}
    """
    if isinstance(tensors, StoredTensors):
        return tensors.shapes
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def check_parameter_count(parameters: int, blocks: int, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a config that describes a far larger network than the weights, before it is built.

    >>> check_parameter_count(10**12, 2, {"a": torch.ones(2, 3)})
    Traceback (most recent call last):
    diffinity.errors.CheckpointError: the config asks for about 1,000,000,000,000 parameters in 2 blocks, and the \
weights are 6 numbers in 1 tensors: they do not belong together
    """
    shapes = shapes_of(tensors)
    stored = sum(math.prod(shape) for shape in shapes.values())
    if parameters > 2 * stored or blocks > len(shapes):
        raise CheckpointError(
            f"the config asks for about {parameters:,} parameters in {blocks:,} blocks, and the weights are "
            f"{stored:,} numbers in {len(shapes):,} tensors: they do not belong together"
        )


SMALL = 50_000_000  # parameters
M = TypeVar("M", bound=torch.nn.Module)


def unfilled(build: Callable[[], M], parameters: int) -> M:
    """Build a network of about `parameters` parameters, whose weights are loaded afterwards.

    A large network is created without memory (on the meta device). A small network gets memory, because the meta
    device would make torch import its compiler, which takes longer than the rest of the loading.

    >>> unfilled(lambda: torch.nn.Linear(2, 3), 6).weight.device.type
    'cpu'
    """
    if parameters > SMALL:
        with torch.device("meta"):
            return build()
    with torch.random.fork_rng(devices=[]):
        return build()


def load_strictly(module: torch.nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Replace the module's parameters and buffers (which may be on the meta device) by `tensors`.

    Tensors are converted to the module's floating type. Their names and shapes must be exactly those of the
    module.
    """
    parameters, shapes = module.state_dict(), shapes_of(tensors)
    problems = [f"{name} is missing" for name in parameters.keys() - shapes.keys()]
    problems += [f"{name} is not part of this model" for name in shapes.keys() - parameters.keys()]
    problems += [
        f"{name} has shape {shapes[name]}, the config asks for {tuple(parameters[name].shape)}"
        for name in parameters.keys() & shapes.keys()
        if shapes[name] != tuple(parameters[name].shape)
    ]
    _refuse(problems)  # before any tensor is read
    converted = {}
    for name, parameter in parameters.items():
        tensor = tensors[name]
        if not tensor.is_floating_point():
            problems.append(f"{name} has type {tensor.dtype}, expected a floating type")
        elif not bool(torch.isfinite(tensor).all()):
            problems.append(f"{name} has values that are not finite")
        converted[name] = tensor.to(parameter.dtype)
    _refuse(problems)
    module.load_state_dict(converted, strict=True, assign=True)


def _refuse(problems: list[str]) -> None:
    if problems:
        first_problems = "; ".join(sorted(problems)[:4])
        more = f"; and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise CheckpointError(f"the weights do not fit: {first_problems}{more}")


def _umask() -> int:
    """The umask of the process; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
