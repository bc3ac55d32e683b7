"""`ServeSettings`: the limits of a server, each with its unit and default."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from diffinity.errors import InvalidArgument

KEYS_VARIABLE = "DIFFINITY_API_KEYS"
NAME = "diffinity-embedded"  # of the embedded model, for clients
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServeSettings:
    """The behaviour of a server under load, and the limits of a request.

    >>> ServeSettings(max_n=4).max_batch
    16
    """

    model_name: str = NAME
    """The name of the model for clients."""

    ignore_prompt: bool = False
    """Ignore prompts if the model reads no prompts, instead of refusing them."""

    max_batch: int = 16
    """Texts that are denoised together."""

    max_batches: int = 4
    """Batches of different settings that alternate, one step each."""

    batch_delay: float = 0.01
    """Seconds that a request waits for others to join its batch."""

    max_waiting: int = 256
    """Texts that may wait; more get 429."""

    deadline: float = 120.0
    """Seconds that a request may take in total; a client may set a shorter deadline."""

    max_n: int = 16
    """Texts (`n` times prompts) of one request."""

    max_tokens: int = 1024
    """Tokens of one text."""

    max_prompt_tokens: int = 4096
    """Tokens of one prompt."""

    max_steps: int = 1024
    """Denoising steps."""

    max_particles: int = 32
    """Particles of one text."""

    max_body: int = 1_000_000
    """Bytes of a request's body."""

    read_seconds: float = 10.0
    """Seconds that a client may take to send its request."""

    write_seconds: float = 20.0
    """Seconds that a client may leave an answer unread."""

    compile_steps: int = 400_000_000
    """Steps of compiling a constraint (`diffinity.limits`), about two seconds."""

    quick_steps: int = 40_000_000
    """Steps above which a constraint is compiled in a second process, one constraint after another."""

    max_arrows: int = 100_000
    """Transitions of a compiled constraint, as pairs of states; the time of a step grows with them."""

    compile_seconds: float = 20.0
    """Seconds after which a compilation is killed."""

    max_compiling: int = 64
    """Constraints that may wait for compilation; more get 429."""

    cache_bytes: int = 256 << 20
    """Bytes of compiled constraints in the cache."""

    key_digests: tuple[bytes, ...] = ()
    """SHA-256 of the API keys; if empty, no key is required."""

    allowed_hosts: tuple[str, ...] = ()
    """Accepted names in the Host header; all names if empty."""

    def __post_init__(self) -> None:
        for name in (
            "max_batch",
            "max_batches",
            "max_waiting",
            "max_n",
            "max_tokens",
            "max_steps",
            "max_particles",
            "max_body",
        ):
            if getattr(self, name) < 1:
                raise InvalidArgument(f"{name} must be at least 1, but is {getattr(self, name)}")
        for name in ("deadline", "read_seconds", "write_seconds", "compile_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidArgument(f"{name} must be above 0 seconds, but is {getattr(self, name)}")
        if not 0 <= self.batch_delay <= 10:
            raise InvalidArgument(f"batch_delay must be between 0 and 10 seconds, but is {self.batch_delay}")

    def is_key(self, key: str) -> bool:
        """Whether a key is valid; the time of the check does not depend on the keys.

        >>> ServeSettings(key_digests=(digest_of("secret"),)).is_key("secret")
        True
        """
        digest = digest_of(key)
        # All comparisons are made, so that the time does not reveal which key matched.
        return sum([hmac.compare_digest(digest, valid_digest) for valid_digest in self.key_digests]) > 0


def digest_of(key: str) -> bytes:
    """The stored digest of an API key."""
    return hashlib.sha256(key.encode()).digest()


def read_keys(file: Path | None, environment: Mapping[str, str] = os.environ) -> tuple[bytes, ...]:
    """The digests of the API keys in a file (one per line, # comments) and in $DIFFINITY_API_KEYS (by commas).

    >>> len(read_keys(None, {"DIFFINITY_API_KEYS": "one, two"}))
    2
    """
    keys = environment.get(KEYS_VARIABLE, "").split(",")
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{file} can't be read: {error}") from None
        from_file = [line.split("#")[0].strip() for line in lines]
        if not any(from_file):
            raise InvalidArgument(f"{file} has no key: write one on each line")
        keys += from_file
    return tuple(digest_of(key.strip()) for key in keys if key.strip())
