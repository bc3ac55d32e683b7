"""The published models that we know, by short name: size, licence, purpose, and whether they are here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants

from diffinity.errors import CheckpointError
from diffinity.models.download import RELEASES, fetch_release
from diffinity.models.hub import CONFIG, fetch_model, is_cached
from diffinity.models.transfer import Progress


@dataclass(frozen=True)
class KnownModel:
    """A published model: on the hub under `repo_id`, or without one a release that is imported."""

    name: str
    parameters: str
    download_bytes: int  # about
    licence: str
    good_for: str
    repo_id: str | None = None

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, so that loading it fetches nothing large."""
        if self.repo_id is not None:
            return is_cached(self.repo_id)
        return (release_folder(self.name) / CONFIG).is_file()


KNOWN = {
    model.name: model
    for model in (
        KnownModel(
            "langflow-owt",
            "171 M",
            683_000_000,
            "Apache-2.0",
            "English web text; byte-level tokens, so any constraint; trained on windows of 1,024 tokens",
            "Continuous-Rivals-Discrete/langflow-owt",
        ),
        KnownModel(
            "langflow-lm1b",
            "141 M",
            562_000_000,
            "Apache-2.0",
            "English news sentences in lower case, spaces around punctuation; windows of 128 tokens",
            "Continuous-Rivals-Discrete/langflow-lm1b",
        ),
        KnownModel(
            "plaid-1b",
            "1.3 B",
            4_700_000_000,
            "none stated",
            "English web text, the model of the paper; wants a GPU",
        ),
    )
}


def known_folder(name: str, *, revision: str | None = None, progress: Progress | None = None) -> Path:
    """The folder of a model by its short name; what is not on this machine is fetched.

    >>> known_folder("plaid-2b")
    Traceback (most recent call last):
    diffinity.errors.CheckpointError: there is no known model 'plaid-2b'; known: langflow-owt, \
langflow-lm1b, plaid-1b
    """
    if name not in KNOWN:
        raise CheckpointError(f"there is no known model {name!r}; known: {', '.join(KNOWN)}")
    model = KNOWN[name]
    if model.repo_id is not None:
        return fetch_model(model.repo_id, revision=revision, progress=progress)
    folder = release_folder(name)
    if not model.is_here:
        if constants.HF_HUB_OFFLINE:
            raise CheckpointError(f"{name} is not on this machine, and HF_HUB_OFFLINE forbids to fetch it")
        folder.parent.mkdir(parents=True, exist_ok=True)
        fetch_release(RELEASES[name], folder, progress=progress)
    return folder


def release_folder(name: str) -> Path:
    """Where an imported release is kept: under $DIFFINITY_HOME, else beside the hub's cache."""
    home = os.environ.get("DIFFINITY_HOME")
    return (Path(home) if home else Path(constants.HF_HOME) / "diffinity") / "models" / name
