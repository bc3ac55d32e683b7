"""From a constraint to text: settings, the generator, the loop and particles."""

from diffinity.generation.generator import ANY_TEXT, Generator, generate, stream
from diffinity.generation.lengths import comfortable_length
from diffinity.generation.results import Draft, Generated
from diffinity.generation.settings import GenerationSettings
from diffinity.processes.base import Decoding

__all__ = [
    "ANY_TEXT",
    "Decoding",
    "Draft",
    "Generated",
    "GenerationSettings",
    "Generator",
    "comfortable_length",
    "generate",
    "stream",
]
