"""Ways to steer a denoising step, interchangeable, one module each."""

from diffinity.guidance.base import DenoisingStep, Guidance, Prediction, Unguided
from diffinity.guidance.tokens import TokenGuidance, TokenTarget, infill, prefix

__all__ = [
    "DenoisingStep",
    "Guidance",
    "Prediction",
    "TokenGuidance",
    "TokenTarget",
    "Unguided",
    "infill",
    "prefix",
]
