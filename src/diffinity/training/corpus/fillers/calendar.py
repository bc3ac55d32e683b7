"""Days, months, seasons and times of day, and the two short lists next to them: numbers and colors."""

from diffinity.training.corpus.fillers.entry import Entry, listed, plain_entries

_MONTHS = """
January, February, March, April, May, June, July, August, September, October, November, December
"""
_COLORS = """
red, blue, green, yellow, white, black, brown, gray, pink, purple, orange, gold, silver, violet,
turquoise, dark blue, dark green, dark red, light blue, light green, pale yellow, cream, bright red,
bright yellow, crimson, scarlet, lilac
"""
# Each fits the past tense, both to open a sentence ("One evening, ...") and to close it ("... one evening").
_ANY_TIMES = """
in the morning, in the afternoon, in the evening, one morning, one afternoon, one evening, one night, one
day, at dawn, at sunrise, at sunset, at dusk, at noon, at midnight, around noon, before breakfast, after
breakfast, before lunch, after lunch, before dinner, after dinner, after supper, after school, after work,
late in the evening, late in the afternoon, early in the morning, early one morning, late one evening, one
fine morning, one quiet evening, one cold night, one warm evening, one rainy afternoon, one stormy night,
one sunny morning, one windy day, just before sunset, just after sunrise, at lunchtime, one foggy evening,
one snowy morning, one bright morning, one dull afternoon, at breakfast time, shortly after lunch, soon
after sunrise, shortly before noon, one chilly morning, one mild evening
"""
# These stand apart from what was told before, so they only open a document.
_FIRST_TIMES = """
one fine day, yesterday, yesterday morning, yesterday evening, last night, last week, last
weekend, a week ago, a few days ago, two days ago, not long ago, some time ago, a long time ago, many
years ago, on market day, over the weekend, during the holidays, on the last day of school, on a rainy
day, on a foggy morning, on the first warm day of the year, a month ago, on a quiet afternoon, on a lovely
morning
"""
# These look back, so something must have happened before them.
_LATER_TIMES = """
the next day, the next morning, the next evening, the following day, the following week, the day after, a
week later, a few days later, two days later, an hour later, a little later, that same evening, that same
day, that night, that afternoon, the next afternoon, some days later, a month later, the following
evening, that very night, the morning after, a few minutes later
"""
_PLAIN_WORDS = """
in, the, at, one, on, a, an, before, after, around, late, early, that, same, next, last, just, few, first,
once, of, fine, little, not, some, time, over, during, way, two, many, long, day, following, later, ago,
shortly, soon
"""


def _times(text: str) -> tuple[Entry, ...]:
    plain = frozenset(listed(_PLAIN_WORDS))
    return tuple(Entry({"": time}, frozenset(time.split()) - plain) for time in listed(text))


def _named(text: str) -> tuple[Entry, ...]:
    return tuple(Entry({"": name}, frozenset({name.lower()})) for name in listed(text))


DAYS = _named("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
MONTHS = _named(_MONTHS)
SEASONS = plain_entries(listed("spring, summer, autumn, winter"))
NUMBERS = plain_entries(listed("two, three, four, five, six, seven, eight, nine, ten, eleven, twelve"))
COLORS = plain_entries(listed(_COLORS))
OPENING_TIMES = _times(f"{_ANY_TIMES}, {_FIRST_TIMES}")
TIMES = _times(f"{_ANY_TIMES}, {_LATER_TIMES}")
