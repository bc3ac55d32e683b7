"""Sampling methods under a constraint at an equal number of network calls: the quality of their texts.

    python -m benchmarks.sampling_trials [--cases 44] [--calls 64] [--seed 11] [--systems NAME …] [--out FILE]

The embedded model writes texts under sentence constraints of the benchmark's six kinds, drawn with a separate
seed. The table shows nats per text under the embedded autoregressive model (lower is better), the grammar judge's
clean share, distinct-2, tokens per text, the share of texts that satisfy their constraint by argmax, network
calls, backward passes, and processor time divided by that of an unguided run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import diffinity as dy
from diffinity.acceptance import decode
from diffinity.alignment import TokenAutomaton, Vocabulary, align
from diffinity.bench import grammar
from diffinity.bench.grammar import GrammarCounts
from diffinity.bench.natural_language import natural_language_cases
from diffinity.generation.loop import Run
from diffinity.guidance import (
    ChainGuidance,
    DenoisingStep,
    GradientGuidance,
    Guidance,
    MixedGuidance,
    PosteriorGuidance,
    Prediction,
    Unguided,
)
from diffinity.models import PlaidLM
from diffinity.models.loading import EMBEDDED
from diffinity.models.plaid_lm import PlaidModules
from diffinity.models.protocol import text_of
from diffinity.models.schedule import NoiseLevel
from diffinity.models.transformer import AutoregressiveLM
from diffinity.processes.base import Draws
from diffinity.processes.gaussian import GaussianProcess, SamplerState
from diffinity.training.quality import distinct_2

LENGTH = 32
BAND = (0.3, 0.7)  # the range of steps in which most tokens are decided


class SharpenedLM(PlaidLM):
    """log p ∝ (1 + w)·log p(with self-conditioning) − w·log p(without it).

    It takes two network calls per step in the band.
    """

    weight = 0.5

    def denoise(self, z: Tensor, noise_level: Tensor, x_selfcond: Tensor) -> Tensor:
        strong = super().denoise(z, noise_level, x_selfcond)
        low, high = self.noise_level(torch.tensor([1.0 - BAND[1], 1.0 - BAND[0]], dtype=torch.float64)).tolist()
        if not low <= float(noise_level[0]) <= high or not bool(x_selfcond.any()):
            return strong
        weak = super().denoise(z, noise_level, torch.zeros_like(x_selfcond))
        return (1 + self.weight) * strong.log_softmax(-1) - self.weight * weak.log_softmax(-1)


class DenserLM(PlaidLM):
    """A grid with steps half as long in the band of noise where most tokens are decided, longer elsewhere."""

    def noise_level(self, t: Tensor) -> Tensor:
        low, high = 1.0 - BAND[1], 1.0 - BAND[0]
        band_share = 2 * (high - low) / (1 + high - low)  # the share of the steps in the band
        share_below = (1 - band_share) * low / (1 - high + low)
        warped = torch.where(
            t < share_below,
            t / share_below * low,
            torch.where(
                t < share_below + band_share,
                low + (t - share_below) / band_share * (high - low),
                high + (t - share_below - band_share) / (1 - share_below - band_share) * (1 - high),
            ),
        )
        return super().noise_level(warped)


@dataclass(frozen=True)
class BridgeGuidance:
    """An accepted string is drawn jointly at every step; the latent moves by the bridge to its embeddings."""

    automata: Sequence[TokenAutomaton]

    def predict(self, model: Any, step: DenoisingStep) -> Prediction:
        prediction = Unguided().predict(model, step)
        tokens = decode(prediction.logits, list(self.automata), "sample", logits=True, seed=step.index).tokens
        target = model.embedding[tokens]
        return replace(prediction, x_selfcond=target, shift=(target - prediction.x).double())


Logits = Callable[[PlaidLM, Sequence[TokenAutomaton], int], Tensor]


def plain(guide: Callable[[Sequence[TokenAutomaton]], Guidance], share: float = 1.0, **options: Any) -> Logits:
    """The ordinary loop; the number of steps is `share` times the number of calls."""

    def logits(model: PlaidLM, automata: Sequence[TokenAutomaton], calls: int) -> Tensor:
        process = _process(model, guide(automata), round(share * calls), **options)
        draws = Draws([(0, i) for i in range(len(automata))])
        run = Run(process, process.begin(draws, LENGTH), draws)
        for _ in run:
            pass
        return _logits_of(process, run.state)

    return logits


def recurrent(guide: Callable[[Sequence[TokenAutomaton]], Guidance], times: int = 2) -> Logits:
    """Every step in the band is taken `times` times; noise is added back between the repetitions."""

    def logits(model: PlaidLM, automata: Sequence[TokenAutomaton], calls: int) -> Tensor:
        band_share = BAND[1] - BAND[0]
        process = _process(model, guide(automata), round(calls / (1 + (times - 1) * band_share)))
        draws = Draws([(0, i) for i in range(len(automata))])
        state = process.begin(draws, LENGTH)
        for index in range(process.num_inference_steps):
            repetitions = times if BAND[0] <= index / process.num_inference_steps < BAND[1] else 1
            for repetition in range(repetitions):
                next_state = process.step(state, process.predict(state), draws)
                if repetition + 1 < repetitions:
                    state = replace(_noised(process, next_state, index, draws), x_selfcond=next_state.x_selfcond)
            state = next_state
        return _logits_of(process, state)

    return logits


def restarted(guide: Callable[[Sequence[TokenAutomaton]], Guidance], back_to: float = 0.4) -> Logits:
    """A full run; then noise is added back to the share `back_to` of the steps, and a second run starts there."""

    def logits(model: PlaidLM, automata: Sequence[TokenAutomaton], calls: int) -> Tensor:
        process = _process(model, guide(automata), round(calls / (2 - back_to)))
        draws = Draws([(0, i) for i in range(len(automata))])
        state, restart_step = process.begin(draws, LENGTH), round(back_to * process.num_inference_steps)
        for start in (0, restart_step):
            if start:
                state = replace(_noised(process, state, start, draws), x_selfcond=state.x_selfcond)
            for _ in range(start, process.num_inference_steps):
                state = process.step(state, process.predict(state), draws)
        return _logits_of(process, state)

    return logits


def _process(model: PlaidLM, guidance: Guidance, steps: int, **options: Any) -> GaussianProcess:
    temp = model.sampling_defaults.score_temp
    return GaussianProcess(model, guidance, steps, **{"score_temp": temp, **options})


def _noised(process: GaussianProcess, state: SamplerState, index: int, draws: Draws) -> SamplerState:
    """The state with added noise, at the noise level before step `index`."""
    current, target = NoiseLevel(state.noise_level), NoiseLevel(process._noise_levels(index)[0])
    ratio = target.alpha / current.alpha
    variance = target.sigma_squared - ratio**2 * current.sigma_squared
    noise = draws.normal(*state.z.shape[1:]).to(state.z)
    return replace(state, z=ratio * state.z + variance.sqrt() * noise, step=index, noise_level=target.gamma)


def _logits_of(process: GaussianProcess, state: SamplerState) -> Tensor:
    with torch.no_grad():
        logits = process.finish(state).logits
    assert logits is not None
    return logits


def as_kind(kind: type[PlaidLM]) -> Callable[[PlaidLM], PlaidLM]:
    """The same weights under another class."""

    def converted(model: PlaidLM) -> PlaidLM:
        modules: PlaidModules = model.modules
        other = kind(modules, model.tokenizer, model.eos_token_id, model.sampling_defaults)
        other.bigrams = model.bigrams
        return other

    return converted


def chain(scale: float) -> Callable[[Sequence[TokenAutomaton]], Guidance]:
    return lambda automata: ChainGuidance(list(automata), scale)


def gradient(scale: float) -> Callable[[Sequence[TokenAutomaton]], Guidance]:
    return lambda automata: GradientGuidance(automata, scale)


def gradient_then_chain(automata: Sequence[TokenAutomaton]) -> Guidance:
    return MixedGuidance(GradientGuidance(automata, 2.5), ChainGuidance(list(automata), 1.5), 0.35)


def gradient_then_posterior(automata: Sequence[TokenAutomaton]) -> Guidance:
    return MixedGuidance(GradientGuidance(automata, 2.5), PosteriorGuidance(automata, 2.5), 0.35)


def same(model: PlaidLM) -> PlaidLM:
    return model


# name: the function that makes the model, the function that computes logits, backward passes per network call
SYSTEMS: dict[str, tuple[Callable[[PlaidLM], PlaidLM], Logits, float]] = {
    "unguided": (same, plain(lambda _: Unguided()), 0.0),
    "posterior, scale 2.5": (same, plain(lambda automata: PosteriorGuidance(automata, 2.5)), 0.0),
    "gradient, scale 1": (same, plain(gradient(1.0)), 1.0),
    "gradient, scale 2.5": (same, plain(gradient(2.5)), 1.0),
    "gradient 35%, then posterior": (same, plain(gradient_then_posterior), 0.35),
    "gradient 35%, then chain": (same, plain(gradient_then_chain), 0.35),
    "chain, scale 1": (same, plain(chain(1.0)), 0.0),
    "chain, scale 1.5": (same, plain(chain(1.5)), 0.0),
    "chain, scale 2.5": (same, plain(chain(2.5)), 0.0),
    "chain, ddim": (same, plain(chain(1.5), method="ddim"), 0.0),
    "chain, score_temp 1": (same, plain(chain(1.5), score_temp=1.0), 0.0),
    "bridge to a joint draw, score_temp 1": (same, plain(BridgeGuidance, score_temp=1.0), 0.0),
    "chain, sharpened": (as_kind(SharpenedLM), plain(chain(1.5), share=0.7), 0.0),
    "chain, recurrent": (same, recurrent(chain(1.5)), 0.0),
    "chain, restarted": (same, restarted(chain(1.5)), 0.0),
    "chain, denser grid": (as_kind(DenserLM), plain(chain(1.5)), 0.0),
}


def measure(
    model: PlaidLM, judge: AutoregressiveLM, systems: Sequence[str], cases: int, calls: int, seed: int
) -> Iterator[dict[str, Any]]:
    """One row per system."""
    suite_cases = natural_language_cases(seed)
    suite_cases = [suite_cases[index * len(suite_cases) // cases] for index in range(cases)]
    vocabulary = Vocabulary.from_tokenizer(model.tokenizer)
    automata = [align(case.constraint, vocabulary) for case in suite_cases]
    baseline = 0.0
    for name in systems:
        make, compute_logits, backward = SYSTEMS[name]
        system_model = make(model)
        started = time.process_time()
        logits = compute_logits(system_model, automata, calls)
        seconds = time.process_time() - started
        baseline = seconds if name == "unguided" else baseline
        best = decode(logits, automata, "best", logits=True).tokens.tolist()
        texts = [text_of(model, ids) for ids in best]
        argmax = [a.accepts(ids) for a, ids in zip(automata, logits.argmax(-1).tolist(), strict=True)]
        counts = GrammarCounts.of([v for verdicts in grammar.judge(texts) for v in verdicts])
        nats = [_nats(judge, text) for text in texts]
        yield {
            "system": name,
            "calls": calls,
            "backward": round(backward * calls),
            "nats": sum(nats) / len(nats),
            "nats_error": float(torch.tensor(nats).std() / len(nats) ** 0.5),
            "tokens": sum(len(model.tokenizer.encode(text).ids) for text in texts) / len(texts),
            "clean": counts.clean_share,
            "distinct_2": distinct_2(texts),
            "argmax": sum(argmax) / len(argmax),
            "time": seconds / baseline if baseline else float("nan"),
            "texts": texts,
            "text_nats": nats,
        }


def _nats(judge: AutoregressiveLM, text: str) -> float:
    ids = [*judge.tokenizer.encode(text).ids, judge.eos_token_id]
    return -float(judge.log_probs(torch.tensor([ids])).sum())


COLUMNS = ("nats", "nats_error", "tokens", "clean", "distinct_2", "argmax", "time")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| system | calls | backward | nats a text | ± | tokens | clean | distinct-2 | argmax | time |",
        "|---" + "|---:" * 9 + "|",
    ]
    for row in rows:
        values = " | ".join(f"{row[name]:.2f}" for name in COLUMNS)
        lines.append(f"| {row['system']} | {row['calls']} | {row['backward']} | {values} |")
    return "\n".join(lines)


def paired(rows: Sequence[dict[str, Any]], reference: str = "chain, scale 1.5") -> Iterator[str]:
    """The difference in nats of each system to the reference on the same constraints, with standard error."""
    for base in (row for row in rows if row["system"] == reference):
        for row in rows:
            differences = torch.tensor(row["text_nats"]) - torch.tensor(base["text_nats"])
            mean, error = float(differences.mean()), float(differences.std() / len(differences) ** 0.5)
            yield f"{row['system']}, {row['calls']} calls: {mean:+.2f} ± {error:.2f} nats over {reference}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=44)
    parser.add_argument("--calls", type=int, nargs="+", default=[64])
    parser.add_argument("--seed", type=int, default=11, help="seed of the constraints")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS), metavar="NAME")
    parser.add_argument("--model", help="folder of a model to use instead of the embedded model")
    parser.add_argument(
        "--judge", default=str(EMBEDDED.parent / "autoregressive"), help="folder of the autoregressive model"
    )
    parser.add_argument("--out", type=Path, help="JSON lines, with all texts")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = dy.load(arguments.model)
    assert isinstance(model, PlaidLM)
    judge = AutoregressiveLM.from_pretrained(arguments.judge)
    rows = []
    for calls in arguments.calls:
        for row in measure(model, judge, arguments.systems, arguments.cases, calls, arguments.seed):
            rows.append(row)
            print(
                json.dumps({key: value for key, value in row.items() if key not in ("texts", "text_nats")}),
                flush=True,
            )
            if arguments.out is not None:
                with arguments.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(table(rows))
    print("\n".join(paired(rows)))


if __name__ == "__main__":
    main()
