"""Cities with country, coordinates, time zone, currency, airport and postal code."""

from __future__ import annotations

from dataclasses import dataclass
from math import asin, cos, radians, sin, sqrt
from random import Random
from typing import Final

from diffinity.training.corpus.structured.values import filled

# city | country | code | latitude | longitude | time zone | currency | airport | postal pattern
_TABLE = """
New York|United States|US|40.71|-74.01|America/New_York|USD|JFK|100##
Chicago|United States|US|41.88|-87.63|America/Chicago|USD|ORD|606##
Seattle|United States|US|47.61|-122.33|America/Los_Angeles|USD|SEA|981##
Boston|United States|US|42.36|-71.06|America/New_York|USD|BOS|021##
Denver|United States|US|39.74|-104.99|America/Denver|USD|DEN|802##
Austin|United States|US|30.27|-97.74|America/Chicago|USD|AUS|787##
Portland|United States|US|45.52|-122.68|America/Los_Angeles|USD|PDX|972##
Toronto|Canada|CA|43.65|-79.38|America/Toronto|CAD|YYZ|M#@ #@#
Montreal|Canada|CA|45.5|-73.57|America/Toronto|CAD|YUL|H#@ #@#
Vancouver|Canada|CA|49.28|-123.12|America/Vancouver|CAD|YVR|V#@ #@#
London|United Kingdom|GB|51.51|-0.13|Europe/London|GBP|LHR|N# #@@
Manchester|United Kingdom|GB|53.48|-2.24|Europe/London|GBP|MAN|M# #@@
Edinburgh|United Kingdom|GB|55.95|-3.19|Europe/London|GBP|EDI|EH# #@@
Dublin|Ireland|IE|53.35|-6.26|Europe/Dublin|EUR|DUB|D0# @@##
Sydney|Australia|AU|-33.87|151.21|Australia/Sydney|AUD|SYD|20##
Melbourne|Australia|AU|-37.81|144.96|Australia/Melbourne|AUD|MEL|30##
Auckland|New Zealand|NZ|-36.85|174.76|Pacific/Auckland|NZD|AKL|10##
Berlin|Germany|DE|52.52|13.4|Europe/Berlin|EUR|BER|10###
Munich|Germany|DE|48.14|11.58|Europe/Berlin|EUR|MUC|80###
Hamburg|Germany|DE|53.55|9.99|Europe/Berlin|EUR|HAM|20###
Köln|Germany|DE|50.94|6.96|Europe/Berlin|EUR|CGN|50###
Vienna|Austria|AT|48.21|16.37|Europe/Vienna|EUR|VIE|10#0
Zürich|Switzerland|CH|47.37|8.54|Europe/Zurich|CHF|ZRH|80##
Paris|France|FR|48.86|2.35|Europe/Paris|EUR|CDG|7501#
Lyon|France|FR|45.76|4.84|Europe/Paris|EUR|LYS|6900#
Nice|France|FR|43.7|7.27|Europe/Paris|EUR|NCE|06#00
Brussels|Belgium|BE|50.85|4.35|Europe/Brussels|EUR|BRU|10#0
Madrid|Spain|ES|40.42|-3.7|Europe/Madrid|EUR|MAD|280##
Barcelona|Spain|ES|41.39|2.17|Europe/Madrid|EUR|BCN|080##
Valencia|Spain|ES|39.47|-0.38|Europe/Madrid|EUR|VLC|460##
Mexico City|Mexico|MX|19.43|-99.13|America/Mexico_City|MXN|MEX|06###
Buenos Aires|Argentina|AR|-34.6|-58.38|America/Argentina/Buenos_Aires|ARS|EZE|1###
Rome|Italy|IT|41.9|12.5|Europe/Rome|EUR|FCO|001##
Milan|Italy|IT|45.46|9.19|Europe/Rome|EUR|MXP|201##
Lisbon|Portugal|PT|38.72|-9.14|Europe/Lisbon|EUR|LIS|1#00-###
Porto|Portugal|PT|41.15|-8.61|Europe/Lisbon|EUR|OPO|4#00-###
São Paulo|Brazil|BR|-23.55|-46.63|America/Sao_Paulo|BRL|GRU|01###-000
Amsterdam|Netherlands|NL|52.37|4.9|Europe/Amsterdam|EUR|AMS|101# @@
Utrecht|Netherlands|NL|52.09|5.12|Europe/Amsterdam|EUR|AMS|351# @@
Copenhagen|Denmark|DK|55.68|12.57|Europe/Copenhagen|DKK|CPH|
Stockholm|Sweden|SE|59.33|18.07|Europe/Stockholm|SEK|ARN|
Oslo|Norway|NO|59.91|10.75|Europe/Oslo|NOK|OSL|
Helsinki|Finland|FI|60.17|24.94|Europe/Helsinki|EUR|HEL|
Warsaw|Poland|PL|52.23|21.01|Europe/Warsaw|PLN|WAW|
Prague|Czech Republic|CZ|50.08|14.44|Europe/Prague|CZK|PRG|
Athens|Greece|GR|37.98|23.73|Europe/Athens|EUR|ATH|
Istanbul|Turkey|TR|41.01|28.98|Europe/Istanbul|TRY|IST|
Cairo|Egypt|EG|30.04|31.24|Africa/Cairo|EGP|CAI|
Nairobi|Kenya|KE|-1.29|36.82|Africa/Nairobi|KES|NBO|
Cape Town|South Africa|ZA|-33.92|18.42|Africa/Johannesburg|ZAR|CPT|
Dubai|United Arab Emirates|AE|25.2|55.27|Asia/Dubai|AED|DXB|
Mumbai|India|IN|19.08|72.88|Asia/Kolkata|INR|BOM|
Delhi|India|IN|28.61|77.21|Asia/Kolkata|INR|DEL|
Singapore|Singapore|SG|1.35|103.82|Asia/Singapore|SGD|SIN|
Bangkok|Thailand|TH|13.76|100.5|Asia/Bangkok|THB|BKK|
Tokyo|Japan|JP|35.68|139.69|Asia/Tokyo|JPY|HND|
Osaka|Japan|JP|34.69|135.5|Asia/Tokyo|JPY|KIX|
Seoul|South Korea|KR|37.57|126.98|Asia/Seoul|KRW|ICN|
"""

_ENGLISH = "{n} Oak Street|{n} Park Road|{n} Mill Lane|{n} High Street|{n} Station Road|{n} Church Street"
_MORE_ENGLISH = "|{n} Maple Avenue|{n} King Street|{n} River Road|{n} Hill Street|{n} Queen Street|{n} Elm Avenue"
_GERMAN = "Lindenweg {n}|Hauptstraße {n}|Bahnhofstraße {n}|Gartenweg {n}|Schulstraße {n}|Bergstraße {n}"
_SPANISH = "Calle Mayor {n}|Calle del Sol {n}|Avenida Central {n}|Calle Real {n}|Calle Nueva {n}"
_PORTUGUESE = "Rua das Flores {n}|Rua Nova {n}|Rua do Sol {n}|Avenida Central {n}"
_FRENCH = "{n} rue Victor Hugo|{n} rue des Fleurs|{n} avenue de la Gare|{n} rue du Moulin|{n} rue Haute"
_STREETS: Final = {
    **dict.fromkeys(("US", "CA", "GB", "IE", "AU", "NZ"), _ENGLISH + _MORE_ENGLISH),
    **dict.fromkeys(("DE", "AT", "CH"), _GERMAN),
    **dict.fromkeys(("FR", "BE"), _FRENCH),
    **dict.fromkeys(("ES", "MX", "AR"), _SPANISH),
    **dict.fromkeys(("PT", "BR"), _PORTUGUESE),
    "IT": "Via Roma {n}|Via Garibaldi {n}|Via Verdi {n}|Corso Italia {n}|Via Dante {n}",
    "NL": "Kerkstraat {n}|Dorpsstraat {n}|Molenweg {n}|Schoolstraat {n}|Parkweg {n}",
}


@dataclass(frozen=True)
class Place:
    """A city; `postal` is a pattern for `values.filled`, empty for a city without street addresses."""

    city: str
    country: str
    code: str
    latitude: float
    longitude: float
    timezone: str
    currency: str
    airport: str
    postal: str


def _parsed_place(row: str) -> Place:
    city, country, code, latitude, longitude, timezone, currency, airport, postal = row.split("|")
    return Place(city, country, code, float(latitude), float(longitude), timezone, currency, airport, postal)


PLACES: Final = tuple(_parsed_place(row) for row in _TABLE.strip().splitlines())
ADDRESSABLE: Final = tuple(place for place in PLACES if place.postal)


def place(rng: Random) -> Place:
    """Return a random city.

    >>> place(Random(0)) in PLACES
    True
    """
    return rng.choice(PLACES)


def addressable(rng: Random) -> Place:
    """Return a random city for which `street` and `postal_code` are defined.

    >>> addressable(Random(0)).postal == ""
    False
    """
    return rng.choice(ADDRESSABLE)


def street(rng: Random, where: Place) -> str:
    """Return a street and house number in the language of the place.

    >>> street(Random(0), PLACES[0])[0].isdigit()
    True
    """
    return rng.choice(_STREETS[where.code].split("|")).format(n=rng.randint(1, 180))


def postal_code(rng: Random, where: Place) -> str:
    """Return a postal code in the format of the place.

    >>> postal_code(Random(0), PLACES[0])[:3]
    '100'
    """
    return filled(rng, where.postal)


def near(rng: Random, where: Place, spread: float = 0.05, digits: int = 4) -> tuple[float, float]:
    """Return latitude and longitude of a point within `spread` degrees of the city's centre.

    >>> abs(near(Random(0), PLACES[0])[0] - 40.71) <= 0.05
    True
    """
    latitude = where.latitude + rng.uniform(-spread, spread)
    longitude = where.longitude + rng.uniform(-spread, spread)
    return round(latitude, digits), round(longitude, digits)


def kilometres(start: Place, end: Place) -> float:
    """Return the great-circle distance between two cities in kilometres.

    >>> round(kilometres(PLACES[0], PLACES[0]))
    0
    """
    lat_1, lat_2 = radians(start.latitude), radians(end.latitude)
    half_lat = sin((lat_2 - lat_1) / 2) ** 2
    half_lon = sin(radians(end.longitude - start.longitude) / 2) ** 2
    return 12_742 * asin(sqrt(half_lat + cos(lat_1) * cos(lat_2) * half_lon))
