"""Structured output for diffusion language models: every text satisfies its constraint.

Names are imported on first use, so that `import diffinity` and the command line start fast.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffinity.acceptance import acceptance, decode, log_acceptance
    from diffinity.alignment import Bigrams, TokenAutomaton, Vocabulary, align, fit_bigrams
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
        Failure,
        InfeasibleConstraint,
        InvalidArgument,
        ModelError,
        UnsupportedConstraint,
    )
    from diffinity.generation import Draft, Generated, GenerationSettings, Generator, generate, stream
    from diffinity.generation.probabilities import ChoiceProbability, probabilities
    from diffinity.inspection import inspect
    from diffinity.models import (
        CausalModel,
        DiffusionLM,
        EmbeddingDiffusion,
        LangFlowConfig,
        LangFlowLM,
        MarkovLM,
        PlaidConfig,
        PlaidLM,
        SamplingDefaults,
        TextModel,
        TokenDiffusion,
        fit_markov,
        import_langflow,
        import_plaid,
        load,
        variational_bound,
    )
    from diffinity.sampling import Sampler, SamplerState, Samples, sample, texts

__version__ = "0.1.0"

__all__ = [
    "Bigrams",
    "ByteDFA",
    "CausalModel",
    "CheckpointError",
    "Choice",
    "ChoiceProbability",
    "Concat",
    "Constraint",
    "ConstraintError",
    "ConstraintSyntaxError",
    "ConstraintTooLarge",
    "DiffinityError",
    "DiffusionLM",
    "DownloadError",
    "Draft",
    "EmbeddingDiffusion",
    "Failure",
    "Generated",
    "GenerationSettings",
    "Generator",
    "Grammar",
    "InfeasibleConstraint",
    "InvalidArgument",
    "JsonSchema",
    "LangFlowConfig",
    "LangFlowLM",
    "MarkovLM",
    "ModelError",
    "PlaidConfig",
    "PlaidLM",
    "Regex",
    "Sampler",
    "SamplerState",
    "Samples",
    "SamplingDefaults",
    "Text",
    "TextModel",
    "TokenAutomaton",
    "TokenDiffusion",
    "UnsupportedConstraint",
    "Vocabulary",
    "__version__",
    "acceptance",
    "align",
    "constraint",
    "decode",
    "fit_bigrams",
    "fit_markov",
    "generate",
    "import_langflow",
    "import_plaid",
    "inspect",
    "load",
    "log_acceptance",
    "probabilities",
    "sample",
    "sentences",
    "stream",
    "texts",
    "variational_bound",
]

_NAMES_OF = {
    "acceptance": (
        "acceptance",
        "decode",
        "log_acceptance",
    ),
    "alignment": (
        "Bigrams",
        "TokenAutomaton",
        "Vocabulary",
        "align",
        "fit_bigrams",
    ),
    "constraints": (
        "ByteDFA",
        "Choice",
        "Concat",
        "Constraint",
        "Grammar",
        "JsonSchema",
        "Regex",
        "Text",
        "constraint",
        "sentences",
    ),
    "errors": (
        "CheckpointError",
        "ConstraintError",
        "ConstraintSyntaxError",
        "ConstraintTooLarge",
        "DiffinityError",
        "DownloadError",
        "InfeasibleConstraint",
        "Failure",
        "InvalidArgument",
        "ModelError",
        "UnsupportedConstraint",
    ),
    "generation": (
        "Draft",
        "Generated",
        "GenerationSettings",
        "Generator",
        "generate",
        "stream",
    ),
    "generation.probabilities": (
        "ChoiceProbability",
        "probabilities",
    ),
    "inspection": ("inspect",),
    "models": (
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
    ),
    "sampling": (
        "Sampler",
        "SamplerState",
        "Samples",
        "sample",
        "texts",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}


class _Package(ModuleType):
    """This package; `acceptance` is the function, although a folder has the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _MODULE_OF and isinstance(value, ModuleType) and value.__name__ == f"{__name__}.{name}"):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        super().__setattr__(name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
