"""`load`: a model from a folder, from the Hugging Face hub, or from the package."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, overload

import torch

from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.models.hub import CONFIG, fetch_config, fetch_model
from diffinity.models.hugging_face import HuggingFaceCausal, HuggingFaceDiffusion, is_causal
from diffinity.models.known import KNOWN, known_folder
from diffinity.models.langflow_import import import_langflow
from diffinity.models.langflow_lm import LangFlowLM
from diffinity.models.markov import MarkovLM
from diffinity.models.plaid_lm import PlaidLM
from diffinity.models.pretrained import is_published_langflow, read_config, transformers_config
from diffinity.models.transformer import AutoregressiveLM, MaskedLM

Loaded = PlaidLM | LangFlowLM | MarkovLM | MaskedLM | AutoregressiveLM
KINDS: dict[str, type[Loaded]] = {
    PlaidLM.kind: PlaidLM,
    LangFlowLM.kind: LangFlowLM,
    MarkovLM.kind: MarkovLM,
    MaskedLM.kind: MaskedLM,
    AutoregressiveLM.kind: AutoregressiveLM,
}
COMPANIONS = {kind.kind: kind for kind in (AutoregressiveLM, MaskedLM)}
EMBEDDED = Path(__file__).parent / "embedded" / "default"
EMBEDDED_COMPANIONS = {f"embedded-{kind}": EMBEDDED.with_name(kind) for kind in COMPANIONS}
log = logging.getLogger("diffinity.models")
LONGEST_HUB_ID = 96 + 1 + 96  # characters, by the hub's rules
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@overload
def load(
    source: None = None,
    *,
    device: str | torch.device = "cpu",
    block_dtype: torch.dtype | None = None,
    verify: bool = True,
) -> PlaidLM: ...


@overload
def load(
    source: str | Path | None = None,
    *,
    device: str | torch.device = "cpu",
    block_dtype: torch.dtype | None = None,
    revision: str | None = None,
    verify: bool = True,
    trust_remote_code: bool = False,
    tokenizer: str | None = None,
) -> Any: ...


def load(
    source: str | Path | None = None,
    *,
    device: str | torch.device = "cpu",
    block_dtype: torch.dtype | None = None,
    revision: str | None = None,
    verify: bool = True,
    trust_remote_code: bool = False,
    tokenizer: str | None = None,
) -> Loaded | HuggingFaceDiffusion | HuggingFaceCausal:
    """A model from a folder, by its short name, or from the hub by its `owner/name`.

    Without `source` it is the embedded diffusion model; "embedded-masked" and "embedded-autoregressive" are the
    other embedded models. A folder takes precedence: a folder called langflow-owt hides the known model.
    `block_dtype=torch.bfloat16` halves the memory of the blocks of PLAID and LangFlow; their authors use it on a
    GPU. Models of the `transformers` library (LLaDA, Dream, MDLM, Duo, or a causal model such as GPT-2) are
    loaded from a folder or hub id, in the type `block_dtype` or the type of the files. Their diffusion models
    contain code, which runs only with `trust_remote_code=True`. `tokenizer` names a tokenizer for a model that has
    none.

    >>> load("no/such/folder")
    Traceback (most recent call last):
    diffinity.errors.CheckpointError: there is no model at 'no/such/folder': expected a folder with \
config.json, a hub id such as owner/name, or one of langflow-owt, langflow-lm1b, plaid-1b, \
embedded-autoregressive, embedded-masked
    """
    _check_source(source)
    device = usable_device(device)
    transformers_model = _transformers_loader(source, revision)
    if transformers_model is not None:
        name, kind = transformers_model
        return kind.load(
            name,
            device=device,
            dtype=block_dtype,
            trust_remote_code=trust_remote_code,
            tokenizer=tokenizer,
            revision=None if Path(name).is_dir() else revision,
        )
    folder = model_folder(source, revision)
    config = read_config(folder)
    log.info("reading a model of kind %s from %s", config["kind"], folder)
    if config["kind"] not in KINDS:
        raise CheckpointError(f"{folder / CONFIG}: unknown kind {config['kind']!r}; known: {', '.join(KINDS)}")
    if tokenizer is not None and is_published_langflow(config):
        return import_langflow(folder, tokenizer, verify=verify).to(device, block_dtype=block_dtype)
    model = KINDS[config["kind"]].read(folder, config, verify=verify)
    if isinstance(model, MaskedLM | AutoregressiveLM):
        return model.to(device)
    if not isinstance(model, MarkovLM):
        return model.to(device, block_dtype=block_dtype)
    if device.type != "cpu":
        raise CheckpointError(f"a {model.kind} model runs on the CPU only, not on {device}")
    return model


def usable_device(device: str | torch.device) -> torch.device:
    """The device with this name; refused if torch does not know it or this machine does not have it.

    >>> usable_device("abacus")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: device abacus can't be used: ...
    """
    try:
        result = torch.device(device)
        torch.empty(1, device=result)
    except Exception as error:  # torch raises RuntimeError, AssertionError, NotImplementedError, TypeError …
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidArgument(f"device {device} can't be used: {reason}") from None
    return result


def _check_source(source: object) -> None:
    """Refuse an invalid source before the file system is queried."""
    if source is not None and not isinstance(source, str | Path):
        raise InvalidArgument(
            f"a model is named by a folder, a hub id or a short name, not by {str(source)[:40]} "
            f"({type(source).__name__})"
        )
    try:
        is_local = source is None or Path(source).is_dir() or isinstance(source, Path)
    except (OSError, ValueError) as error:  # a name that is too long for a file system, or has a zero byte
        raise CheckpointError(f"there is no model at {str(source)[:40]!r}…: {error.args[-1]}") from None
    if not is_local and len(str(source)) > LONGEST_HUB_ID:
        raise CheckpointError(
            f"there is no model at {str(source)[:40]!r}…: no such folder, and a hub id has at most "
            f"{LONGEST_HUB_ID} characters"
        )


def _transformers_loader(
    source: str | Path | None, revision: str | None
) -> tuple[str, type[HuggingFaceDiffusion] | type[HuggingFaceCausal]] | None:
    """The name and the loader of a folder or hub id with a config of `transformers`; otherwise None."""
    if source is None or source in KNOWN or source in EMBEDDED_COMPANIONS:
        return None
    folder = Path(source)
    if not folder.is_dir():
        if not (isinstance(source, str) and HUB_ID.fullmatch(source) and not source.startswith(".")):
            return None
        folder = fetch_config(source, revision=revision).parent
    config = transformers_config(folder)
    if config is None:
        return None
    return str(source), HuggingFaceCausal if is_causal(config) else HuggingFaceDiffusion


def model_folder(source: str | Path | None, revision: str | None = None) -> Path:
    """The folder with the files of a model; a short name or a hub id is downloaded."""
    if source is None:
        if not EMBEDDED.is_dir():
            raise CheckpointError(
                "this version has no embedded model yet: name a folder, or fit a Markov model of your own text "
                "with `diffinity train --kind markov corpus.txt --out FOLDER`"
            )
        return EMBEDDED
    folder = Path(source)
    if folder.is_dir():
        return folder
    if source in EMBEDDED_COMPANIONS:
        return EMBEDDED_COMPANIONS[str(source)]
    if source in KNOWN:
        return known_folder(str(source), revision=revision)
    if isinstance(source, str) and HUB_ID.fullmatch(source) and not source.startswith("."):
        return fetch_model(source, revision=revision)
    raise CheckpointError(
        f"there is no model at {str(source)!r}: expected a folder with {CONFIG}, a hub id such as owner/name, or "
        f"one of {', '.join((*KNOWN, *EMBEDDED_COMPANIONS))}"
    )
