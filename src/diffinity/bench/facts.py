"""The provenance of a run for the end of a report: command, machine, seeds, models and numbers of samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from diffinity.bench.experiments import EXPERIMENTS
from diffinity.bench.layout import NOT_MEASURED
from diffinity.bench.store import Run
from diffinity.bench.studies import STUDIES
from diffinity.bench.summary import Results


def run_facts(run: Run, results: Results | None = None) -> Iterator[tuple[str, str]]:
    """The command, the machine, the seeds, the models and the numbers of samples, as pairs of name and value.

    >>> from diffinity.bench.summary import example
    >>> dict(run_facts(example().run))["seed"]
    '0'
    """
    info = run.info
    settings = info.get("settings", {})
    sessions = info.get("sessions", [])
    for command in dict.fromkeys(session.get("command", "") for session in sessions):
        yield "command", f"`{command}`"
    if run.suite in EXPERIMENTS:
        yield "suite", EXPERIMENTS[run.suite].about
    elif run.suite in STUDIES:
        yield "suite", STUDIES[run.suite].about
    yield "seed", str(settings.get("seed", "not recorded"))
    described = [
        f"{name} {settings[name]}" for name in ("samples", "length", "steps") if settings.get(name) is not None
    ]
    if settings.get("schemas"):
        described.append(f"schemas {settings['schemas']}, selected by the rule “{settings.get('selection')}”")
    if settings.get("every", 1) > 1:
        described.append(f"one constraint of {settings['every']}")
    yield "settings", ", ".join([*described, *(["quick"] if settings.get("quick") else [])]) or "the suite's own"
    if results is not None:
        yield "samples", _counted(results)
    for role, model in info.get("models", {}).items():
        weights = model.get("model.safetensors", "")
        yield (
            f"{role} model",
            f"{model.get('source', '?')}" + (f", weights SHA-256 {weights[:16]}…" if weights else ""),
        )
    if results is not None:
        yield "perplexity under", results.scorer or NOT_MEASURED
    for machine in dict.fromkeys(_machine(session.get("machine", {})) for session in sessions):
        yield "machine", machine
    for versions in dict.fromkeys(_listed(session.get("versions", {})) for session in sessions):
        yield "versions", versions
    dates = [str(session.get("started", "")) for session in sessions]
    if dates:
        yield "run on", dates[0][:10] + (f" to {dates[-1][:10]}" if dates[-1][:10] != dates[0][:10] else "")
    for name, reason in info.get("unavailable", {}).items():
        yield "did not run", f"{name}: {reason}"
    left_out = info.get("left_out", [])
    if left_out:
        yield "left out", f"{len(left_out)} schemas, each with its reason in run.json"


def _counted(results: Results) -> str:
    run = results.run
    cases = len(run.cases)
    n_samples = sum(row.outcome == "sample" for row in run.samples)
    expected = sum(
        0 if lines[0].outcome != "sample" else results.samples_per_case
        for name in run.systems
        for lines in results.rows(name).values()
    )
    missing = len(run.systems) * cases - sum(len(results.rows(name)) for name in run.systems)
    summary = f"{n_samples:,} of {len(run.systems)} systems on {cases} constraints"
    return summary + (" (the run is not finished)" if missing or n_samples < expected else "")


def _machine(machine: Mapping[str, Any]) -> str:
    memory = machine.get("memory_gb")
    parts = [
        machine.get("cpu"),
        f"{machine.get('cores')} cores",
        f"{memory} GB" if memory else None,
        machine.get("os"),
    ]
    return ", ".join(str(part) for part in parts if part)


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
