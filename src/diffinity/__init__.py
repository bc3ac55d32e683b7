"""Diffinity makes continuous diffusion language models obey formal syntax."""

from diffinity.errors import CheckpointError, DiffinityError, DownloadError, InvalidArgument
from diffinity.models import (
    DiffusionLM,
    MarkovLM,
    PlaidConfig,
    PlaidLM,
    SamplingDefaults,
    fit_markov,
    import_plaid,
    load,
    variational_bound,
)
from diffinity.sampling import Sampler, SamplerState, Samples, sample, texts

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "DiffinityError",
    "DiffusionLM",
    "DownloadError",
    "InvalidArgument",
    "MarkovLM",
    "PlaidConfig",
    "PlaidLM",
    "Sampler",
    "SamplerState",
    "Samples",
    "SamplingDefaults",
    "__version__",
    "fit_markov",
    "import_plaid",
    "load",
    "sample",
    "texts",
    "variational_bound",
]
