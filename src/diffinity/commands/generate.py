"""`diffinity generate`: texts that satisfy constraints."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffinity.commands.console import Interrupted, err, out, visible
from diffinity.commands.options import (
    Asked,
    ChoiceOption,
    ContainsOption,
    DeviceOption,
    ModelOption,
    NotOption,
    RegexOption,
    SchemaOption,
    TypeOption,
    check_device,
    check_writable,
    write_text,
)
from diffinity.errors import InvalidArgument

if TYPE_CHECKING:
    from diffinity.generation import Generated
    from diffinity.models.protocol import DiffusionLM
    from diffinity.sampling import SamplerState
    from diffinity.trace import Trace

TURN = 16  # texts that are written before any of them is printed

LengthOption = Annotated[str | None, typer.Option(help="Tokens per text; auto: as many as it takes.", metavar="N")]


def generate(
    regex: RegexOption = None,
    json_schema: SchemaOption = None,
    choice: ChoiceOption = None,
    type_name: TypeOption = None,
    contains: ContainsOption = None,
    not_regex: NotOption = None,
    model: ModelOption = None,
    n: Annotated[int, typer.Option("-n", "--n", help="How many texts.", min=1)] = 1,
    length: LengthOption = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Text i is drawn from (seed, i).", min=0)] = 0,
    guidance: Annotated[
        str, typer.Option(help="auto, fast, best, mixed, gradient, posterior, path, paper or none.")
    ] = "auto",
    scale: Annotated[float, typer.Option(help="How strongly the constraint steers.")] = 2.5,
    decode: Annotated[str, typer.Option(help="best, sample (both always match) or argmax.")] = "best",
    method: Annotated[str, typer.Option(help="ancestral or ddim.")] = "ancestral",
    score_temp: Annotated[float | None, typer.Option(help="Below 1: sharper.")] = None,
    particles: Annotated[
        int | None, typer.Option(help="Choose each text from so many, closer to the model's own.", min=1)
    ] = None,
    prompt: Annotated[str, typer.Option(help="What the text starts with.")] = "",
    deadline: Annotated[
        float | None, typer.Option(help="Stop after so many seconds; what is there still matches.")
    ] = None,
    device: DeviceOption = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Write a page that replays the denoising.")] = None,
) -> None:
    """Write texts that satisfy all the constraints given; without one, freely."""
    from diffinity import generate as write
    from diffinity import load
    from diffinity.memory import check_room
    from diffinity.request import ANY_TEXT
    from diffinity.trace import Trace

    tokens = tokens_asked(length)
    if not math.isfinite(scale):
        raise InvalidArgument(f"--scale must be a finite number, but is {scale}")
    check_device(device)
    if trace is not None:
        check_writable(trace)
    asked = Asked(regex, json_schema, choice, type_name, contains, not_regex)
    constraint = asked.constraint()
    lm = load(model, device=device)
    defaults = lm.sampling_defaults
    check_room(lm, n, tokens if isinstance(tokens, int) else defaults.length)
    total = defaults.num_inference_steps if steps is None else steps
    record = Trace(particles or 1) if trace is not None else None
    options: dict[str, Any] = {
        "num_inference_steps": steps,
        "guidance": guidance if constraint is not None or prompt else "none",
        "guidance_scale": scale,
        "decode": decode,
        "particles": particles,
        "prompt": prompt,
        "method": method,
        "score_temp": score_temp,
    }
    found: list[Generated] = []
    began = time.monotonic()
    try:
        for first in range(0, n, TURN):
            seeds = [(seed, i) for i in range(first, min(n, first + TURN))]
            with watching(lm, record, total, particles or 1, live=out.is_terminal and not as_json) as watch:
                part = write(
                    lm,
                    constraint if constraint is not None else ANY_TEXT,
                    len(seeds),
                    tokens,  # type: ignore[arg-type]
                    seeds=seeds,
                    deadline=None if deadline is None else max(0.0, deadline + began - time.monotonic()),
                    callback_on_step_end=watch,
                    **options,
                )
            for one in part:
                print(spelled(one, as_json), flush=True)
            found += part
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {len(found)} of {n} texts were written") from None
    missed = sum(not one.satisfied for one in found)
    if missed:
        err.print(f"{missed} of {n} texts do not satisfy the constraint: --decode {decode} repairs nothing")
    if record is not None and trace is not None:
        settings = {
            "model": model or "the embedded one",
            "length": len(found[0].tokens),
            "steps": total,
            "seed": seed,
            "guidance": options["guidance"],
            "scale": scale,
            "decoding": decode,
            "sampler": method,
        }
        write_text(trace, record.page(lm, found, constraint=asked.in_words(prompt), settings=settings))
        err.print(f"wrote {trace}", soft_wrap=True)


@contextmanager
def watching(
    model: DiffusionLM, record: Trace | None, total: int, particles: int, *, live: bool
) -> Iterator[Callable[[int, SamplerState], None] | None]:
    """What is called after every step, for the record and for the live view; None if there is neither."""
    from diffinity.commands.live import live_drafts

    with ExitStack() as views:
        watchers: list[Callable[[int, SamplerState], None]] = [] if record is None else [record]
        if live:
            watchers.append(views.enter_context(live_drafts(out, model, total, particles)))

        def tell(step: int, state: SamplerState) -> None:
            for watcher in watchers:
                watcher(step, state)

        yield tell if watchers else None


def tokens_asked(length: str | None) -> int | str | None:
    """--length as `generate` takes it.

    >>> tokens_asked("64"), tokens_asked("auto")
    (64, 'auto')
    """
    if length is None or length == "auto":
        return length
    if not length.isdecimal() or int(length) < 1:
        raise InvalidArgument(f"--length takes a number of tokens, at least 1, or auto, but is {length!r}")
    return int(length)


def spelled(one: Generated, as_json: bool) -> str:
    """A text as it is printed: as JSON, or itself, for a terminal without what would steer it."""
    if as_json:
        return json.dumps(row(one), ensure_ascii=False)
    return visible(one.text) if out.is_terminal else one.text


def row(one: Generated) -> dict[str, Any]:
    """A text and how it came about as JSON has it: no number that is not finite."""
    return {
        "text": one.text,
        "satisfied": one.satisfied,
        "tokens": list(one.tokens),
        "log_acceptance": [value if math.isfinite(value) else None for value in one.log_acceptance],
        "log_prob": one.log_prob if math.isfinite(one.log_prob) else None,
        "seed": list(one.seed),
        "finish_reason": one.finish_reason,
    }
