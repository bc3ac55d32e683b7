"""Diffinity makes continuous diffusion language models obey formal syntax."""

from diffinity.acceptance import acceptance, decode, log_acceptance
from diffinity.alignment import TokenAutomaton, Vocabulary, align
from diffinity.constraints import (
    ByteDFA,
    Choice,
    Concat,
    Constraint,
    Grammar,
    JsonSchema,
    Regex,
    Text,
    constraint,
    sentences,
)
from diffinity.errors import (
    CheckpointError,
    ConstraintError,
    ConstraintSyntaxError,
    ConstraintTooLarge,
    DiffinityError,
    DownloadError,
    InfeasibleConstraint,
    InvalidArgument,
    UnsupportedConstraint,
)
from diffinity.generation import Draft, Generated, generate, stream
from diffinity.inspection import inspect
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
    "ByteDFA",
    "CheckpointError",
    "Choice",
    "Concat",
    "Constraint",
    "ConstraintError",
    "ConstraintSyntaxError",
    "ConstraintTooLarge",
    "DiffinityError",
    "DiffusionLM",
    "DownloadError",
    "Draft",
    "Generated",
    "Grammar",
    "InfeasibleConstraint",
    "InvalidArgument",
    "JsonSchema",
    "MarkovLM",
    "PlaidConfig",
    "PlaidLM",
    "Regex",
    "Sampler",
    "SamplerState",
    "Samples",
    "SamplingDefaults",
    "Text",
    "TokenAutomaton",
    "UnsupportedConstraint",
    "Vocabulary",
    "__version__",
    "acceptance",
    "align",
    "constraint",
    "decode",
    "fit_markov",
    "generate",
    "import_plaid",
    "inspect",
    "load",
    "log_acceptance",
    "sample",
    "sentences",
    "stream",
    "texts",
    "variational_bound",
]
