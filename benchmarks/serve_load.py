"""The server under load: 64 clients with 64 constraints, compared with the library alone in one batch.

    python -m benchmarks.serve_load [--seconds 120] [--ray]

Every answer is checked by Python's `re`. With --ray the load goes to two replicas on Ray Serve, one of which is
killed (SIGKILL) in the middle.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psutil

CLIENTS = 64
STEPS, LENGTH, BATCH = 16, 32, 16
NAME = "diffinity-embedded"
WORDS = ("cat", "dog", "boy", "girl", "man", "woman", "teacher", "farmer")
ENDS = ("home", "here", "away", "there", "today", "again", "now", "soon")
PATTERNS = [rf"The {word} [a-z ]{{2,60}} {end}\." for word in WORDS for end in ENDS]


@dataclass
class Tally:
    """The results of all clients."""

    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    probes: list[float] = field(default_factory=list)


def ask(port: int, pattern: str, seed: int) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    body = {
        "structured_outputs": {"regex": pattern},
        "max_tokens": LENGTH,
        "seed": seed,
        "diffinity": {"steps": STEPS, "deadline": 300},
    }
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text.startswith(b"{") else {}
    finally:
        connection.close()


def client(port: int, number: int, end: float, tally: Tally) -> None:
    """One client: sends requests in sequence until the time is over."""
    seed = 0
    while time.monotonic() < end:
        began = time.monotonic()
        try:
            status, answer = ask(port, PATTERNS[number], seed)
        except (OSError, http.client.HTTPException, ValueError) as error:
            tally.errors[f"connection: {type(error).__name__}"] += 1
            tally.lost += 1
            time.sleep(0.2)
            continue
        if status != 200:
            tally.errors[f"{status} {answer['error']['code']}" if "error" in answer else str(status)] += 1
            time.sleep(0.2)
            continue
        text = answer["choices"][0]["text"]
        if re.fullmatch(PATTERNS[number], text) is None:
            tally.wrong.append(text)
        tally.seconds.append(time.monotonic() - began)
        seed += 1


def probe(port: int, end: float, tally: Tally) -> None:
    """Check `/health` under load."""
    while time.monotonic() < end:
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/health")
        connection.getresponse().read()
        connection.close()
        tally.probes.append(time.monotonic() - began)
        time.sleep(0.5)


def load(port: int, seconds: float) -> tuple[Tally, float]:
    """The results of the clients, and the texts per second."""
    tally, end, began = Tally(), time.monotonic() + seconds, time.monotonic()
    threads = [threading.Thread(target=client, args=(port, i, end, tally)) for i in range(CLIENTS)]
    threads.append(threading.Thread(target=probe, args=(port, end, tally)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally, len(tally.seconds) / (time.monotonic() - began)


def library(seconds: float) -> float:
    """Texts per second of the library alone: the same constraints, batches of the same size."""
    import torch

    import diffinity as dy

    torch.set_num_threads(1)
    model = dy.load()
    constraints = [dy.Regex(pattern) for pattern in PATTERNS]
    writers = [
        dy.Generator(model, constraints[i : i + BATCH], length=LENGTH, num_inference_steps=STEPS)
        for i in range(0, CLIENTS, BATCH)
    ]
    writers[0](seed=9)
    n_texts, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        n_texts += len(writers[n_texts // BATCH % len(writers)](seed=n_texts))
    return n_texts / (time.monotonic() - began)


def serve(port: int, *flags: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "diffinity.cli", "serve", "--port", str(port), "--max-batch", str(BATCH)]
    command += ["--deadline", "300", "--drain", "5", *flags]
    if "--ray" not in flags:
        command += ["--threads", "1"]
    return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})


def wait(port: int, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.5)
    raise SystemExit("the server did not get ready")


def report(name: str, tally: Tally, rate: float) -> None:
    ordered = sorted(tally.seconds)
    p50, p95 = statistics.median(ordered), ordered[int(0.95 * (len(ordered) - 1))]
    print(
        f"{name}: {len(ordered)} texts, {len(tally.wrong)} wrong, {sum(tally.errors.values())} errors "
        f"{dict(tally.errors)}, {tally.lost} lost; {rate:.2f} texts/s; latency p50 {p50:.2f} s, p95 {p95:.2f} s; "
        f"/health at most {max(tally.probes):.2f} s",
        flush=True,
    )


def kill_a_replica(server: int, delay: float) -> None:
    """Send SIGKILL to one replica of the server with process id `server`."""
    time.sleep(delay)
    descendants = psutil.Process(server).children(recursive=True)
    replicas = [process for process in descendants if "".join(process.cmdline()).startswith("ray::ServeReplica")]
    replicas[0].send_signal(signal.SIGKILL)
    print(f"killed one of {len(replicas)} replicas", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--ray", action="store_true")
    arguments = parser.parse_args()
    if arguments.ray:
        server = serve(arguments.port, "--ray", "--replicas", "2")
        try:
            wait(arguments.port)
            killer = threading.Thread(target=kill_a_replica, args=(server.pid, arguments.seconds / 2))
            killer.start()
            report("two replicas, one killed", *load(arguments.port, arguments.seconds))
            killer.join()
        finally:
            server.terminate()
            server.wait()
        return
    rate_before = library(arguments.seconds / 6)
    server = serve(arguments.port)
    try:
        wait(arguments.port)
        tally, rate = load(arguments.port, arguments.seconds)
    finally:
        server.terminate()
        server.wait()
    rate_after = library(arguments.seconds / 6)
    report("server", tally, rate)
    library_rate = (rate_before + rate_after) / 2
    print(
        f"library alone, before and after: {rate_before:.2f} and {rate_after:.2f} texts/s; "
        f"share {rate / library_rate:.2f}"
    )


if __name__ == "__main__":
    main()
