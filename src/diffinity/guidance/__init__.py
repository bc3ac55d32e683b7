"""Interchangeable guidance methods for a denoising step, one module per method."""

from diffinity.guidance.base import DenoisingStep, Guidance, Prediction, Unguided
from diffinity.guidance.chain import ChainGuidance
from diffinity.guidance.classifier import ClassifierGuidance
from diffinity.guidance.gradient import GradientGuidance
from diffinity.guidance.language import LanguageGuidance
from diffinity.guidance.mixed import MixedGuidance
from diffinity.guidance.path import PathGuidance
from diffinity.guidance.posterior import PosteriorGuidance
from diffinity.guidance.tokens import TokenGuidance, TokenTarget, infill, prefix

__all__ = [
    "ChainGuidance",
    "ClassifierGuidance",
    "DenoisingStep",
    "GradientGuidance",
    "Guidance",
    "LanguageGuidance",
    "MixedGuidance",
    "PathGuidance",
    "PosteriorGuidance",
    "Prediction",
    "TokenGuidance",
    "TokenTarget",
    "Unguided",
    "infill",
    "prefix",
]
