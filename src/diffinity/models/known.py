"""The published models with a short name: size, licence, purpose, and whether they are on this machine."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub

from diffinity.errors import CheckpointError
from diffinity.models.download import RELEASES, fetch_release
from diffinity.models.hub import (
    CONFIG,
    NOT_HERE_OFFLINE,
    TOKENIZER,
    fetch_model,
    fetch_tokenizer,
    is_cached,
    is_offline,
    progress_bars,
)
from diffinity.models.transfer import Progress


@dataclass(frozen=True)
class KnownModel:
    """A published model: on the hub under `repo_id`, or a release that is imported."""

    name: str
    parameters: str
    download_bytes: int  # approximate size of the tensors, or of the imported model
    licence: str
    good_for: str
    repo_id: str | None = None
    tokenizer: str | None = None  # the hub model whose tokenizer it uses, if it has none

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, so that it can be loaded offline."""
        if self.repo_id is not None:
            has_tokenizer = self.tokenizer is None or is_cached(self.tokenizer, TOKENIZER)
            return has_tokenizer and is_cached(self.repo_id)
        return (release_folder(self.name) / CONFIG).is_file()


KNOWN = {
    model.name: model
    for model in (
        KnownModel(
            "langflow-owt",
            "171 M",
            683_221_456,
            "Apache-2.0",
            "English web text on a CPU; any constraint",
            "Continuous-Rivals-Discrete/langflow-owt",
            "openai-community/gpt2",
        ),
        KnownModel(
            "langflow-lm1b",
            "141 M",
            561_890_676,
            "Apache-2.0",
            "English news sentences in lower case; no JSON",
            "Continuous-Rivals-Discrete/langflow-lm1b",
            "google-bert/bert-base-uncased",
        ),
        KnownModel(
            "plaid-1b",
            "1.3 B",
            5_000_000_000,
            "none stated",
            "English web text on a GPU; the paper's model",
        ),
    )
}


def known_folder(name: str, *, revision: str | None = None, progress: Progress | None = None) -> Path:
    """The folder of a model by its short name; a model that is not on this machine is fetched.

    >>> known_folder("plaid-2b")
    Traceback (most recent call last):
    diffinity.errors.CheckpointError: there is no known model 'plaid-2b'; known: langflow-owt, \
langflow-lm1b, plaid-1b
    """
    if name not in KNOWN:
        raise CheckpointError(f"there is no known model {name!r}; known: {', '.join(KNOWN)}")
    model = KNOWN[name]
    if model.repo_id is not None:
        folder = fetch_model(model.repo_id, revision=revision, progress=progress)
        if model.tokenizer is not None:
            fetch_tokenizer(model.tokenizer)
        return folder
    folder = release_folder(name)
    if not model.is_here:
        if is_offline():
            raise CheckpointError(f"{name} {NOT_HERE_OFFLINE}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with nullcontext(progress) if progress is not None else progress_bars() as show:
            fetch_release(RELEASES[name], folder, progress=show)
    return folder


def release_folder(name: str) -> Path:
    """The folder of an imported release: under $DIFFINITY_HOME, otherwise beside the hub's cache."""
    home = os.environ.get("DIFFINITY_HOME")
    return (Path(home) if home else Path(huggingface_hub.constants.HF_HOME) / "diffinity") / "models" / name
