"""One session of a run: from the command's options to settings, cases and jobs; the folder records them."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from diffinity.baselines.registry import Models, Role, chosen, entry_of
from diffinity.bench.experiments import (
    EXPERIMENTS,
    Experiment,
    SuitePlan,
    describe,
    make_jobs,
    named_cases,
    select_cases,
)
from diffinity.bench.provenance import fingerprint, machine, versions
from diffinity.bench.run import Outcome, Progress, execute
from diffinity.bench.store import RunError, RunFolder
from diffinity.bench.studies import STUDIES, StudySettings, run_study
from diffinity.bench.workers import one_thread
from diffinity.errors import InvalidArgument, require

QUICK_STEPS = 64
TRAINED = "classifiers"  # inside the run's folder


JSON_SUITES = ("json", "latency", "framings")  # suites whose samples jsonschema-rs checks


@dataclass(frozen=True)
class Request:
    """The user's options; None for the default of the suite or the model.

    >>> Request("json", Path("run"), seed=3).seed
    3
    """

    suite: str
    out: Path
    quick: bool = False
    systems: tuple[str, ...] = ()
    samples: int | None = None
    length: int | None = None
    steps: int | None = None
    seed: int = 0
    jobs: int | None = None
    ray: bool = False
    schemas: str | None = None
    selection: str = "ours"
    every: int = 1
    models: Models = field(default_factory=Models)
    retry_errors: bool = False


def run_suite(
    request: Request,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run the missing part of the request.

    >>> run_suite(Request("poetry", Path("run")))
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: there is no suite 'poetry'; there are natural-language, json, scale, \
latency, match, steps, framings, fidelity, fight-club
    """
    if request.suite in STUDIES:
        return _run_study(request, tell)
    if request.suite not in EXPERIMENTS:
        names = ", ".join([*EXPERIMENTS, *STUDIES])
        raise InvalidArgument(f"there is no suite {request.suite!r}; there are {names}")
    if request.suite in JSON_SUITES:
        require("bench", f"the suite {request.suite}", "jsonschema_rs")
    return _run_cases(request, EXPERIMENTS[request.suite], on_progress, tell)


def _run_cases(
    request: Request, experiment: Experiment, on_progress: Callable[[Progress], None], tell: Callable[[str], None]
) -> Outcome:
    names = experiment.names(request.systems, request.quick)
    settings = _case_settings(request, experiment)
    workers = request.jobs
    if workers is None and not request.ray:
        workers = 1 if experiment.name == "latency" else machine()["cores"]
    with RunFolder.open(request.out, request.suite, settings, retry_errors=request.retry_errors) as folder:
        _begin(folder, _case_command(request, settings, workers), names, _fingerprints(request.models, names))
        plan = _plan(folder, request, experiment, settings)
        cases = plan.cases
        tell(
            f"{request.suite}: {len(names)} systems on {len(cases)} constraints, {settings['samples']} samples "
            f"each, {settings['length']} tokens, {settings['steps']} steps"
        )
        jobs = make_jobs(cases, names, settings["samples"])
        outcome = execute(folder, plan, jobs, workers=workers, ray=request.ray, on_progress=on_progress)
        unavailable = {
            name: reason for name, reason in folder.info.get("unavailable", {}).items() if name not in names
        }
        folder.update(unavailable={**unavailable, **outcome.unavailable})
        _finish(folder)
    return outcome


def _plan(folder: RunFolder, request: Request, experiment: Experiment, settings: Mapping[str, Any]) -> SuitePlan:
    """The plan of a run. Its cases are selected once and recorded, because selection compiles every case."""
    plan = SuitePlan(
        (), settings["length"], request.seed, settings["steps"], request.models, request.out / TRAINED
    )
    recorded = folder.cases()
    if recorded:
        return replace(plan, cases=tuple(named_cases(experiment, recorded, request.seed, request.schemas)))
    cases, skipped = select_cases(
        experiment,
        seed=request.seed,
        length=plan.length,
        vocabulary=plan.vocabulary,
        schemas=request.schemas,
        selection=settings["selection"],
        quick=request.quick,
    )
    plan = replace(plan, cases=tuple(cases[:: request.every]))
    folder.update(left_out=[{"id": case.id, "reason": case.reason} for case in skipped])
    folder.write_cases(describe(plan, sizes=experiment.option == "batch"))
    return plan


def _run_study(request: Request, tell: Callable[[str], None]) -> Outcome:
    study = STUDIES[request.suite]
    if request.systems and not study.takes_systems:
        raise InvalidArgument(f"the suite {request.suite} has its own systems; leave --systems out")
    if request.every > 1:
        raise InvalidArgument(f"the suite {request.suite} has too few constraints for --every")
    names = tuple(chosen(request.systems))
    options: dict[str, Any] = {
        name: getattr(request, name) for name in ("quick", "seed", "samples", "steps", "length")
    }
    settings = StudySettings(**options, systems=names, models=request.models)
    one_thread()
    with RunFolder.open(request.out, request.suite, {**options, "systems": list(names)}) as folder:
        _begin(folder, study_command(request), names, _fingerprints(request.models, names))
        complete = run_study(folder, study, settings, tell)
        _finish(folder)
    return Outcome(complete)


def _case_settings(request: Request, experiment: Experiment) -> dict[str, Any]:
    """All settings that the samples depend on, with defaults filled in."""
    if request.selection not in ("ours", "paper"):
        raise InvalidArgument(f"--selection is ours or paper, not {request.selection!r}")
    defaults = request.models.load("diffusion").sampling_defaults
    steps = defaults.num_inference_steps
    return {
        "quick": request.quick,
        "samples": request.samples or (experiment.quick if request.quick else experiment.full).samples,
        "length": request.length or defaults.length,
        "steps": request.steps or (min(QUICK_STEPS, steps) if request.quick else steps),
        "seed": request.seed,
        "selection": request.selection,
        "schemas": None if request.schemas is None else schemas_name(request.schemas),
        **({"every": request.every} if request.every > 1 else {}),  # absent in runs of all constraints
    }


def _begin(folder: RunFolder, command: str, names: Sequence[str], models: Mapping[str, Mapping[str, str]]) -> None:
    """Record a new session: the command, the machine, the versions, the models."""
    for role, model in models.items():
        recorded = folder.info.get("models", {}).get(role, model)
        if recorded != model:
            raise RunError(
                f"{folder.path} was made with another {role} model ({recorded.get('source')} then, "
                f"{model['source']} now, or other weights): name another folder"
            )
    session = {
        "command": command,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
    }
    folder.update(
        systems=list(dict.fromkeys([*folder.info.get("systems", ()), *names])),
        models={**folder.info.get("models", {}), **models},
        sessions=[*folder.info.get("sessions", ()), session],
    )


def _finish(folder: RunFolder) -> None:
    """Record the end of the session."""
    *earlier, last = folder.info["sessions"]
    folder.update(sessions=[*earlier, {**last, "finished": datetime.now(UTC).isoformat(timespec="seconds")}])


def _fingerprints(models: Models, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The models that the systems use, by role."""
    by_role: dict[str, dict[str, str]] = {}
    for role in dict.fromkeys(entry_of(name).role for name in names):
        folder = models.folder(role)
        by_role[role] = {"source": models.source(role), **(fingerprint(folder) if folder else {})}
    return by_role


def _case_command(request: Request, settings: Mapping[str, Any], jobs: int | None) -> str:
    """The command of the run, with all settings and without paths of this machine."""
    command = ["diffinity", "bench", "run", request.suite, "--out", request.out.name]
    command += ["--quick"] if request.quick else []
    command += ["--systems", ",".join(request.systems)] if request.systems else []
    for name in ("samples", "length", "steps", "seed"):
        command += [f"--{name}", str(settings[name])]
    command += ["--every", str(request.every)] if request.every > 1 else []
    command += ["--jobs", str(jobs)] if jobs is not None else []
    command += ["--ray"] if request.ray else []
    if request.schemas is not None:
        command += ["--schemas", Path(request.schemas).name, "--selection", request.selection]
    return shlex.join([*command, *_model_options(request.models)])


def study_command(request: Request) -> str:
    """The command of a study.

    >>> study_command(Request("fidelity", Path("some/run"), quick=True, samples=50))
    'diffinity bench run fidelity --out run --quick --seed 0 --samples 50'
    """
    command = ["diffinity", "bench", "run", request.suite, "--out", request.out.name]
    command += ["--quick"] if request.quick else []
    command += ["--systems", ",".join(request.systems)] if request.systems else []
    command += ["--seed", str(request.seed)]
    for name in ("samples", "steps", "length"):
        command += [f"--{name}", str(getattr(request, name))] if getattr(request, name) is not None else []
    return shlex.join([*command, *_model_options(request.models)])


def _model_options(models: Models) -> list[str]:
    """The options that name models other than the embedded ones."""
    options: dict[Role, str] = {"diffusion": "--model", "autoregressive": "--autoregressive", "masked": "--masked"}
    pairs = [
        (option, models.source(role)) for role, option in options.items() if models.requested(role) is not None
    ]
    return [word for pair in pairs for word in pair]


def schemas_name(schemas: str) -> str:
    """The source of schemas without its path, with a hash of its content if it is a file.

    >>> schemas_name("hub")
    'hub'
    """
    path = Path(schemas)
    if path.is_file():
        return f"{path.name}, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    return path.name
