"""Answering requests on a Ray cluster: Ray Data's `map_batches`, one model per actor, rows in order."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from diffinity.batch.answers import WINDOW, Answers, Row, answer_lines
from diffinity.batch.lines import Line
from diffinity.errors import Failure, InvalidArgument, MissingExtra
from diffinity.limits import DEFAULT_LIMITS, Limits, current_limits, use_limits
from diffinity.models.loading import load
from diffinity.models.pretrained import read_config

SHARD = 8192  # lines passed to Ray at a time: the driver's memory does not grow with the file


class Answerer:
    """One actor: loads the model once, then answers batches of lines."""

    def __init__(
        self,
        model: str | None,
        batch_size: int | None,
        device: str,
        tokens: bool,
        modules: Collection[str] = (),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._model = load(model, device=device)
        self._batch_size, self._tokens, self._modules, self._limits = batch_size, tokens, modules, limits

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        lines = [Line(int(n), bytes(text)) for n, text in zip(batch["number"], batch["text"], strict=True)]
        with use_limits(self._limits):
            rows = answer_lines(
                self._model, lines, batch_size=self._batch_size, tokens=self._tokens, modules=self._modules
            )
            return {"row": [json.dumps(row) for row in rows]}  # as text: Arrow needs one type per column


def ray_answers(
    model: str | None,
    *,
    batch_size: int | None = None,
    device: str = "cpu",
    tokens: bool = False,
    modules: Collection[str] = (),
    actors: int = 1,
    address: str | None = None,
) -> Answers:
    """Answer on the cluster at `address`, or on the cluster that Ray finds, or on a new local cluster.

    Every node needs diffinity, and the model and `modules` under the same names. An actor on "cuda" takes one GPU.
    """
    ray, data = _ray()
    if actors < 1:
        raise InvalidArgument(f"actors must be at least 1, but is {actors}")
    if model is not None and Path(model).is_dir():
        read_config(Path(model))
        model = str(Path(model).resolve())  # an actor may run in another folder
    gpu = device.startswith("cuda")

    def answers(lines: Iterator[Line]) -> Iterator[Row]:
        started_here = not ray.is_initialized()
        if started_here:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        context = data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised and reported once
        try:
            if started_here and address is None and "RAY_ADDRESS" not in os.environ:
                _check_resources(ray.cluster_resources(), actors, gpu)
            while shard := list(islice(lines, SHARD)):
                rows = data.from_items([{"number": line.number, "text": line.text} for line in shard])
                answered = rows.map_batches(
                    Answerer,
                    fn_constructor_args=(model, batch_size, device, tokens, tuple(modules), current_limits()),
                    batch_size=WINDOW,
                    compute=data.ActorPoolStrategy(size=actors),
                    num_gpus=1 if gpu else None,
                )
                for row in answered.iter_rows():
                    yield json.loads(row["row"])
        except ray.exceptions.RayError as error:
            reason = re.sub(r"^[\w.]+: ", "", str(error).strip().splitlines()[-1].strip())
            raise Failure(f"Ray stopped: {reason}") from error
        finally:
            if started_here:
                ray.shutdown()

    return answers


def _check_resources(resources: Mapping[str, float], actors: int, gpu: bool) -> None:
    """Refuse more actors than this machine can run: Ray would wait forever."""
    name, unit = ("GPU", "GPUs") if gpu else ("CPU", "processors")
    if resources.get(name, 0) < actors:
        raise InvalidArgument(
            f"{actors} actors need {actors} {unit} and this machine has {resources.get(name, 0):.0f}: "
            "set a smaller --actors, or name a cluster with --address"
        )


def _ray() -> tuple[Any, Any]:
    """Ray and Ray Data, as Any: they are an extra and may not be installed."""
    try:
        return importlib.import_module("ray"), importlib.import_module("ray.data")
    except ImportError as error:
        raise MissingExtra(
            f"--ray needs Ray Data, which is not installed ({error}): pip install 'diffinity[ray]'"
        ) from None
