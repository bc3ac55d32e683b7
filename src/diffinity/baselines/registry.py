"""Every benchmarked system by its stable name, built from a set of models on first use.

A name may carry options, as in `paper@scale=1.5` or `auto@steps=64,framing=search`; `variants` writes such names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from diffinity.baselines.base import System
from diffinity.constraints.base import Constraint
from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.models.loading import EMBEDDED

Role = Literal["diffusion", "autoregressive", "masked"]
ROLES: tuple[Role, ...] = ("diffusion", "autoregressive", "masked")
GROUPS = ("all", "ours", "baselines")
HUGGING_FACE = ("hf:", "hf+code:")
PER_CALL = "batch"  # an option of the call, not of the system: the number of texts


@dataclass(frozen=True)
class Models:
    """The sources of the models. Each is a folder, a hub id or hf:NAME; None for the embedded model.

    >>> Models().source("masked")
    'embedded'
    """

    diffusion: str | None = None
    autoregressive: str | None = None
    masked: str | None = None

    def source(self, role: Role) -> str:
        """The name of a role's model in reports: its id, the last part of its folder, or "embedded"."""
        name = self.requested(role)
        return "embedded" if name is None else Path(name).name if Path(name).is_dir() else name

    def requested(self, role: Role) -> str | None:
        """The requested source."""
        return {"diffusion": self.diffusion, "autoregressive": self.autoregressive, "masked": self.masked}[role]

    def folder(self, role: Role) -> Path | None:
        """The folder of a model, if it is a local folder and not on the hub."""
        name = self.requested(role)
        if name is not None:
            return Path(name) if Path(name).is_dir() else None
        folder = EMBEDDED if role == "diffusion" else EMBEDDED.with_name(role)
        return folder if folder.is_dir() else None

    def load(self, role: Role) -> Any:
        """The model of a role, loaded once per process."""
        return _load(role, self.requested(role))


@dataclass(frozen=True)
class Entry:
    """A system in the registry: its description, the role of its model, and the function that builds it."""

    name: str
    about: str
    group: Literal["ours", "baselines"]
    role: Role
    make: Callable[[Any, Mapping[str, Any]], System] = field(repr=False)
    options: frozenset[str] = frozenset()  # allowed in a name
    context: frozenset[str] = frozenset()  # set only by a run
    reference: str | None = None  # the same model without a constraint, the reference for time
    prepare: Callable[[Any, Constraint, int], Mapping[str, Any]] | None = field(default=None, repr=False)


@lru_cache(maxsize=len(ROLES))
def _load(role: Role, source: str | None) -> Any:
    from diffinity.baselines.masked import masked_model
    from diffinity.models.causal import causal_model
    from diffinity.models.loading import load
    from diffinity.models.transformer import AutoregressiveLM, MaskedLM

    if role == "diffusion":
        return load(source)
    folder = Models(**{role: source}).folder(role)
    if folder is not None:
        return (AutoregressiveLM if role == "autoregressive" else MaskedLM).from_pretrained(folder)
    if source is None:
        raise CheckpointError(f"this version has no embedded {role} model: name a folder, or hf:NAME")
    if not source.startswith(HUGGING_FACE):
        raise CheckpointError(f"there is no {role} model at {source!r}: expected a folder, or hf:NAME")
    if role == "autoregressive":
        return causal_model(source)
    return masked_model(source)


def _guided(**fixed: Any) -> Callable[[Any, Mapping[str, Any]], System]:
    def make(model: Any, options: Mapping[str, Any]) -> System:
        from diffinity.baselines.ours import GuidedSystem

        return GuidedSystem.of(model, **{**fixed, **options})

    return make


def _token_guidance(model: Any, options: Mapping[str, Any]) -> System:
    from diffinity.baselines.token_guidance import TokenGuidanceSystem

    return TokenGuidanceSystem(model, **_renamed(options, steps="num_inference_steps"))


def _classifier(form: Any) -> Callable[[Any, Mapping[str, Any]], System]:
    def make(model: Any, options: Mapping[str, Any]) -> System:
        from diffinity.baselines.classifier import ClassifierSystem

        return ClassifierSystem(model, form, **_renamed(options, steps="num_inference_steps"))

    return make


def _trained(system: Any, constraint: Constraint, length: int) -> dict[str, float]:
    """Train the classifier of a constraint; returns its AUC and the training cost."""
    began = time.perf_counter()
    auc = system.auc(constraint, length)
    return {"auc": auc.overall, "preparation_seconds": time.perf_counter() - began}


def _autoregressive(engine: Any, name: str) -> Callable[[Any, Mapping[str, Any]], System]:
    def make(model: Any, options: Mapping[str, Any]) -> System:
        from diffinity.baselines.autoregressive import AutoregressiveSystem

        return AutoregressiveSystem(model, engine, name=name, **options)

    return make


def _conditional(model: Any, options: Mapping[str, Any]) -> System:
    from diffinity.baselines.conditional import ConditionalSystem

    return ConditionalSystem(model, **options)


def _masked(decoding: Any, name: str) -> Callable[[Any, Mapping[str, Any]], System]:
    def make(model: Any, options: Mapping[str, Any]) -> System:
        from diffinity.baselines.masked import MaskedSystem

        return MaskedSystem(model, decoding, name=name, **options)

    return make


def _renamed(options: Mapping[str, Any], **names: str) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in options.items()}


PLAIN = "unconstrained"
PLAIN_CAUSAL = "autoregressive-unconstrained"
PLAIN_MASKED = "masked-unconstrained"


def _diffusion(name: str, description: str, group: Literal["ours", "baselines"] = "ours", **fixed: Any) -> Entry:
    options = frozenset({"scale", "steps", "framing", "particles"})
    return Entry(name, description, group, "diffusion", _guided(name=name, **fixed), options, reference=PLAIN)


def _by_classifier(form: str, description: str) -> Entry:
    return Entry(
        f"classifier-{form}",
        f"classifier guidance, {description}, argmax",
        "baselines",
        "diffusion",
        _classifier(form),
        frozenset({"steps", "scale"}),
        frozenset({"others", "cache"}),
        PLAIN,
        _trained,
    )


def _causal(name: str, description: str, engine: str) -> Entry:
    options = frozenset({"temperature", "top_p"})
    make = _autoregressive(engine, name)
    return Entry(
        name,
        f"autoregressive, {description}",
        "baselines",
        "autoregressive",
        make,
        options,
        reference=PLAIN_CAUSAL,
    )


def _unmasking(name: str, description: str, decoding: str) -> Entry:
    options = frozenset({"steps", "block_length", "remasking", "temperature", "promise"})
    make = _masked(decoding, name)
    return Entry(
        name, f"masked diffusion, {description}", "baselines", "masked", make, options, reference=PLAIN_MASKED
    )


ENTRIES = (
    _diffusion("auto", "our default guidance, one draft, exact decoding", best_of=1),
    _diffusion("auto-argmax", "our default guidance, one draft, argmax", decode="argmax", best_of=1),
    _diffusion("auto-drafts", "our default guidance, the best of the model's own drafts, exact decoding"),
    _diffusion("auto-sample", "our default guidance, decoded by an exact draw", decode="sample"),
    _diffusion("fast", "our preset for time, exact decoding", guidance="fast"),
    _diffusion("best", "our preset for quality, exact decoding", guidance="best"),
    _diffusion("path", "path guidance, exact decoding", guidance="path"),
    _diffusion("path-argmax", "path guidance, argmax", guidance="path", decode="argmax"),
    _diffusion("posterior", "posterior guidance, exact decoding", guidance="posterior"),
    _diffusion("posterior-argmax", "posterior guidance, argmax", guidance="posterior", decode="argmax"),
    _diffusion("gradient", "gradient guidance with guided self-conditioning, exact decoding", guidance="gradient"),
    _diffusion(
        "gradient-argmax",
        "gradient guidance with guided self-conditioning, argmax",
        guidance="gradient",
        decode="argmax",
    ),
    _diffusion("mixed", "half gradient, half path, exact decoding", guidance="mixed"),
    _diffusion("mixed-argmax", "half gradient, half path, argmax", guidance="mixed", decode="argmax"),
    _diffusion(
        "particles-4",
        "four weighted guided trajectories a sample, exact draw",
        guidance="posterior",
        scale=1.0,
        particles=4,
        decode="sample",
    ),
    _diffusion(
        "paper",
        "the paper's method as published: gradient, guidance scale 2.5, argmax",
        "baselines",
        guidance="paper",
        decode="argmax",
    ),
    _diffusion("decoding-only", "no guidance, exact decoding", "baselines", guidance="none"),
    _diffusion(PLAIN, "no guidance, argmax", "baselines", guidance="none", decode="argmax"),
    Entry(
        "token-guidance",
        "PLAID's own token guidance, argmax",
        "baselines",
        "diffusion",
        _token_guidance,
        frozenset({"steps", "weight"}),
        reference=PLAIN,
    ),
    _by_classifier("full", "all that a step knows"),
    _by_classifier("latent", "latent only"),
    _by_classifier("backbone", "with the backbone"),
    _causal("llguidance", "tokens masked by llguidance", "llguidance"),
    _causal("outlines-core", "tokens masked by outlines-core", "outlines-core"),
    _causal("autoregressive-diffinity", "tokens masked by our automaton, within the length", "diffinity"),
    Entry(
        "autoregressive-conditional",
        "autoregressive, the model's own texts given the constraint, by particles",
        "baselines",
        "autoregressive",
        _conditional,
        frozenset({"particles"}),
        reference=PLAIN_CAUSAL,
    ),
    _causal(PLAIN_CAUSAL, "no constraint", "none"),
    _unmasking("dingo", "DINGO", "dingo"),
    _unmasking("masked-exact", "exact draws given the automaton", "exact"),
    _unmasking("masked-left-to-right", "unmasked from the left", "left-to-right"),
    _unmasking(PLAIN_MASKED, "no constraint", "unconstrained"),
)
REGISTRY: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}


def chosen(names: Iterable[str]) -> list[str]:
    """The names of systems, with the groups `all`, `ours` and `baselines` expanded, without duplicates.

    >>> chosen(["paper", "paper", "ours"])[:3]
    ['paper', 'auto', 'auto-argmax']
    """
    systems: list[str] = []
    for name in names:
        if name in GROUPS:
            systems += [entry.name for entry in ENTRIES if name in ("all", entry.group)]
        else:
            entry_of(name)
            systems.append(name)
    return list(dict.fromkeys(systems))


def entry_of(name: str) -> Entry:
    """The entry of a name, which may have options.

    >>> entry_of("paper@scale=1.5").name
    'paper'
    """
    base, _ = split(name)
    if base not in REGISTRY:
        raise InvalidArgument(f"there is no system {base!r}; there are {', '.join([*REGISTRY, *GROUPS])}")
    return REGISTRY[base]


def split(name: str) -> tuple[str, dict[str, Any]]:
    """A name as its base and its options.

    >>> split("auto@steps=64,framing=search")
    ('auto', {'steps': 64, 'framing': 'search'})
    """
    base, _, option_text = name.partition("@")
    options: dict[str, Any] = {}
    for part in option_text.split(",") if option_text else ():
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise InvalidArgument(f"{name!r}: options are written name@key=value,key=value")
        options[key] = _value(value)
    return base, options


def variants(names: Sequence[str], option: str, values: Sequence[object]) -> list[str]:
    """All names with all values of an option.

    >>> variants(["paper"], "scale", [1.0, 2.5])
    ['paper@scale=1.0', 'paper@scale=2.5']
    """
    return [f"{name}{',' if '@' in name else '@'}{option}={value}" for name in names for value in values]


def build(name: str, models: Models, defaults: Mapping[str, Any] | None = None) -> System:
    """The system with this name; `defaults` are options for the systems that take them.

    A system that prepares for a constraint also has a method `prepare(constraint, length)`.

    >>> import tempfile, diffinity as dy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dy.fit_markov(["a cat."]).save_pretrained(folder)
    ...     build("paper@scale=1.5", Models(diffusion=folder), {"steps": 4}).name
    'paper@scale=1.5'
    """
    entry, (_, options) = entry_of(name), split(name)
    options.pop(PER_CALL, None)
    unknown = sorted(options.keys() - entry.options)
    if unknown:
        takes = ", ".join(sorted(entry.options)) or "none"
        raise InvalidArgument(f"the system {entry.name} has no option {unknown[0]!r}; it takes {takes}")
    accepted = entry.options | entry.context
    general_options = {
        key: value for key, value in (defaults or {}).items() if key in accepted and value is not None
    }
    system = entry.make(models.load(entry.role), {**general_options, **options})
    return _Named(name, system) if entry.prepare is None else _NamedAndPrepared(name, system, entry.prepare)


@dataclass(frozen=True)
class _Named:
    """A system under its name in results."""

    name: str
    system: System

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        return self.system.generate(constraint, n, length, seed)


@dataclass(frozen=True)
class _NamedAndPrepared(_Named):
    prepare_system: Callable[[Any, Constraint, int], Mapping[str, Any]]

    def prepare(self, constraint: Constraint, length: int) -> Mapping[str, Any]:
        return self.prepare_system(self.system, constraint, length)


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
