"""Kinds of record that shops and banks keep: products, orders, invoices, payments, transactions."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from diffinity.training.corpus.structured.names import company, person, product, products
from diffinity.training.corpus.structured.phrases import change_title, review_text
from diffinity.training.corpus.structured.places import addressable, postal_code, street
from diffinity.training.corpus.structured.registry import Record, json_kind
from diffinity.training.corpus.structured.values import (
    COLOURS,
    CURRENCIES,
    cents,
    day,
    decimal,
    filled,
    flag,
    iso,
    maybe,
    moment,
    nullable,
    number_id,
    some,
    timestamp,
    uuid,
)

# The price of one unit of the first currency in the second, within a few per cent.
_RATES = {
    ("USD", "EUR"): 0.92,
    ("EUR", "USD"): 1.09,
    ("GBP", "USD"): 1.27,
    ("USD", "GBP"): 0.79,
    ("EUR", "CHF"): 0.96,
    ("USD", "JPY"): 150.0,
    ("EUR", "SEK"): 11.3,
    ("USD", "CAD"): 1.36,
    ("AUD", "USD"): 0.66,
    ("EUR", "PLN"): 4.3,
}

# payee, category, lowest and highest amount
_PAYEES = (
    ("Corner Market", "food", 3, 120),
    ("Green Bakery", "food", 2, 25),
    ("City Apartments", "rent", 450, 1900),
    ("Night Train", "travel", 15, 220),
    ("Bluebird Travel", "travel", 60, 1500),
    ("Oak Pharmacy", "health", 4, 90),
    ("Lakeside Gym", "health", 20, 60),
    ("Harbor Books", "shopping", 5, 80),
    ("Sunrise Energy", "bills", 30, 190),
    ("Salary", "income", 1200, 5200),
    ("Refund", "income", 5, 150),
    ("Interest", "income", 1, 90),
)


@json_kind()
def product_record(rng: Random) -> Record:
    item = product(rng)
    stock = rng.choice((0, rng.randint(1, 400)))
    return {
        "id": maybe(rng, number_id(rng)),
        "sku": item.sku,
        "name": item.name,
        "category": item.category,
        "price": item.price,
        "currency": maybe(rng, rng.choice(CURRENCIES[:6]), 0.7),
        "in_stock": stock > 0,
        "stock": maybe(rng, stock),
        "rating": maybe(rng, nullable(rng, decimal(rng, 1.5, 5, 1), 0.1)),
    }


@json_kind()
def product_variant(rng: Random) -> Record:
    item = product(rng)
    options: Record = {"color": rng.choice(COLOURS)}
    if item.category == "clothing":
        options["size"] = rng.choice(("S", "M", "L", "XL"))
    if item.category in ("food", "beauty"):
        options = {"pack": rng.choice((1, 2, 3, 6, 12))}
    return {
        "name": item.name.split(",")[0],
        "options": options,
        "price": item.price,
        "tags": maybe(rng, some(rng, ("new", "sale", "popular", "gift", "eco", "summer", "basic"), 1, 3)),
        "available": flag(rng, 0.8),
    }


@json_kind()
def order(rng: Random) -> Record:
    goods = products(rng, rng.randint(1, 3))
    quantities = [rng.choice((1, 1, 2, 3)) for _ in goods]
    total = sum(item.cents * quantity for item, quantity in zip(goods, quantities, strict=True))
    return {
        "order_id": rng.choice((number_id(rng), filled(rng, "ORD-#####"))),
        "items": [
            {"sku": item.sku, "quantity": quantity, "price": item.price}
            for item, quantity in zip(goods, quantities, strict=True)
        ],
        "total": total / 100,
        "currency": rng.choice(CURRENCIES[:6]),
        "status": rng.choice(("pending", "paid", "shipped", "delivered", "cancelled")),
    }


@json_kind()
def customer_order(rng: Random) -> Record:
    buyer = person(rng)
    item = product(rng)
    return {
        "id": number_id(rng),
        "customer": {"name": buyer.name, "email": buyer.email},
        "product": item.name,
        "amount": item.price,
        "created_at": timestamp(rng),
        "paid": flag(rng, 0.7),
        "gift": maybe(rng, flag(rng, 0.3), 0.3),
    }


@json_kind()
def invoice(rng: Random) -> Record:
    issued = day(rng)
    net = cents(rng, 2000, 300_000)
    rate = rng.choice((0, 5, 7, 10, 19, 20, 21))
    tax = round(net * rate / 100)
    return {
        "invoice_number": rng.choice((f"INV-{issued.year}-{rng.randint(1, 999):03}", filled(rng, "R######"))),
        "issued": issued.isoformat(),
        "due": (issued + timedelta(days=rng.choice((14, 30, 60)))).isoformat(),
        "customer": company(rng),
        "net": net / 100,
        "tax_rate": rate,
        "tax": tax / 100,
        "total": (net + tax) / 100,
        "paid": maybe(rng, flag(rng, 0.6)),
    }


@json_kind()
def cart(rng: Random) -> Record:
    lines = [(item, rng.randint(1, 4)) for item in products(rng, rng.randint(0, 3))]
    return {
        "cart_id": filled(rng, "~~~~~~~~"),
        "items": [{"name": item.name, "qty": quantity, "unit_price": item.price} for item, quantity in lines],
        "subtotal": sum(item.cents * quantity for item, quantity in lines) / 100,
        "coupon": maybe(rng, nullable(rng, filled(rng, "SAVE#0"), 0.6)),
    }


@json_kind()
def payment(rng: Random) -> Record:
    method = rng.choice(("card", "card", "bank_transfer", "wallet", "cash"))
    card = {"brand": rng.choice(("Visa", "Mastercard", "Amex")), "last4": filled(rng, "####")}
    return {
        "payment_id": filled(rng, "pay_~~~~~~~~"),
        "amount": cents(rng),
        "currency": rng.choice(CURRENCIES),
        "method": method,
        "card": card if method == "card" else None,
        "status": rng.choice(("succeeded", "succeeded", "pending", "failed")),
        "captured_at": maybe(rng, timestamp(rng)),
    }


@json_kind()
def shipment(rng: Random) -> Record:
    sent = day(rng)
    arrived = flag(rng)
    delivery = (sent + timedelta(days=rng.randint(1, 12))).isoformat()
    return {
        "tracking_number": filled(rng, rng.choice(("@@#########", "1Z########", "############"))),
        "carrier": rng.choice(("FastPost", "Blue Parcel", "City Courier", "OceanFreight")),
        "status": "delivered" if arrived else rng.choice(("in_transit", "label_created", "out_for_delivery")),
        "weight_kg": decimal(rng, 0.1, 25, 1),
        "shipped": sent.isoformat(),
        "delivered": delivery if arrived else None,
    }


@json_kind()
def shipping_address(rng: Random) -> Record:
    where = addressable(rng)
    return {
        "recipient": person(rng).name,
        "company": maybe(rng, nullable(rng, company(rng)), 0.3),
        "street": street(rng, where),
        "city": where.city,
        "postal_code": postal_code(rng, where),
        "country": rng.choice((where.code, where.country)),
        "instructions": maybe(rng, rng.choice(("Ring twice", "Leave at the door", "Call on arrival")), 0.3),
    }


@json_kind()
def refund(rng: Random) -> Record:
    paid = cents(rng)
    full = flag(rng)
    return {
        "refund_id": filled(rng, "re_~~~~~~"),
        "order_id": number_id(rng),
        "amount": (paid if full else rng.randint(paid // 3, paid)) / 100,
        "reason": rng.choice(("damaged", "wrong_item", "late", "duplicate", "changed_mind", "other")),
        "partial": not full,
        "note": maybe(rng, nullable(rng, "Customer was informed."), 0.4),
    }


@json_kind()
def coupon(rng: Random) -> Record:
    start = day(rng)
    percent = flag(rng)
    use_count = rng.randint(0, 80)
    return {
        "code": rng.choice(("SAVE", "WELCOME", "SPRING", "SUMMER", "VIP", "HELLO")) + str(rng.randint(5, 99)),
        "type": "percent" if percent else "fixed",
        "value": rng.choice((5, 10, 15, 20, 25, 50)) if percent else rng.choice((2.5, 5, 10, 20)),
        "valid_from": start.isoformat(),
        "valid_until": (start + timedelta(days=rng.randint(7, 365))).isoformat(),
        "max_uses": maybe(rng, nullable(rng, use_count + rng.randint(0, 100))),
        "uses": maybe(rng, use_count),
    }


@json_kind()
def subscription(rng: Random) -> Record:
    start = moment(rng)
    plan, monthly = rng.choice(
        (
            ("Free", 0),
            ("Basic", 4.99),
            ("Basic", 7),
            ("Pro", 12),
            ("Pro", 19),
            ("Team", 29),
            ("Team", 49),
            ("Enterprise", 99),
        )
    )
    yearly = flag(rng, 0.3)
    cancelled = flag(rng, 0.25)
    running = rng.choice(("active", "active", "trialing", "past_due")) if monthly else "active"
    return {
        "id": filled(rng, "sub_~~~~~~"),
        "plan": {
            "name": plan,
            "price": round(monthly * 10, 2) if yearly else monthly,
            "interval": "year" if yearly else "month",
        },
        "status": "cancelled" if cancelled else running,
        "started_at": iso(start),
        "cancelled_at": iso(start + timedelta(days=rng.randint(3, 700))) if cancelled else None,
        "seats": maybe(rng, rng.randint(2, 60)) if plan in ("Team", "Enterprise") else 1,
    }


@json_kind()
def product_review(rng: Random) -> Record:
    stars, text = review_text(rng)
    return {
        "product_id": maybe(rng, number_id(rng), 0.7),
        "author": person(rng).first,
        "rating": stars,
        "text": text,
        "verified": flag(rng, 0.7),
        "date": maybe(rng, day(rng).isoformat()),
        "helpful_votes": maybe(rng, rng.choice((0, rng.randint(0, 60)))),
    }


@json_kind()
def bank_transaction(rng: Random) -> Record:
    payee, category, low, high = rng.choice(_PAYEES)
    income = category == "income"
    amount = cents(rng, low * 100, high * 100) / 100
    return {
        "date": day(rng).isoformat(),
        "description": payee,
        "amount": amount if income else -amount,
        "currency": maybe(rng, rng.choice(CURRENCIES), 0.7),
        "balance": maybe(rng, cents(rng, 0, 900_000) / 100),
        "category": maybe(rng, category),
    }


@json_kind()
def exchange_rate(rng: Random) -> Record:
    (base, target), rate = rng.choice(tuple(_RATES.items()))
    exact = round(rate * rng.uniform(0.95, 1.05), 4)
    amount = rng.choice((1, 10, 50, 100, 250, rng.randint(2, 900)))
    return {
        "base": base,
        "target": target,
        "rate": exact,
        "amount": amount,
        "converted": round(amount * exact, 2),
        "date": maybe(rng, day(rng).isoformat(), 0.6),
    }


@json_kind()
def stock_level(rng: Random) -> Record:
    levels = {
        site: rng.choice((0, rng.randint(1, 500)))
        for site in some(rng, ("north", "south", "east", "west", "central", "outlet"), 1, 4)
    }
    item = product(rng)
    return {
        "sku": item.sku,
        "product": maybe(rng, item.name),
        "warehouses": levels,
        "total": sum(levels.values()),
        "reorder": sum(levels.values()) < 50,
    }


@json_kind()
def price_list(rng: Random) -> list[object]:
    return [{"name": item.name, "price": item.price} for item in products(rng, rng.randint(1, 5))]


@json_kind()
def quote(rng: Random) -> Record:
    hours, rate = rng.randint(2, 120), rng.choice((40, 55, 60, 75, 80, 95, 110, 120))
    return {
        "quote_id": filled(rng, "Q-####"),
        "client": company(rng),
        "description": change_title(rng),
        "hours": hours,
        "hourly_rate": rate,
        "total": hours * rate,
        "valid_until": maybe(rng, day(rng).isoformat(), 0.6),
    }


@json_kind()
def account(rng: Random) -> Record:
    kind = rng.choice(("checking", "savings", "credit", "business"))
    debt = kind == "credit" or (kind == "checking" and flag(rng, 0.2))
    return {
        "account_id": rng.choice((uuid(rng), filled(rng, "acc_######"), number_id(rng))),
        "owner": person(rng).name,
        "type": kind,
        "balance": -cents(rng, 100, 180_000) / 100 if debt else cents(rng, 100, 900_000) / 100,
        "currency": rng.choice(CURRENCIES),
        "frozen": maybe(rng, flag(rng, 0.1)),
        "opened": maybe(rng, day(rng).isoformat()),
    }
