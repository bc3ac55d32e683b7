"""Classifier guidance as a baseline: a small classifier is trained for every constraint, on first use.

The paper's method needs no such training.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from diffinity.alignment import Vocabulary, align
from diffinity.baselines.classifier_data import Examples, Pool, make_examples, make_pool, own_samples
from diffinity.baselines.classifier_training import Auc, BandAuc, Trained, exact_auc, train
from diffinity.baselines.guided import guided_texts
from diffinity.constraints.base import Constraint
from diffinity.errors import CheckpointError, ConstraintError, InvalidArgument
from diffinity.guidance.classifier import ClassifierGuidance, ClassifierHead, Form, NoisyClassifier, check_form
from diffinity.models.pretrained import PretrainedLM, load_strictly, read_tensors
from diffinity.models.protocol import DiffusionLM, vocabulary_of

CACHE_VERSION = 2  # increase it when the same settings give other weights

MOST_OTHERS = 16  # constraints drawn from `others`; their texts are negatives


@dataclass(frozen=True, eq=False)
class ClassifierSystem:
    """Guidance by a classifier in one of three forms, decoded by argmax; see docs/classifier-guidance.md.

    `others` are constraints whose texts serve as negatives, for example those of a suite. If `cache` is a folder,
    the weights of every classifier, its examples and the model's samples are stored there and reused; the texts do
    not change.

    >>> import diffinity as dy
    >>> ClassifierSystem(dy.fit_markov(["a cat."]), "latent").name
    'classifier-latent'
    """

    model: DiffusionLM
    form: Form = "full"
    scale: float = 20.0
    training_steps: int = 400
    cache: Path | str | None = None
    others: Sequence[Constraint] = ()
    num_inference_steps: int | None = None
    score_temp: float | None = None
    batch_size: int = 16
    positives: int = 256
    own_samples: int = 64
    own_sample_steps: int = 32
    seed: int = 0  # of samples, examples and training; not of the texts
    name: str = ""
    _trained: dict[tuple[str, int], Trained] = field(default_factory=dict, init=False, repr=False)
    _pools: dict[int, Pool] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_form(self.model, self.form)
        for name in ("training_steps", "batch_size", "positives", "own_sample_steps"):
            if getattr(self, name) < 1:
                raise InvalidArgument(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.own_samples < 4:
            raise InvalidArgument(f"own_samples must be at least 4, but is {self.own_samples}")
        if self.cache is not None and not isinstance(self.model, PretrainedLM):
            raise InvalidArgument(f"a cache needs a model that can be saved, not a {type(self.model).__name__}")
        object.__setattr__(self, "cache", None if self.cache is None else Path(self.cache))
        object.__setattr__(self, "name", self.name or f"classifier-{self.form}")

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        """`n` texts of at most `length` tokens; text i has the seed (seed, i). Trains first if necessary."""
        guidance = ClassifierGuidance(self.trained(constraint, length).classifier, self.scale)
        return guided_texts(
            self.model,
            guidance,
            n,
            length,
            seed,
            batch_size=self.batch_size,
            num_inference_steps=self.num_inference_steps,
            score_temp=self.score_temp,
        )

    def auc(self, constraint: Constraint, length: int | None = None) -> Auc:
        """The AUC of a constraint's classifier on held-out texts; trains it if necessary."""
        return self.trained(constraint, length).auc

    def exact_auc(self, constraint: Constraint, length: int | None = None) -> Auc:
        """The AUC of the exact log P(L), for comparison with a classifier's AUC."""
        length = self.model.sampling_defaults.length if length is None else length
        examples = self.examples(constraint, length)
        automaton = align(constraint, self._vocabulary, "eos")
        return exact_auc(self.model, automaton, examples.where(examples.held_out), self.seed)

    def trained(self, constraint: Constraint, length: int | None = None) -> Trained:
        """The classifier of a constraint for texts of `length` tokens: from memory, from the cache, or trained."""
        length = self.model.sampling_defaults.length if length is None else length
        language = constraint.dfa().fingerprint
        trained_classifier = self._trained.get((language, length))
        if trained_classifier is None:
            path = self._path("classifier", length, language, self.form, self.training_steps)
            if path is not None and path.is_file():
                trained_classifier = read_trained(path, self.form)
                trained_classifier.classifier.head.to(self.model.device)
            else:
                examples, seed = self.examples(constraint, length), self._seed_of(constraint)
                trained_classifier = train(self.model, self.form, examples, self.training_steps, seed)
                if path is not None:
                    write_trained(path, trained_classifier)
            self._trained[language, length] = trained_classifier
        return trained_classifier

    def examples(self, constraint: Constraint, length: int) -> Examples:
        """The training and test texts of a constraint's classifier, the same for all forms."""
        path = self._path("examples", length, constraint.dfa().fingerprint)
        if path is not None and path.is_file():
            return read_examples(path, self.model.device)
        new_examples = make_examples(
            self.model, self._vocabulary, constraint, self._pool(length), self.positives, self._seed_of(constraint)
        )
        if path is not None:
            write_examples(path, new_examples)
        return new_examples

    def _seed_of(self, constraint: Constraint) -> int:
        """A separate seed for every constraint, independent of earlier training."""
        language = int(constraint.dfa().fingerprint[:16], 16)
        return int(np.random.SeedSequence((self.seed, language)).generate_state(1, np.uint32)[0])

    def _pool(self, length: int) -> Pool:
        if length not in self._pools:
            self._pools[length] = make_pool(
                self.model,
                self._vocabulary,
                self._samples(length),
                self._other_constraints,
                self.positives // 2 + 1,
                self.seed,
            )
        return self._pools[length]

    def _samples(self, length: int) -> Tensor:
        path = self._path("samples", length)
        if path is not None and path.is_file():
            return read_tensors(path)["tokens"].to(self.model.device)
        tokens = own_samples(self.model, self.own_samples, length, self.own_sample_steps, self.seed)
        if path is not None:
            write_file(path, {"tokens": tokens}, {})
        return tokens

    @cached_property
    def _other_constraints(self) -> list[Constraint]:
        """At most `MOST_OTHERS` of `others`, without constraints that do not compile."""
        constraints = []
        for i in np.random.default_rng(self.seed).permutation(len(self.others))[:MOST_OTHERS]:
            with suppress(ConstraintError):
                self.others[i].dfa()
                constraints.append(self.others[i])
        return constraints

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return vocabulary_of(self.model)

    @cached_property
    def _fingerprint(self) -> str:
        """A hash of the model's weights and tokenizer."""
        assert isinstance(self.model, PretrainedLM)
        digest = hashlib.blake2b(self.model.tokenizer.to_str().encode(), digest_size=16)
        for name, tensor in sorted(self.model.tensors().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def _path(self, kind: str, length: int, *facts: object) -> Path | None:
        """The cache file for data that depends on these facts, the model and the settings."""
        if self.cache is None:
            return None
        key: list[object] = [CACHE_VERSION, self._fingerprint, length, self.seed, *facts]
        key += [self.own_samples, self.own_sample_steps]
        if facts:
            key += [self.positives, [other.dfa().fingerprint for other in self._other_constraints]]
        digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=12).hexdigest()
        return Path(self.cache) / f"{kind}-{digest}.safetensors"


def write_examples(path: Path, examples: Examples) -> None:
    """Write examples to a safetensors file."""
    flags = {name: torch.from_numpy(getattr(examples, name)) for name in ("label", "near", "held_out")}
    write_file(path, {"tokens": examples.tokens, **flags}, {})


def read_examples(path: Path, device: torch.device) -> Examples:
    """Read the examples that `write_examples` wrote.

    >>> read_examples(Path("none.safetensors"), torch.device("cpu"))
    Traceback (most recent call last):
    diffinity.errors.CheckpointError: there is no weights file none.safetensors
    """
    tensors = read_tensors(path)
    try:
        flags = {name: tensors[name].numpy() for name in ("label", "near", "held_out")}
        return Examples(tensors["tokens"].to(device), **flags)
    except KeyError as error:
        raise CheckpointError(f"{path} does not hold examples ({error} is missing): delete it") from None


def write_trained(path: Path, trained: Trained) -> None:
    """Write a classifier with its AUC to a safetensors file."""
    metadata = {
        "telling": json.dumps(trained.classifier.informative_tokens),
        "auc": json.dumps(asdict(trained.auc)),
    }
    write_file(path, trained.classifier.head.state_dict(), metadata)


def read_trained(path: Path, form: Form) -> Trained:
    """Read the classifier that `write_trained` wrote.

    >>> read_trained(Path("none.safetensors"), "latent")
    Traceback (most recent call last):
    diffinity.errors.CheckpointError: there is no weights file none.safetensors
    """
    tensors = read_tensors(path)
    try:
        head = ClassifierHead(tensors["read.weight"].shape[1], tensors["position"].shape[0])
        load_strictly(head, tensors)
        with safe_open(path, framework="pt") as file:
            metadata = {name: json.loads(value) for name, value in (file.metadata() or {}).items()}
        auc, informative_tokens = metadata["auc"], tuple(map(int, metadata["telling"]))
        measured = Auc(auc["overall"], tuple(BandAuc(**band) for band in auc["by_noise"]), auc["n_texts"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not hold a classifier and its AUC ({error}): delete it") from None
    return Trained(NoisyClassifier(form, informative_tokens, head.requires_grad_(False)), measured)


def write_file(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file atomically: another process may read or write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, unfinished, metadata)
    unfinished.replace(path)
