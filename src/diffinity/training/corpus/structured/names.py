"""Names: people with their e-mail addresses, organisations, teams and goods for sale."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final
from unicodedata import normalize

from diffinity.training.corpus.structured.values import COLOURS, DOMAINS, cents, parts, words

FIRST_NAMES: Final = words(
    """Alice Bob Carol David Emma Frank Grace Henry Irene Jack Karen Liam Maria Noah Olivia Peter Quinn Rosa
    Sam Tina Uma Victor Wendy Xavier Yara Zoe Ahmed Aiko Amara Anna Anton Ben Chen Clara Daniel Diego Elena
    Eva Farah Felix Gita Hana Hugo Ines Ivan Jane John José Julia Kenji Lara Leo Lina Lucas Luis Marco Mei
    Mia Mina Nadia Nina Omar Paul Priya Ravi René Sara Sofia Tom Yusuf Zoë Chloé Jörg"""
)
LAST_NAMES: Final = words(
    """Adams Baker Clark Davis Evans Fischer Garcia Harris Ivanova Jones Kim Lopez Miller Nguyen Olsen Patel
    Quinn Rossi Smith Taylor Ueda Vargas Wang Xu Young Zhang Ali Andersson Becker Brown Costa Dubois Fernández
    Green Haddad Hall Hansen Jansen Johnson Khan Kovacs Lee Martin Meyer Moore Müller Novak Okafor Park Reyes
    Roberts Sato Schmidt Silva Singh Tanaka Walker Weber White Wilson Wright Yilmaz"""
)
ROLES: Final = ("admin", "editor", "viewer", "member", "owner", "guest", "user", "manager", "moderator")
JOBS: Final = parts(
    """Engineer|Software Engineer|Designer|Product Manager|Data Analyst|Accountant|Teacher|Nurse|Architect
    |Sales Manager|Technician|Researcher|Writer|Support Agent|Team Lead|Chef|Librarian|Translator"""
)
JOBS_BY_DEPARTMENT: Final = {
    "Engineering": ("Software Engineer", "Test Engineer", "Architect", "Team Lead"),
    "Sales": ("Sales Manager", "Account Manager", "Sales Assistant"),
    "Marketing": ("Writer", "Brand Manager", "Translator"),
    "Finance": ("Accountant", "Analyst", "Controller"),
    "Support": ("Support Agent", "Technician", "Team Lead"),
    "Design": ("Designer", "Illustrator", "Product Designer"),
    "Research": ("Researcher", "Data Analyst", "Librarian"),
    "Operations": ("Planner", "Technician", "Driver"),
    "Legal": ("Lawyer", "Assistant"),
    "HR": ("Recruiter", "HR Manager"),
}
DEPARTMENTS: Final = tuple(JOBS_BY_DEPARTMENT)
TEAMS: Final = words(
    """Tigers Falcons Rovers United Wolves Sharks Eagles Comets Rangers Hornets Pirates Storm Lions
    Dragons Bears Wanderers"""
)

_COMPANY_HEADS = words(
    """Northwind Bluebird Acme Redwood Summit Harbor Lakeside Granite Evergreen Bright Silver Pioneer
    Meridian Orchard Cascade Sunrise Copper Willow"""
)
_COMPANY_TAILS = parts("Inc.|Ltd.|Labs|Foods|Books|Travel|Media|Energy|Systems|Group|Studio")

# name | category | lowest price | highest price (whole units of money)
_GOODS = """
Wireless Mouse|electronics|15|45
USB-C Cable|electronics|6|20
Mechanical Keyboard|electronics|49|160
Laptop Stand|office|19|60
Desk Lamp|home|18|75
Coffee Mug|kitchen|6|18
Water Bottle|outdoor|9|35
Running Shoes|sports|49|150
Yoga Mat|sports|15|50
Backpack|outdoor|29|120
Notebook|office|3|15
Ballpoint Pen|office|1|5
Headphones|electronics|25|250
Phone Case|electronics|8|30
Cotton T-Shirt|clothing|9|30
Wool Scarf|clothing|15|45
Rain Jacket|clothing|45|180
Winter Hat|clothing|10|30
Office Chair|furniture|79|350
Bookshelf|furniture|49|220
Frying Pan|kitchen|15|70
Chef's Knife|kitchen|20|110
Tea Kettle|kitchen|18|80
Garden Hose|garden|15|45
Flower Pot|garden|4|25
Board Game|toys|15|60
Puzzle|toys|8|30
Bicycle Helmet|sports|25|90
Tent|outdoor|69|300
Sleeping Bag|outdoor|35|160
Alarm Clock|home|10|40
Pillow|home|12|50
Bath Towel|home|8|30
Green Tea|food|3|12
Dark Chocolate|food|2|8
Olive Oil|food|5|20
Hand Soap|beauty|2|9
Face Cream|beauty|8|40
Monitor|electronics|119|450
Webcam|electronics|25|120
"""


@dataclass(frozen=True)
class Person:
    """A person whose username and e-mail address are made of the name."""

    first: str
    last: str
    username: str
    email: str

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}"


@dataclass(frozen=True)
class Product:
    """A thing for sale, with a price in cents that suits it."""

    name: str
    category: str
    cents: int
    sku: str

    @property
    def price(self) -> float:
        return self.cents / 100


def _parsed_good(row: str) -> tuple[str, str, int, int]:
    name, category, low, high = row.split("|")
    return name, category, int(low), int(high)


GOODS: Final = tuple(_parsed_good(row) for row in _GOODS.strip().splitlines())


def person(rng: Random) -> Person:
    """Return a person.

    >>> person(Random(0)).email.endswith(DOMAINS)
    True
    """
    first, last = rng.choice(FIRST_NAMES), rng.choice(LAST_NAMES)
    first_plain, last_plain = _plain(first), _plain(last)
    address = rng.choice(
        (f"{first_plain}.{last_plain}", f"{first_plain}.{last_plain}", first_plain, first_plain[0] + last_plain)
    )
    number = rng.choice(("", str(rng.randint(1, 99))))
    username = rng.choice(
        (
            first_plain + number,
            first_plain[0] + last_plain,
            f"{first_plain}_{last_plain}",
            first_plain + last_plain[0] + number,
        )
    )
    return Person(first, last, username, f"{address}@{rng.choice(('', '', 'mail.'))}{rng.choice(DOMAINS)}")


def product(rng: Random) -> Product:
    """Return a product.

    >>> product(Random(0)).cents > 0
    True
    """
    return _product_of(rng, rng.choice(GOODS))


def products(rng: Random, count: int) -> list[Product]:
    """Return `count` different products.

    >>> len({product.name for product in products(Random(0), 3)})
    3
    """
    return [_product_of(rng, good) for good in rng.sample(GOODS, count)]


def company(rng: Random) -> str:
    """Return the name of a company.

    >>> len(company(Random(0)).split())
    2
    """
    return f"{rng.choice(_COMPANY_HEADS)} {rng.choice(_COMPANY_TAILS)}"


def _product_of(rng: Random, good: tuple[str, str, int, int]) -> Product:
    name, category, low, high = good
    letters = "".join(word[0] for word in f"{category} {name}".upper().replace("-", " ").split())
    code = rng.choice((f"{letters}-{rng.randint(100, 9999)}", f"{category[:3].upper()}{rng.randint(1000, 9999)}"))
    coloured = category in ("clothing", "outdoor", "home") and rng.random() < 0.25
    display_name = f"{name}, {rng.choice(COLOURS)}" if coloured else name
    return Product(display_name, category, cents(rng, low * 100, high * 100), code)


def _plain(name: str) -> str:
    return normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
