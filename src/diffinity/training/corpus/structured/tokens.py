"""Kinds of text that are a single value: a date, a time, a number, an identifier, an address, a colour."""

from __future__ import annotations

from random import Random

from diffinity.training.corpus.structured.media import isbn_13
from diffinity.training.corpus.structured.names import person, product
from diffinity.training.corpus.structured.places import near, place
from diffinity.training.corpus.structured.registry import TINY, line_kind
from diffinity.training.corpus.structured.values import (
    COLOURS,
    CURRENCIES,
    FRUIT,
    LEVELS,
    MONTHS,
    WEEKDAYS,
    clock,
    day,
    decimal,
    domain,
    filled,
    hex_colour_code,
    ipv4,
    ipv6,
    moment,
    number_id,
    phone,
    price,
    relative_path,
    timestamp,
    url,
    uuid,
    version,
    words,
)

# Sets of words to choose from. The common colours are in two sets.
ANSWERS = (
    COLOURS,
    COLOURS[:9],
    FRUIT,
    LEVELS,
    MONTHS,
    WEEKDAYS,
    words("yes no maybe"),
    words("Yes No"),
    words("true false"),
    words("positive negative neutral"),
    words("good bad"),
    words("happy sad angry afraid surprised"),
    words("north south east west"),
    words("left right"),
    words("small medium large"),
    words("spring summer autumn winter"),
    words("cat dog horse cow sheep pig chicken duck mouse rabbit bird fish"),
    words("bread butter cheese milk rice soup tea coffee juice water"),
    words("one two three four five six seven eight nine ten"),
    words("car bus train plane boat bicycle"),
)


@line_kind(weight=TINY)
def date_text(rng: Random) -> str:
    date = day(rng)
    month = MONTHS[date.month - 1]
    return rng.choice(
        (
            date.isoformat(),
            f"{date.day} {month} {date.year}",
            f"{month} {date.day}, {date.year}",
            f"{date:%d.%m.%Y}",
            f"{date:%m/%d/%Y}",
            f"{WEEKDAYS[date.weekday()]}, {date.day} {month} {date.year}",
            f"{date.day:02} {month[:3]} {date.year}",
        )
    )


@line_kind(weight=TINY)
def phone_number(rng: Random) -> str:
    return phone(rng)


@line_kind(weight=TINY)
def time_text(rng: Random) -> str:
    at = moment(rng)
    suffix = rng.choice(("am", "pm"))
    return rng.choice((clock(rng), f"{at:%H:%M:%S}", timestamp(rng), f"{rng.randint(1, 12)}:{at:%M} {suffix}"))


@line_kind(weight=TINY)
def identifier(rng: Random) -> str:
    pattern = rng.choice(("@@-####", "@@@####", "##-##-##", "####-####", "~~~~~~~~", "@#@ #@#", "@@@-##-@@"))
    return rng.choice((uuid(rng), filled(rng, pattern), filled(rng, pattern), product(rng).sku))


@line_kind(weight=TINY)
def ip_address(rng: Random) -> str:
    return rng.choice((ipv4(rng), ipv6(rng)))


@line_kind(weight=TINY)
def mac_address(rng: Random) -> str:
    """An address of the block that RFC 7042 reserves for documentation."""
    return filled(rng, "00:00:5e:00:53:~~")


@line_kind(weight=TINY)
def version_text(rng: Random) -> str:
    return rng.choice(("", "", "v", ">=", "^")) + version(rng) + rng.choice(("", "", "", "-beta.1", "-rc.2"))


@line_kind(weight=TINY)
def file_path(rng: Random) -> str:
    return rng.choice(("", "", "./", "../")) + relative_path(rng)


@line_kind(weight=TINY)
def url_text(rng: Random) -> str:
    return url(rng) + rng.choice(("", "", f"?page={rng.randint(1, 50)}", f"?id={number_id(rng)}"))


@line_kind(weight=0.5)
def one_word(rng: Random) -> str:
    """A one-word answer from a random set of alternatives."""
    return rng.choice(rng.choice(ANSWERS))


@line_kind(weight=TINY)
def email_text(rng: Random) -> str:
    if rng.random() < 0.9:
        return person(rng).email
    return f"{rng.choice(('info', 'support', 'sales', 'hello'))}@{domain(rng)}"


@line_kind(weight=TINY)
def isbn_text(rng: Random) -> str:
    digits = isbn_13(rng)
    hyphenated = "-".join((digits[:3], digits[3], digits[4:8], digits[8:12], digits[12]))
    return rng.choice((digits, hyphenated, f"ISBN {hyphenated}"))


@line_kind(weight=TINY)
def hex_colour(rng: Random) -> str:
    code = hex_colour_code(rng)
    return rng.choice(
        (code, code.upper(), code[:4], f"rgb({', '.join(str(rng.randrange(256)) for _ in range(3))})")
    )


@line_kind(weight=TINY)
def money_text(rng: Random) -> str:
    amount = f"{price(rng):.2f}"
    return rng.choice((f"${amount}", f"€{amount}", f"£{amount}", f"{amount} {rng.choice(CURRENCIES)}"))


@line_kind(weight=TINY)
def measure_text(rng: Random) -> str:
    unit, low, high = rng.choice(
        (
            ("km", 1, 900),
            ("kg", 0.5, 90),
            ("°C", -10, 36),
            ("cm", 1, 200),
            ("ml", 5, 900),
            ("%", 0, 100),
            ("MB", 1, 900),
        )
    )
    digits = rng.choice((0, 1))
    value = decimal(rng, low, high, digits)
    return f"{value if digits else int(value)} {unit}".replace(" %", "%")


@line_kind(weight=TINY)
def coordinates_text(rng: Random) -> str:
    latitude, longitude = near(rng, place(rng))
    return f"{latitude}, {longitude}"
