"""Requests from a file, one result line per request: in order, resumable, with errors as results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice, tee
from pathlib import Path

from diffinity.batch.answers import Answers, local_answers
from diffinity.batch.lines import Line, is_stream, model_mark, read_lines
from diffinity.batch.results import opened_results
from diffinity.errors import InvalidArgument

__all__ = ["Answers", "Line", "Summary", "local_answers", "run_batch"]

log = logging.getLogger("diffinity.batch")


@dataclass(frozen=True)
class Summary:
    """The result of a run."""

    total: int  # requests in the file
    resumed: int  # requests answered by an earlier run
    errors: int  # requests that failed, including earlier runs


def run_batch(
    requests: str | Path,
    results: str | Path,
    model: str | None = None,
    *,
    batch_size: int | None = None,
    device: str = "cpu",
    tokens: bool = False,
    modules: Collection[str] = (),
    answers: Answers | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Summary:
    """Answer the requests of one file in another file; a later call resumes where the last run ended.

    `model` is the argument of `load`. `answers` is a function from lines to rows, in order. By default it runs in
    this process; `diffinity.batch.cluster.ray_answers` runs on a cluster. `progress(done, total)` is called after
    every result, with None for an unknown total. `-` is standard input or output; these, pipes and devices are
    read or written only once. `modules` are the modules from which a request's `type` may be imported.
    `batch_size` is the number of texts that are denoised together, by default as many as fit in memory, up to 16.

    >>> run_batch("nowhere.jsonl", "out.jsonl")
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: nowhere.jsonl can't be read: No such file or directory
    """
    source, target = Path(requests), Path(results)
    if batch_size is not None and batch_size < 1:
        raise InvalidArgument(f"batch_size must be at least 1, but is {batch_size}")
    streamed = is_stream(source)
    total = None if streamed else sum(1 for _ in read_lines(source))
    if not streamed and not is_stream(target) and target.exists() and target.samefile(source):
        raise InvalidArgument(f"{target} holds the requests: name another file for the results")
    answers = answers or local_answers(
        model, batch_size=batch_size, device=device, tokens=tokens, modules=tuple(modules)
    )
    # Lines of a stream stay in memory until the existing results are checked.
    earlier_lines, lines = tee(read_lines(source)) if streamed else (read_lines(source), read_lines(source))
    with opened_results(target, model_mark(model)) as result_file:
        resumed, errors = result_file.resume(earlier_lines)
        del earlier_lines
        finished = resumed
        if progress is not None:
            progress(finished, total)
        log.info(
            "%s: %d results exist, of %s requests", target, resumed, "an unknown number of" if streamed else total
        )
        if finished == total:  # nothing to do: no model is loaded
            return Summary(finished, resumed, errors)
        for row in answers(islice(lines, finished, None)):
            result_file.append(row)
            finished += 1
            errors += "error" in row
            if progress is not None:
                progress(finished, total)
    return Summary(finished, resumed, errors)
