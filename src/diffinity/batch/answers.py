"""From request lines to result rows, in order: requests with the same settings are denoised together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from diffinity.batch.lines import Line
from diffinity.errors import ConstraintSyntaxError, DiffinityError
from diffinity.generation import Generated, generate
from diffinity.memory import check_room, is_out_of_memory
from diffinity.models.loading import load
from diffinity.models.protocol import TextModel
from diffinity.request import Request, named_type, read_request

MAX_BATCH = 16  # texts that are denoised together, if memory allows
WINDOW = 4 * MAX_BATCH  # requests that are considered together

_REPORTED = ("text", "satisfied", "log_p_text", "finish_reason")

# On the CPU a network rounds the same in all batches (see `models.plaid.matmul_per_sample`), on a GPU it does not.
# With these guidance methods a difference stays in the last digits. The gradient in single precision amplifies it
# until tokens differ, so such requests are not batched on a GPU.
BATCHED_GUIDANCES = ("none", "posterior", "path", "fast")

Row = dict[str, Any]
Answers = Callable[[Iterator[Line]], Iterator[Row]]


def local_answers(
    model: str | None,
    *,
    batch_size: int | None = None,
    device: str = "cpu",
    tokens: bool = False,
    modules: Collection[str] = (),
) -> Answers:
    """Answer in this process; the model is loaded at the first request."""

    def answers(lines: Iterator[Line]) -> Iterator[Row]:
        lm = load(model, device=device)
        while window := list(islice(lines, WINDOW)):
            yield from answer_lines(lm, window, batch_size=batch_size, tokens=tokens, modules=modules)

    return answers


def answer_lines(
    model: TextModel,
    lines: Sequence[Line],
    *,
    batch_size: int | None = None,
    tokens: bool = False,
    modules: Collection[str] = (),
) -> Iterator[Row]:
    """A row for each line, in order, as soon as it and all rows before it are ready.

    A request's `type` may come only from `modules`, because importing runs code.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a cat.", "a dog."])
    >>> rows = answer_lines(model, [Line(1, b'{"choice": ["a dog."], "length": 8, "steps": 2}'), Line(2, b"[]")])
    >>> [row.get("texts", row.get("error")) for row in rows]
    [['a dog.'], 'a request is a JSON object, but this is []']
    """
    waiting: dict[int, Request] = {}
    rows: dict[int, Row] = {}
    for index, line in enumerate(lines):
        try:
            request = read_request(line.text)
            if request.type is not None:
                named_type(request.type, modules=modules)
            waiting[index] = request
        except DiffinityError as error:
            rows[index] = {"error": sentence(error)}
    for index, line in enumerate(lines):
        if index in waiting:
            group = _group_of(model, index, waiting, batch_size or MAX_BATCH)
            requests = [waiting.pop(i) for i in group]
            answered = _answer_group(model, requests, batch_size)
            for i, request, answer in zip(group, requests, answered, strict=True):
                rows[i] = _row(request, answer, tokens)
        yield {"line": line.number, "request": line.fingerprint, **rows.pop(index)}


def _group_of(model: TextModel, index: int, waiting: dict[int, Request], room: int) -> list[int]:
    """The indices of the requests to denoise in one batch with the request at `index`."""
    first = waiting[index]
    group, room = [index], room - first.n
    batch_invariant = model.dtype == torch.float64 or model.device.type == "cpu"
    if not batch_invariant and first.settings().guidance not in BATCHED_GUIDANCES:
        return group
    for other_index, request in waiting.items():
        if other_index > index and request.n <= room and _can_share_a_batch(first, request):
            group.append(other_index)
            room -= request.n
    return group


def _can_share_a_batch(request: Request, other: Request) -> bool:
    if request.settings() != other.settings() or request.deadline is not None or other.deadline is not None:
        return False
    # A batch has one length, so texts with `length="auto"` are batched only with texts of the same constraint.
    return request.settings().length != "auto" or (request.constraint_keys() == other.constraint_keys())


def _answer_group(
    model: TextModel, requests: Sequence[Request], batch_size: int | None
) -> list[list[Generated] | str]:
    """The texts, or the error, of each of some requests with the same settings."""
    try:
        return list(_generated_texts(model, requests, batch_size))
    except (DiffinityError, MemoryError, RuntimeError) as error:
        if len(requests) > 1:  # one request may be at fault, or the batch too large: try each separately
            return [_answer_group(model, [request], batch_size)[0] for request in requests]
        if isinstance(error, DiffinityError):
            return [sentence(error)]
        if is_out_of_memory(error):
            return ["there is not enough memory for this request: use a smaller length"]
        raise


def _generated_texts(
    model: TextModel, requests: Sequence[Request], batch_size: int | None
) -> Iterator[list[Generated]]:
    """The texts of each request; text i of a request has the seed (its seed, i), in every batch."""
    settings = [request.settings() for request in requests]
    for request, request_settings in zip(requests, settings, strict=True):
        length = (
            request_settings.length if isinstance(request_settings.length, int) else model.sampling_defaults.length
        )
        check_room(model, request.n, length)
    constraints = [request.constraint() for request in requests for _ in range(request.n)]
    seeds = [(request.seed, i) for request in requests for i in range(request.n)]
    deadline = requests[0].deadline  # a request with a deadline is not batched with others
    texts = iter(
        generate(model, constraints, settings=settings[0], batch_size=batch_size, seeds=seeds, deadline=deadline)
    )
    for request in requests:
        yield list(islice(texts, request.n))


def sentence(error: DiffinityError) -> str:
    """An error on one line: the position in a pattern is a number instead of a caret.

    >>> sentence(ConstraintSyntaxError("nothing to repeat", "a(*)", 2))
    'nothing to repeat, at character 3'
    """
    if isinstance(error, ConstraintSyntaxError) and error.position is not None:
        return f"{error.reason}, at character {error.position + 1}"
    return " ".join(str(error).split())


def _row(request: Request, answer: list[Generated] | str, tokens: bool) -> Row:
    row: Row = {} if request.id is None else {"id": request.id}
    if isinstance(answer, str):
        return row | {"error": answer}
    texts = [text.as_json() for text in answer]
    row |= {name + "s" * (name == "text"): [text[name] for text in texts] for name in _REPORTED}
    if any(text.value_error is not None for text in answer):
        row["value_error"] = [text.value_error for text in answer]
    row["seed"] = request.seed
    return row | {"tokens": [text["tokens"] for text in texts]} if tokens else row
