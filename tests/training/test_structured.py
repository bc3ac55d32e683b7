"""The generator of structured documents: what it writes parses, varies, fits and makes sense."""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from random import Random
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from diffinity.training.corpus.structured import (
    EVERYDAY,
    EVERYDAY_SHARE,
    KINDS,
    LONGEST,
    SEPARATORS,
    chance,
    document,
    structured_documents,
)
from diffinity.training.corpus.structured.everyday import SUBJECTS, TABLES
from diffinity.training.corpus.structured.keys import KEYS
from diffinity.training.corpus.structured.registry import json_kind

JSON_KINDS = [name for name, kind in KINDS.items() if kind.family == "json"]
LINE_KINDS = [name for name, kind in KINDS.items() if kind.family == "line"]
# Kinds too small to give 50 different documents of 60.
FEW_VALUES = {"bare_number", "bare_constant", "one_word"}
# The longest first draw over many seeds; redrawing must stay the exception, not the way the cap is kept.
REDRAWN_AT_MOST = 0.05

RESERVED_HOST = re.compile(r"(?:[a-z0-9-]+\.)?example\.(?:com|org|net)")
DOCUMENTATION_NETWORKS = [
    ipaddress.ip_network(block) for block in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
]


def draw(name: str, seed: int) -> str:
    return document(KINDS[name], Random(seed))


def members(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """All (key, scalar) pairs of a JSON value; the members of an array have the array's key."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from members(member, name)
    elif isinstance(value, list):
        for member in value:
            yield from members(member, key)
    else:
        yield key, value


def strings(seeds: range) -> list[tuple[str, str]]:
    """All (key, string) pairs in the JSON documents of these seeds."""
    drawn = (json.loads(draw(name, seed)) for name in JSON_KINDS for seed in seeds)
    return [(key, text) for value in drawn for key, text in members(value) if isinstance(text, str)]


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    return strings(range(25))


def records(name: str, count: int = 200) -> list[Any]:
    return [json.loads(draw(name, seed)) for seed in range(count)]


def test_there_are_enough_kinds_of_both_families() -> None:
    assert len(JSON_KINDS) >= 60
    assert len(LINE_KINDS) >= 15
    assert len(KEYS) >= 150


@pytest.mark.parametrize("name", JSON_KINDS)
def test_a_json_document_is_spelled_in_one_of_the_two_styles(name: str) -> None:
    for seed in range(40):
        text = draw(name, seed)
        value = json.loads(text)
        spellings = {json.dumps(value, ensure_ascii=False, separators=pair) for pair in SEPARATORS.values()}
        assert text in spellings


@pytest.mark.parametrize("name", KINDS)
def test_a_document_fits_the_cap_and_is_not_blank(name: str) -> None:
    lengths = [len(draw(name, seed)) for seed in range(200)]
    assert min(lengths) > 0
    assert max(lengths) <= LONGEST == 330


@pytest.mark.parametrize("name", KINDS)
def test_the_first_draw_nearly_always_fits(name: str) -> None:
    values = [KINDS[name].function(Random(seed)) for seed in range(200)]
    long = sum(
        len(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) > 330 for value in values
    )
    assert long / len(values) <= REDRAWN_AT_MOST


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_gives_many_different_documents(name: str) -> None:
    different = len({draw(name, seed) for seed in range(60)})
    assert (different < 50) == (name in FEW_VALUES)


def test_documents_follow_from_the_seed() -> None:
    first, again, other = (list(islice(structured_documents(Random(seed)), 300)) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_documents_are_mostly_of_middle_length() -> None:
    lengths = [len(text) for text in islice(structured_documents(Random(1)), 4000)]
    assert sum(20 <= length <= 280 for length in lengths) / len(lengths) > 0.75


def test_six_in_ten_json_documents_are_spaced() -> None:
    drawn = list(islice(structured_documents(Random(2), kinds=["order"]), 2000))
    spaced = sum(text.startswith('{"order_id": ') for text in drawn)
    assert spaced / len(drawn) == pytest.approx(0.6, abs=0.04)


def test_small_kinds_are_drawn_less_often_and_plain_kinds_more_often() -> None:
    chances = {name: chance(KINDS[name]) for name in ("mac_address", "feature_flags", "order")}
    drawn = Counter(
        "mac_address" if text.startswith("00:") else "order" if "order_id" in text else "feature_flags"
        for text in islice(structured_documents(Random(3), kinds=list(chances)), 4000)
    )
    for name, count in drawn.items():
        assert count / 4000 == pytest.approx(chances[name] / sum(chances.values()), abs=0.04)
    assert drawn["feature_flags"] > 2 * drawn["order"]
    assert drawn["feature_flags"] > 2 * drawn["mac_address"]


def test_two_thirds_of_the_documents_are_of_everyday_kinds() -> None:
    assert sum(chance(KINDS[name]) for name in EVERYDAY) == pytest.approx(EVERYDAY_SHARE)
    assert chance(KINDS["everyday_object"]) == max(chance(kind) for kind in KINDS.values())


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_table_has_the_same_cells_in_every_row(separator: str) -> None:
    tables = [draw("everyday_csv", seed) for seed in range(300)]
    chosen = [table.splitlines() for table in tables if separator in table.splitlines()[0]]
    assert chosen
    for header, *rows in chosen:
        assert {len(row.split(separator)) for row in rows} <= {len(header.split(separator))}, header


def test_the_total_of_an_everyday_order_is_the_sum_of_its_items() -> None:
    names = {"quantity": "price", "qty": "unit_price"}
    totals = [record for record in records("everyday_order") if "total" in record]
    assert len(totals) > 30
    for record in totals:
        quantity = next(name for name in names if name in record["items"][0])
        lines = (Decimal(str(item[names[quantity]])) * item[quantity] for item in record["items"])
        assert Decimal(str(record["total"])) == sum(lines)


def test_a_query_names_columns_of_its_table() -> None:
    columns_of = {table: set(SUBJECTS[subject]) for subject, table in TABLES.items()}
    for seed in range(300):
        query = re.fullmatch(
            r"SELECT (.+) FROM (\w+) WHERE (\w+) (?:=|!=|<=?|>=?) .+?(?: ORDER BY (\w+))?(?: LIMIT \d+)?;",
            draw("everyday_select", seed),
        )
        assert query
        listed, table, condition, order = query.groups()
        named = {condition, *([order] if order else [])}
        if listed not in ("*", "COUNT(*)"):
            named |= set(listed.split(", "))
        assert named <= columns_of[table]


def test_only_the_kinds_asked_for_are_drawn() -> None:
    drawn = islice(structured_documents(Random(4), kinds=["geo_point"]), 50)
    assert {json.loads(text)["type"] for text in drawn} == {"Point"}


@pytest.mark.parametrize("kinds", [["no_such_kind"], []])
def test_kinds_that_do_not_exist_are_refused(kinds: list[str]) -> None:
    with pytest.raises(ValueError, match="expected names of kinds"):
        structured_documents(Random(0), kinds=kinds)


def test_a_second_kind_of_the_same_name_is_refused() -> None:
    def order(rng: Random) -> int:
        return rng.randint(0, 9)

    with pytest.raises(ValueError, match="'order'"):
        json_kind()(order)


def test_emails_are_at_reserved_domains(texts: list[tuple[str, str]]) -> None:
    addresses = [
        text for key, text in texts if key in ("email", "emails", "to", "cc", "attendees") and "@" in text
    ]
    assert len(addresses) > 100
    for address in addresses:
        local, host = address.split("@")
        assert re.fullmatch(r"[a-z]+(?:\.[a-z]+)?", local), address
        assert RESERVED_HOST.fullmatch(host), address


def test_whatever_contains_an_at_sign_is_at_a_reserved_domain(texts: list[tuple[str, str]]) -> None:
    for _, text in texts:
        for host in re.findall(r"@([\w.-]+)", text):
            assert RESERVED_HOST.fullmatch(host), text


def test_uuids_are_of_version_4(texts: list[tuple[str, str]]) -> None:
    drawn = [text for _, text in texts if re.fullmatch(r"\w{8}(?:-\w{4}){3}-\w{12}", text)]
    assert len(drawn) > 100
    assert {UUID(text).version for text in drawn} == {4}


def test_dates_and_times_exist(texts: list[tuple[str, str]]) -> None:
    drawn = [text for _, text in texts if re.match(r"\d{4}-\d\d-\d\d", text)]
    assert len(drawn) > 1000
    for text in drawn:
        assert 1940 < datetime.fromisoformat(text).year < 2035


def test_ip_addresses_are_in_documentation_networks(texts: list[tuple[str, str]]) -> None:
    drawn = [text for _, text in texts if re.fullmatch(r"\d+(?:\.\d+){3}", text)]
    drawn += [draw("ip_address", seed) for seed in range(100)]
    assert len(drawn) > 150
    for text in drawn:
        address = ipaddress.ip_address(text)
        assert any(address in network for network in DOCUMENTATION_NETWORKS), text


def test_urls_are_on_reserved_hosts(texts: list[tuple[str, str]]) -> None:
    drawn = [text for _, text in texts if "://" in text]
    assert len(drawn) > 200
    for text in drawn:
        host = urlsplit(text).hostname
        assert host is not None
        assert RESERVED_HOST.fullmatch(host), text


def test_order_totals_add_up() -> None:
    for record in records("order"):
        lines = (Decimal(str(item["price"])) * item["quantity"] for item in record["items"])
        assert Decimal(str(record["total"])) == sum(lines)


def test_invoice_totals_include_the_tax() -> None:
    for record in records("invoice"):
        net, tax = Decimal(str(record["net"])), Decimal(str(record["tax"]))
        assert Decimal(str(record["total"])) == net + tax
        assert abs(net * record["tax_rate"] / 100 - tax) <= Decimal("0.005")


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("calendar_entry", "start", "end"),
        ("flight", "departure", "arrival"),
        ("hotel_stay", "check_in", "check_out"),
        ("invoice", "issued", "due"),
        ("coupon", "valid_from", "valid_until"),
        ("session", "created_at", "expires_at"),
        ("flight_call", "departure_date", "return_date"),
        ("job_status", "created_at", "finished_at"),
        ("ticket", "created_at", "resolved_at"),
        ("shipment", "shipped", "delivered"),
        ("generic_wide_object", "start", "end"),
        ("generic_wide_object", "created_at", "updated_at"),
    ],
)
def test_what_ends_has_begun_before(name: str, first: str, last: str) -> None:
    both = [record for record in records(name, 600) if record.get(first) and record.get(last)]
    assert both
    for record in both:
        assert datetime.fromisoformat(record[first]) < datetime.fromisoformat(record[last])


def test_nights_are_the_days_between_arrival_and_departure() -> None:
    for record in records("hotel_stay"):
        stay = date.fromisoformat(record["check_out"]) - date.fromisoformat(record["check_in"])
        assert stay.days == record["nights"]


def test_a_city_is_in_one_country_everywhere() -> None:
    found: dict[str, set[str]] = {}
    for name in (
        "city_record",
        "address_record",
        "hotel",
        "company_record",
        "public_event",
        "generic_mixed_object",
    ):
        for record in records(name, 400):
            for place in (record, *(inner for inner in record.values() if isinstance(inner, dict))):
                if "city" in place and "country" in place:
                    found.setdefault(place["city"], set()).add(place["country"])
    assert len(found) > 40
    assert found["Köln"] == {"Germany"}
    assert all(len(countries) == 1 for countries in found.values())


def test_postal_codes_have_the_form_of_their_city() -> None:
    forms = {"Berlin": r"10\d{3}", "Paris": r"7501\d", "Toronto": r"M\d[A-Z] \d[A-Z]\d", "Boston": r"021\d\d"}
    codes = [(record["city"], record["postal_code"]) for record in records("shipping_address", 800)]
    assert {city for city, _ in codes} >= set(forms)
    for city, code in codes:
        assert re.fullmatch(forms.get(city, r"[A-Z\d]+[ -]?[A-Z\d]*"), code), (city, code)


def test_weather_is_possible_on_earth() -> None:
    for record in records("weather_answer"):
        assert -25 <= record["temperature"] <= 42
        assert 0 <= record["humidity"] <= 100
        if record["condition"] == "snow":
            assert record["temperature"] <= 1
            assert record["city"] not in ("Singapore", "Dubai", "Sydney", "Cairo")


def test_a_bounding_box_runs_from_south_west_to_north_east() -> None:
    for record in records("bounding_box"):
        west, south, east, north = record["bbox"]
        assert -180 <= west < east <= 180
        assert -90 <= south < north <= 90


def test_a_polygon_is_closed() -> None:
    for record in records("geo_polygon"):
        ring = record["coordinates"][0]
        assert ring[0] == ring[-1]
        assert len(ring) >= 4


def test_isbns_have_a_right_check_digit() -> None:
    for seed in range(200):
        digits = [int(mark) for mark in draw("isbn_text", seed) if mark.isdigit()]
        assert len(digits) == 13
        assert (sum(digits[::2]) + 3 * sum(digits[1::2])) % 10 == 0


def test_weekdays_fit_their_dates() -> None:
    for seed in range(100):
        weekday, day, *_ = draw("calendar_line", seed).split(" ")
        assert date.fromisoformat(day).isoweekday() == 1 + "MonTueWedThuFriSatSun".index(weekday) // 3


def test_the_answer_of_a_quiz_is_among_its_options() -> None:
    for record in records("quiz_question"):
        answer = record["answer"]
        assert answer in record["options"] or 0 <= answer < len(record["options"])


def test_generic_objects_use_most_of_the_key_pool() -> None:
    drawn = {
        key
        for name in JSON_KINDS
        if name.startswith("generic_")
        for record in records(name)
        for key in keys(record)
    }
    assert len(drawn & set(KEYS)) > 0.9 * len(KEYS)


def keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for member in value.values():
            yield from keys(member)
    elif isinstance(value, list):
        for member in value:
            yield from keys(member)
