"""Short sentences for the text fields of records: messages, titles, reviews, errors, descriptions."""

from __future__ import annotations

from random import Random
from typing import Final

from diffinity.training.corpus.structured.names import FIRST_NAMES
from diffinity.training.corpus.structured.values import COLOURS, WEEKDAYS, meeting_time, parts, words

_SLOTS: Final = {
    "first": FIRST_NAMES,
    "weekday": WEEKDAYS,
    "colour": COLOURS,
    "part": parts(
        """login page|search index|payment form|user list|settings page|mobile app|home page|export button
        |image upload|backup script|price table|email template|start screen|order history"""
    ),
    "document": parts("report|invoice|contract|budget|agenda|presentation|draft|plan|schedule"),
    "topic": parts(
        """solar energy|city gardens|deep sea fish|old maps|healthy sleep|electric cars|bread baking|bird migration
        |coffee farming|night trains|volcanoes|public libraries|wool knitting|rain forests|chess openings
        |bicycle repair|space telescopes|street markets"""
    ),
    "food": words("soup bread salad pasta coffee tea rice cake cheese fish pizza curry"),
    "good": words("lamp chair phone jacket camera bag blanket kettle bicycle watch keyboard tent"),
    "adjective": words("silent golden broken hidden last quiet bright lost wild secret cold blue empty"),
    "noun": words("river garden mirror winter harbor mountain letter island window forest road city clock sea"),
    "evening": ("18:00", "18:30", "19:00", "19:30", "20:00", "20:15"),
    "many": ("two", "three", "four", "five", "ten", "twelve"),
}

_MESSAGES = (
    "Can we move the meeting to {weekday}?",
    "I sent you the {document} this morning.",
    "Thanks, {first}!",
    "See you at {clock}.",
    "The {document} is ready.",
    "Please call {first} before {clock}.",
    "I will be ten minutes late.",
    "Do you want {food} for lunch?",
    "Your package arrives on {weekday}.",
    "Happy birthday, {first}!",
    "Did you read the {document}?",
    "The train was late again.",
    "Let's talk about the {part} on {weekday}.",
    "Good morning, {first}.",
    "We need {many} more chairs.",
    "I found your {good}.",
    "No problem, {weekday} works for me.",
    "The {food} was great, thank you.",
    "Where is the {colour} {good}?",
    "Dinner is at {evening} on {weekday}.",
)
_TASKS = (
    "Update the {part}",
    "Fix the {part}",
    "Write tests for the {part}",
    "Send the {document} to {first}",
    "Review the {document}",
    "Buy {food} and {food}",
    "Call {first} about the {document}",
    "Prepare the {document} for {weekday}",
    "Clean the kitchen",
    "Book a table for {many}",
    "Repair the {good}",
    "Plan the trip",
    "Translate the {part}",
    "Order a new {good}",
    "Remove the old {part}",
)
_CHANGES = (
    "Update the {part}",
    "Fix the {part}",
    "Write tests for the {part}",
    "Translate the {part}",
    "Remove the old {part}",
    "Speed up the {part}",
    "Document the {part}",
)
_PURPOSES = (
    "A small tool for the {part}.",
    "Changes to the {part}.",
    "Used by the {part}.",
    "Turns on the new {part}.",
    "Settings of the {part}.",
    "The new {document} for the {part}.",
    "Work on the {part}.",
)
_PROBLEMS = (
    "The {part} does not load",
    "Cannot save the {document}",
    "{colour} button is missing on the {part}",
    "Wrong total in the {document}",
    "The {part} is slow",
    "Error after opening the {part}",
    "Typo on the {part}",
    "The {good} arrived broken",
    "Password reset mail never arrives",
    "Text is cut off on the {part}",
)
_REVIEWS = (
    (1, "Broke after {many} days."),
    (1, "Not worth the money."),
    (1, "The {good} never arrived."),
    (2, "Too small and quite loud."),
    (2, "Looks nice, but feels cheap."),
    (2, "I expected more from this {good}."),
    (3, "It is fine for the price."),
    (3, "Good, but the {colour} one looks better."),
    (3, "Delivery took {many} days."),
    (4, "Solid {good}, works well."),
    (4, "Very comfortable, a bit heavy."),
    (4, "My family likes the {good}."),
    (5, "Excellent quality!"),
    (5, "Best {good} I have ever had."),
    (5, "I would buy this {good} again."),
)
_DESCRIPTIONS = (
    "A simple {good} for every day.",
    "A light {colour} {good} for travel.",
    "Everything about {topic}.",
    "A short guide to {topic}.",
    "The new {document} for the {part}.",
    "Changes to the {part}.",
    "Fresh {food} from the market.",
    "A small tool for the {part}.",
    "Notes on {topic}.",
    "Used by the {part}.",
    "The {document} of last {weekday}.",
    "A walk through the {adjective} {noun}.",
)
_HEADLINES = (
    "A short history of {topic}",
    "{many} facts about {topic}",
    "Why we love {topic}",
    "The future of {topic}",
    "What {topic} can teach us",
    "How to make {food} at home",
    "A beginner's guide to {topic}",
    "The {adjective} {noun}",
)
_TITLES = (
    "The {adjective} {noun}",
    "The {adjective} {noun}",
    "Songs of the {noun}",
    "Letters from the {noun}",
    "{adjective} {noun}",
    "The {noun} and the {noun}",
    "Beyond the {noun}",
    "{weekday} at the {noun}",
)


class _Slots(dict[str, str]):
    """Draws a word for each slot of a template on demand; no word is drawn twice."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng
        self._used: set[str] = set()

    def __missing__(self, slot: str) -> str:
        if slot == "clock":
            return f"{meeting_time(self._rng):%H:%M}"
        word = self._rng.choice([word for word in _SLOTS[slot] if word not in self._used])
        self._used.add(word)
        return word


def _filled(rng: Random, templates: tuple[str, ...]) -> str:
    text = rng.choice(templates).format_map(_Slots(rng))
    return text[0].upper() + text[1:]


def message(rng: Random) -> str:
    """Return a sentence of a chat or an e-mail.

    >>> message(Random(0))[-1] in ".?!"
    True
    """
    return _filled(rng, _MESSAGES)


def task_title(rng: Random) -> str:
    """Return the title of a task, in the imperative.

    >>> task_title(Random(0))[0].isupper()
    True
    """
    return _filled(rng, _TASKS)


def change_title(rng: Random) -> str:
    """Return the title of a change to software.

    >>> change_title(Random(0))[0].isupper()
    True
    """
    return _filled(rng, _CHANGES)


def purpose(rng: Random) -> str:
    """Return the purpose of a piece of software or work.

    >>> purpose(Random(0))[-1]
    '.'
    """
    return _filled(rng, _PURPOSES)


def problem(rng: Random) -> str:
    """Return the title of a support ticket.

    >>> problem(Random(0))[0].isupper()
    True
    """
    return _filled(rng, _PROBLEMS)


def review_text(rng: Random) -> tuple[int, str]:
    """Return a number of stars and a sentence that fits it.

    >>> 1 <= review_text(Random(0))[0] <= 5
    True
    """
    stars, text = rng.choice(_REVIEWS)
    return stars, _filled(rng, (text,))


def description(rng: Random) -> str:
    """Return a sentence that describes a thing.

    >>> description(Random(0))[-1]
    '.'
    """
    return _filled(rng, _DESCRIPTIONS)


def headline(rng: Random) -> str:
    """Return the title of an article.

    >>> headline(Random(0))[0].isupper()
    True
    """
    return _filled(rng, _HEADLINES)


def headlines_about(rng: Random, count: int) -> tuple[str, list[str]]:
    """Return a topic and `count` titles of articles about it.

    >>> len(headlines_about(Random(0), 2)[1])
    2
    """
    topic = rng.choice(_SLOTS["topic"])
    templates = [template.replace("{topic}", topic) for template in _HEADLINES if "{topic}" in template]
    return topic, [_filled(rng, (template,)) for template in rng.sample(templates, count)]


def work_title(rng: Random) -> str:
    """Return the title of an invented book, film or song.

    >>> work_title(Random(0))[0].isupper()
    True
    """
    title = _filled(rng, _TITLES).title()
    for small in ("Of", "And", "The", "At", "In", "From"):
        title = title.replace(f" {small} ", f" {small.lower()} ")
    return title
