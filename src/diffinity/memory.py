"""Memory: estimates before a run, detection of out-of-memory errors, and reuse of freed blocks."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import psutil

from diffinity.errors import InvalidArgument

if TYPE_CHECKING:
    import torch

    from diffinity.models.protocol import TextModel

# Messages of CUDA and of torch's CPU allocator.
OUT_OF_MEMORY_MESSAGES = ("out of memory", "can't allocate memory", "not enough memory")
BYTES_PER_LOGIT = 4 * 4 + 8  # logits, probabilities, their difference and a gradient; marginals
BYTES_PER_NUMBER = 6 * 8  # of a latent: z, noise, estimates and shift, in float64
BYTES_PER_TOKEN = 36  # of a finished text: a Python number in a tuple
BYTES_PER_TEXT = 1000
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
KEPT_BYTES = 2**29  # of freed memory at most
LARGEST_KEPT = 2**25  # glibc's maximum: larger blocks are always returned


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, of torch on the CPU or of a GPU is about memory.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("CUDA out of memory."))
    (True, True)
    >>> is_out_of_memory(RuntimeError("shapes differ"))
    False
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        message in str(error).lower() for message in OUT_OF_MEMORY_MESSAGES
    )


def check_room(model: TextModel, n: int, length: int) -> None:
    """Refuse `n` texts of `length` tokens if they do not fit in memory, even one at a time.

    >>> import diffinity as dy
    >>> check_room(dy.fit_markov(["a b."]), n=4, length=64)
    """
    from diffinity.models.protocol import vocab_size_of

    embedding = getattr(model, "embedding", None)
    width = 1 if embedding is None else embedding.shape[1]  # of the state at one position
    bytes_per_text = length * (BYTES_PER_LOGIT * vocab_size_of(model) + BYTES_PER_NUMBER * width)
    required_bytes = bytes_per_text + n * (BYTES_PER_TEXT + BYTES_PER_TOKEN * length)
    free_bytes = available_bytes(model.device)
    if required_bytes > free_bytes:
        raise InvalidArgument(
            f"n = {n:,} with a length of {length:,} tokens needs about {required_bytes / 1e9:,.1f} GB of memory, "
            f"and {free_bytes / 1e9:,.1f} GB are free: use a smaller length or fewer texts"
        )


def available_bytes(device: torch.device) -> int:
    """The free memory on a device in bytes."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def keep_freed_memory() -> bool:
    """Let this process reuse freed memory, up to half a gigabyte; False if the C library does not support it.

    Logits of a few megabytes are allocated and freed at every step. Depending on the heap, glibc returns them to
    the system and gets them again, page by page, which takes up to a tenth of a step's time. The command line and
    the benchmarks call this once; other programs may call it too.

    >>> keep_freed_memory() in (True, False)
    True
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # not glibc
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)) and bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))
