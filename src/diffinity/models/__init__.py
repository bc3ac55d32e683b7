"""Language models: the protocol, PLAID, LangFlow, the exact Markov model, and their files."""

from diffinity.models.langflow import LangFlowConfig
from diffinity.models.langflow_import import import_langflow
from diffinity.models.langflow_lm import LangFlowLM
from diffinity.models.likelihood import Bound, variational_bound
from diffinity.models.loading import load
from diffinity.models.markov import MarkovLM, fit_markov
from diffinity.models.plaid import PlaidConfig
from diffinity.models.plaid_import import import_plaid
from diffinity.models.plaid_lm import PlaidLM
from diffinity.models.protocol import (
    CausalModel,
    DiffusionLM,
    EmbeddingDiffusion,
    SamplingDefaults,
    TextModel,
    TokenDiffusion,
)

__all__ = [
    "Bound",
    "CausalModel",
    "DiffusionLM",
    "EmbeddingDiffusion",
    "LangFlowConfig",
    "LangFlowLM",
    "MarkovLM",
    "PlaidConfig",
    "PlaidLM",
    "SamplingDefaults",
    "TextModel",
    "TokenDiffusion",
    "fit_markov",
    "import_langflow",
    "import_plaid",
    "load",
    "variational_bound",
]
