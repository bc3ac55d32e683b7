"""The words that fill the slots of the English skeletons, by kind."""

from diffinity.training.corpus.fillers.animals import ANIMAL_CHARACTERS, ANIMALS
from diffinity.training.corpus.fillers.calendar import (
    COLORS,
    DAYS,
    MONTHS,
    NUMBERS,
    OPENING_TIMES,
    SEASONS,
    TIMES,
)
from diffinity.training.corpus.fillers.entry import Entry, article, with_article
from diffinity.training.corpus.fillers.foods import FOODS
from diffinity.training.corpus.fillers.moods import CHARACTER, FEELINGS
from diffinity.training.corpus.fillers.people import JOBS, NAMES, ROLES
from diffinity.training.corpus.fillers.places import PLACES
from diffinity.training.corpus.fillers.things import THINGS
from diffinity.training.corpus.fillers.weather import WEATHER

__all__ = [
    "ANIMALS",
    "ANIMAL_CHARACTERS",
    "CHARACTER",
    "COLORS",
    "DAYS",
    "FEELINGS",
    "FOODS",
    "JOBS",
    "MONTHS",
    "NAMES",
    "NUMBERS",
    "OPENING_TIMES",
    "PLACES",
    "ROLES",
    "SEASONS",
    "THINGS",
    "TIMES",
    "WEATHER",
    "Entry",
    "article",
    "with_article",
]
