"""Pydantic models in, validated objects out.

python examples/json_objects.py
"""

from __future__ import annotations

from typing import Literal

from own_text import small_model
from pydantic import BaseModel, Field

import diffinity as dy


class Order(BaseModel):
    id: int = Field(ge=1, le=9999)
    status: Literal["open", "paid", "shipped"]


def main() -> None:
    model = small_model()
    write = dy.Generator(model, Order, length=32, num_inference_steps=64)  # compiled once, called often
    for sample in write(3, seed=1):
        order = sample.value  # an Order: it was parsed and validated
        print(order.id, order.status)


if __name__ == "__main__":
    main()
