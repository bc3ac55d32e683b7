"""`diffinity generate`: texts that satisfy constraints."""

from __future__ import annotations

import functools
import inspect
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffinity.commands.console import Interrupted, err, out, visible
from diffinity.commands.options import (
    GRAMMAR_DEPTH,
    ChoiceOption,
    ConstraintOptions,
    ContainsOption,
    DeviceOption,
    GrammarDepthOption,
    GrammarOption,
    LimitOption,
    ModelOption,
    NotOption,
    RegexOption,
    SchemaOption,
    SchemaOptionsOption,
    TypeOption,
    apply_limits,
    check_device,
    check_writable,
    write_text,
)
from diffinity.errors import InvalidArgument
from diffinity.generation.settings import GenerationSettings, Option, from_request_names, shown_options

if TYPE_CHECKING:
    from diffinity.generation import Generated
    from diffinity.models.protocol import TextModel
    from diffinity.trace import Trace

TEXTS_PER_BATCH = 16  # texts that are denoised together and printed when all of them are done


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `settings` of a command by one option for each field of `GenerationSettings`."""
    options = command_line_options()

    @functools.wraps(command)
    def wrapped(**arguments: Any) -> None:
        values = {option.name: arguments.pop(option.name) for option in options}
        command(settings=settings_of(values), **arguments)

    command_parameters = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [parameter for parameter in command_parameters if parameter.name != "settings"]
    insert_at = next(i for i, parameter in enumerate(parameters) if parameter.name == "n") + 1
    parameters[insert_at:insert_at] = [_parameter(option) for option in options]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped


def command_line_options() -> list[Option]:
    """The options of `GenerationSettings` that the command line has: all except conversations."""
    return [option for option in shown_options() if option.name != "messages"]


def _parameter(option: Option) -> inspect.Parameter:
    kind = str | None if option.name == "length" else option.type
    minimum = option.minimum if isinstance(option.minimum, int) and option.minimum >= 1 else None
    typer_option = typer.Option(
        help=option.help,
        metavar="N" if option.name == "length" else None,
        min=None if option.name == "length" else minimum,
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=option.default,
        annotation=Annotated[kind, typer_option],
    )


def settings_of(values: Mapping[str, Any]) -> GenerationSettings:
    """The settings from the values of the command line.

    >>> settings_of({"steps": 8, "length": "auto"})
    GenerationSettings({'length': 'auto', 'steps': 8})
    """
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidArgument(f"--{name.replace('_', '-')} must be a finite number, but is {value}")
    options = {**values, "length": read_length(values.get("length"))}
    return GenerationSettings.of(**from_request_names(options))


@with_settings
def generate(
    *,
    settings: GenerationSettings,
    regex: RegexOption = None,
    json_schema: SchemaOption = None,
    schema_option: SchemaOptionsOption = None,
    grammar: GrammarOption = None,
    grammar_depth: GrammarDepthOption = GRAMMAR_DEPTH,
    choice: ChoiceOption = None,
    type_name: TypeOption = None,
    contains: ContainsOption = None,
    not_regex: NotOption = None,
    model: ModelOption = None,
    n: Annotated[int, typer.Option("-n", "--n", help="Number of texts.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Text i has the seed (seed, i).", min=0)] = 0,
    deadline: Annotated[
        float | None,
        typer.Option(help="Stop after this many seconds; texts still satisfy the constraint.", min=0),
    ] = None,
    device: DeviceOption = "cpu",
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run Python code from the model's repository (transformers)."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Write a page that replays the denoising.")] = None,
    limit: LimitOption = None,
) -> None:
    """Write texts that satisfy all given constraints, or unconstrained texts if there are none.

    Example: diffinity generate --regex '[A-Z][a-z ]+[.]' -n 3 --length 24 --seed 1

    Example: diffinity generate --json-schema order.json --length auto --json
    """
    from diffinity import Generator, load
    from diffinity.memory import check_room
    from diffinity.trace import Trace

    apply_limits(limit)
    check_device(device)
    if deadline is not None and not math.isfinite(deadline):
        raise InvalidArgument(f"--deadline must be a finite number of seconds, but is {deadline}")
    if trace is not None and settings.retry_invalid:
        raise InvalidArgument("--trace replays one attempt: leave out --retry-invalid")
    if trace is not None:
        check_writable(trace)
    options = ConstraintOptions(
        regex, json_schema, choice, type_name, contains, not_regex, grammar, grammar_depth, schema_option
    )
    constraint = options.constraint()
    lm = load(model, device=device, trust_remote_code=trust_remote_code)
    check_room(lm, n, settings.length if isinstance(settings.length, int) else lm.sampling_defaults.length)
    generator = Generator(lm, constraint, settings)
    total, particles = generator.num_inference_steps, generator.rows
    record = Trace(particles) if trace is not None else None
    texts: list[Generated] = []
    began = time.monotonic()
    try:
        for first in range(0, n, TEXTS_PER_BATCH):
            seeds = [(seed, i) for i in range(first, min(n, first + TEXTS_PER_BATCH))]
            with watching(lm, record, total, particles, live=out.is_terminal and not as_json) as watch:
                batch = generator(
                    len(seeds),
                    seeds=seeds,
                    deadline=None if deadline is None else max(0.0, deadline + began - time.monotonic()),
                    callback_on_step_end=watch,
                )
            for sample in batch:
                print(spelled(sample, as_json), flush=True)
            texts += batch
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {len(texts)} of {n} texts were written") from None
    n_unsatisfied = sum(not sample.satisfied for sample in texts)
    if n_unsatisfied:
        err.print(
            f"{n_unsatisfied} of {n} texts do not satisfy the constraint: "
            f"--decode {settings.decode} does not enforce it"
        )
    value_errors = [sample.value_error for sample in texts if sample.value_error is not None]
    if value_errors:
        err.print(
            f"{len(value_errors)} of {n} texts are no value of {type_name or 'the type'}: "
            f"{visible(value_errors[0])}. --retry-invalid N generates them again",
            soft_wrap=True,
            markup=False,
        )
    if record is not None and trace is not None:
        page_settings = {
            "model": model or "the embedded model",
            "length": generator.length,
            "steps": total,
            "seed": seed,
            "guidance": generator.settings.guidance,
            "scale": settings.guidance_scale,
            "decoding": settings.decode,
            "sampler": settings.method or lm.sampling_defaults.method,
        }
        page = record.page(lm, texts, constraint=options.in_words(settings.prefix), settings=page_settings)
        write_text(trace, page)
        err.print(f"wrote {trace}", soft_wrap=True)


@contextmanager
def watching(
    model: TextModel, record: Trace | None, total: int, particles: int, *, live: bool
) -> Iterator[Callable[[int, Any], None] | None]:
    """The callback after every step, for the trace and the live view; None if there is neither."""
    from diffinity.commands.live import live_drafts

    with ExitStack() as views:
        watchers: list[Callable[[int, Any], None]] = [] if record is None else [record]
        if live:
            watchers.append(views.enter_context(live_drafts(out, model, total, particles)))

        def call_watchers(step: int, state: Any) -> None:
            for watcher in watchers:
                watcher(step, state)

        yield call_watchers if watchers else None


def read_length(length: str | None) -> int | str | None:
    """The value of --length: a number of tokens, "auto" or None.

    >>> read_length("64"), read_length("auto")
    (64, 'auto')
    """
    if length is None or length == "auto":
        return length
    if not length.isdecimal() or int(length) < 1:
        raise InvalidArgument(f"--length takes a number of tokens, at least 1, or auto, but is {length!r}")
    return int(length)


def spelled(sample: Generated, as_json: bool) -> str:
    """The printed form of a sample: JSON, or the text, in a terminal without control characters."""
    if as_json:
        return json.dumps(sample.as_json(), ensure_ascii=False)
    return visible(sample.text) if out.is_terminal else sample.text
