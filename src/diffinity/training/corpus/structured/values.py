"""Plain values that many kinds share: numbers, times, identifiers, network addresses, words.

Every e-mail address, host, URL and IP address is in a range reserved for documentation
(RFC 2606, RFC 5737, RFC 3849), and every telephone number in the fictional 555-01xx block.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Final, TypeVar
from uuid import UUID

from diffinity.training.corpus.structured.registry import ABSENT, Absence

T = TypeVar("T")


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text.

    >>> words("red green")
    ('red', 'green')
    """
    return tuple(text.split())


def parts(text: str) -> tuple[str, ...]:
    """Return the parts of a text between vertical bars.

    >>> parts("a new day | an old one")
    ('a new day', 'an old one')
    """
    return tuple(part.strip() for part in text.split("|"))


DOMAINS: Final = ("example.com", "example.org", "example.net")
SUBDOMAINS: Final = words("www api shop blog docs cdn app static files status media news auth mail")
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = words("January February March April May June July August September October November December")
COLOURS: Final = words(
    """red green blue black white yellow orange purple pink brown gray silver gold navy teal olive maroon
    beige turquoise violet cyan magenta ivory coral"""
)
TAGS: Final = words(
    """new sale featured popular urgent draft public private internal beta stable archived red summer winter
    travel food music sports science history art health finance family garden home office school outdoor
    python rust web mobile cloud backend frontend database security testing design research data ai news
    video photo books games tools vintage organic vegan local fast easy free premium"""
)
STATUSES: Final = words(
    """active inactive pending completed failed cancelled draft published archived open closed running
    paused queued approved rejected processing shipped delivered ready"""
)
LEVELS: Final = ("low", "medium", "high")
SIZES: Final = ("XS", "S", "M", "L", "XL", "small", "medium", "large")
SERVICES: Final = words(
    """auth billing gateway search orders payments catalog inventory users notifications reports media
    worker scheduler checkout frontend api cache mailer proxy"""
)
WORDS: Final = words(
    """apple river mountain window garden bridge paper silver morning forest candle harbor island meadow
    pepper rocket shadow thunder valley winter amber basket copper desert engine feather glacier hammer
    lantern marble needle ocean pencil quartz ribbon saddle temple umbrella velvet willow anchor button
    cotton dragon ember falcon ginger hazel indigo jasmine kettle lemon maple nectar orchid pebble"""
)
FRUIT: Final = words("apple pear banana orange lemon cherry grape peach plum mango kiwi melon fig apricot lime")
LANGUAGES: Final = ("en", "de", "fr", "es", "it", "pt", "nl", "sv", "pl", "ja", "ko", "zh", "ar", "hi", "tr")
CURRENCIES: Final = ("USD", "USD", "EUR", "EUR", "GBP", "CHF", "CAD", "AUD", "SEK", "PLN")
MIME_TYPES: Final = {
    "pdf": "application/pdf",
    "png": "image/png",
    "jpg": "image/jpeg",
    "csv": "text/csv",
    "txt": "text/plain",
    "json": "application/json",
    "zip": "application/zip",
    "mp4": "video/mp4",
    "html": "text/html",
}
FILE_STEMS: Final = words(
    """report invoice photo backup notes summary budget index readme data logo banner slides contract
    resume results export users orders main config schedule map draft letter"""
)

_HEX = "0123456789abcdef"
_EPOCH = datetime(2018, 1, 1, tzinfo=UTC)
_MINUTES = 10 * 365 * 24 * 60


def maybe(rng: Random, value: T, chance: float = 0.5) -> T | Absence:
    """Return the value of an optional key, or `ABSENT` with probability 1 - chance.

    >>> maybe(Random(0), 5, chance=1.0)
    5
    """
    return value if rng.random() < chance else ABSENT


def nullable(rng: Random, value: T, chance: float = 0.25) -> T | None:
    """Return the value, or None with the given chance.

    >>> nullable(Random(0), 5, chance=0.0)
    5
    """
    return None if rng.random() < chance else value


def some(rng: Random, pool: Sequence[T], low: int, high: int) -> list[T]:
    """Return between low and high different members of the pool.

    >>> sorted(some(Random(0), (1, 2, 3), 3, 3))
    [1, 2, 3]
    """
    return rng.sample(pool, rng.randint(low, high))


def decimal(rng: Random, low: float, high: float, digits: int = 2) -> float:
    """Return a number in [low, high], rounded to `digits` decimal digits.

    >>> 1.0 <= decimal(Random(0), 1, 2) <= 2.0
    True
    """
    return round(rng.uniform(low, high), digits)


def flag(rng: Random, chance: float = 0.5) -> bool:
    """Return True with the given chance.

    >>> flag(Random(0), chance=1.0)
    True
    """
    return rng.random() < chance


def cents(rng: Random, low: int = 199, high: int = 19999) -> int:
    """Return a price in cents with a typical ending, such as 99.

    >>> 100 <= cents(Random(0), 100, 900) <= 900
    True
    """
    ending = rng.choice((99, 99, 95, 90, 50, 49, 25, 0, 0, rng.randrange(100)))
    return min(max(rng.randint(low, high) // 100 * 100 + ending, low), high)


def price(rng: Random, low: int = 199, high: int = 19999) -> float:
    """Return a price with at most two decimals; the bounds are in cents.

    >>> 1 <= price(Random(0), 100, 900) <= 9
    True
    """
    return cents(rng, low, high) / 100


def filled(rng: Random, pattern: str) -> str:
    """Return the pattern with a digit for each `#`, a capital for each `@`, a hex digit for each `~`.

    >>> filled(Random(0), "A-##")[:2]
    'A-'
    """
    pools = {"#": "0123456789", "@": "ABCDEFGHJKLMNPQRSTUVWXYZ", "~": _HEX}
    return "".join(rng.choice(pools[mark]) if mark in pools else mark for mark in pattern)


def number_id(rng: Random) -> int:
    """Return a positive identifier of one to six digits.

    >>> 0 < number_id(Random(0)) < 1_000_000
    True
    """
    return rng.randint(1, int(10 ** rng.randint(1, 6)) - 1)


def uuid(rng: Random) -> str:
    """Return a version-4 UUID.

    >>> UUID(uuid(Random(0))).version
    4
    """
    return str(UUID(int=rng.getrandbits(128), version=4))


def any_id(rng: Random) -> int | str:
    """Return an identifier of one of the usual forms: a number, a prefixed code or a UUID.

    >>> isinstance(any_id(Random(0)), (int, str))
    True
    """
    prefix = rng.choice(("usr", "ord", "evt", "req", "itm", "msg", "tx", "job"))
    return rng.choice((number_id(rng), number_id(rng), filled(rng, prefix + "_~~~~~~"), uuid(rng)))


def moment(rng: Random) -> datetime:
    """Return a time in UTC between 2018 and 2027, often at a whole minute.

    >>> moment(Random(0)).tzname()
    'UTC'
    """
    seconds = rng.choice((0, rng.randrange(60)))
    return _EPOCH + timedelta(minutes=rng.randrange(_MINUTES), seconds=seconds)


def meeting_time(rng: Random) -> datetime:
    """Return a time in UTC at a quarter of an hour of the working day.

    >>> meeting_time(Random(0)).minute in (0, 15, 30, 45)
    True
    """
    start = datetime.combine(day(rng), datetime.min.time(), tzinfo=UTC)
    return start + timedelta(hours=rng.randint(7, 18), minutes=rng.choice((0, 0, 15, 30, 45)))


def iso(at: datetime) -> str:
    """Return the RFC 3339 spelling of a time in UTC.

    >>> iso(datetime(2024, 5, 1, 12, 30, tzinfo=UTC))
    '2024-05-01T12:30:00Z'
    """
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamp(rng: Random) -> str:
    """Return a random RFC 3339 time.

    >>> timestamp(Random(0))[-1]
    'Z'
    """
    return iso(moment(rng))


def day(rng: Random) -> date:
    """Return a date between 2018 and 2027.

    >>> 2018 <= day(Random(0)).year <= 2027
    True
    """
    return date(2018, 1, 1) + timedelta(days=rng.randrange(3652))


def birthday(rng: Random) -> date:
    """Return the date of birth of an adult.

    >>> 1945 <= birthday(Random(0)).year <= 2006
    True
    """
    return date(1945, 1, 1) + timedelta(days=rng.randrange(22_500))


def clock(rng: Random) -> str:
    """Return a time of day, mostly at a multiple of five minutes.

    >>> len(clock(Random(0)))
    5
    """
    minute = rng.choice((0, 0, 15, 30, 30, 45, 5 * rng.randrange(12), rng.randrange(60)))
    return f"{rng.randint(0, 23):02}:{minute:02}"


def version(rng: Random) -> str:
    """Return a semantic version.

    >>> version(Random(0)).count(".")
    2
    """
    return f"{rng.randint(0, 12)}.{rng.randint(0, 20)}.{rng.choice((0, 0, 1, 2, 3, rng.randint(0, 30)))}"


def ipv4(rng: Random) -> str:
    """Return an address of the three blocks that RFC 5737 reserves for documentation.

    >>> ipv4(Random(0)).count(".")
    3
    """
    return rng.choice(("192.0.2.", "198.51.100.", "203.0.113.")) + str(rng.randint(1, 254))


def ipv6(rng: Random) -> str:
    """Return an address of 2001:db8::/32.

    >>> ipv6(Random(0))[:8]
    '2001:db8'
    """
    return f"2001:db8:{rng.randint(0, 0xFFFF):x}::{rng.randint(1, 0xFFFF):x}"


def hostname(rng: Random) -> str:
    """Return the name of a host under a reserved domain.

    >>> hostname(Random(0)).split(".", 1)[1] in DOMAINS
    True
    """
    role = rng.choice(("web", "db", "app", "cache", "node", "mail", "build", "edge", "api", "queue"))
    return f"{role}{rng.choice(('', '-1', '-2', '-3', '-01', '-02', '-03', '1', '2'))}.{rng.choice(DOMAINS)}"


def domain(rng: Random) -> str:
    """Return a reserved domain, with or without a subdomain.

    >>> domain(Random(0)).endswith(DOMAINS)
    True
    """
    return rng.choice(("", "", rng.choice(SUBDOMAINS) + ".")) + rng.choice(DOMAINS)


def slug(rng: Random) -> str:
    """Return two words joined by a hyphen, as in URLs.

    >>> slug(Random(0)).count("-")
    1
    """
    return "-".join(rng.sample(WORDS, 2))


def url(rng: Random) -> str:
    """Return a URL on a reserved domain.

    >>> url(Random(0))[:8]
    'https://'
    """
    section = rng.choice(("posts", "items", "users", "products", "docs", "articles", "p", "en", "news"))
    tail = rng.choice(("", f"/{section}", f"/{section}/{number_id(rng)}", f"/{section}/{slug(rng)}"))
    return f"https://{domain(rng)}{tail}"


def image_url(rng: Random) -> str:
    """Return the URL of a picture on a reserved domain.

    >>> image_url(Random(0)).endswith((".png", ".jpg"))
    True
    """
    folder = rng.choice(("images", "img", "photos", "avatars", "media"))
    stem = rng.choice((rng.choice(WORDS), str(number_id(rng))))
    return f"https://{domain(rng)}/{folder}/{stem}.{rng.choice(('png', 'jpg'))}"


def phone(rng: Random) -> str:
    """Return a telephone number in the fictional 555-01xx block.

    >>> "555" in phone(Random(0))
    True
    """
    area = rng.choice(("202", "212", "303", "312", "415", "503", "617", "713"))
    last = f"01{rng.randrange(100):02}"
    return rng.choice((f"555-{last}", f"+1-{area}-555-{last}", f"({area}) 555-{last}", f"+1 {area} 555 {last}"))


def hex_colour_code(rng: Random) -> str:
    """Return a colour as six hex digits.

    >>> len(hex_colour_code(Random(0)))
    7
    """
    return "#" + filled(rng, "~~~~~~")


def file_name(rng: Random) -> tuple[str, str]:
    """Return a file's name and its media type.

    >>> "." in file_name(Random(0))[0]
    True
    """
    ending, mime_type = rng.choice(tuple(MIME_TYPES.items()))
    stem = rng.choice(FILE_STEMS)
    mark = rng.choice(("", "", "-2", "_final", "_v2", f"-{day(rng).year}", f"_{rng.randint(1, 99):02}"))
    return f"{stem}{mark}.{ending}", mime_type


def relative_path(rng: Random) -> str:
    """Return a relative path of one to four parts.

    >>> relative_path(Random(0)).startswith("/")
    False
    """
    folders = ("src", "docs", "tests", "lib", "data", "assets", "images", "config", "scripts", "notes", "tmp")
    stem = rng.choice((*FILE_STEMS, *WORDS[:20]))
    ending = rng.choice(("py", "txt", "md", "json", "yaml", "csv", "html", "js", "ts", "rs", "toml", "png"))
    return "/".join([*some(rng, folders, 0, 3), f"{stem}.{ending}"])
