"""What tests share: reference data that may be absent, and one thread so that runs are repeatable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)
os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported; with a GPU too


def shared_folder() -> Path | None:
    """The folder of reference data: $DIFFINITY_SHARED, or `shared` beside the checkout."""
    named = os.environ.get("DIFFINITY_SHARED")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def plaid_fixtures() -> Path:
    """A small checkpoint in PLAID's layout and what PLAID's own code computes from it."""
    shared = shared_folder()
    if shared is None or not (shared / "fixtures" / "plaid").is_dir():
        pytest.skip("the reference numbers of PLAID are not here (set DIFFINITY_SHARED)")
    return shared / "fixtures" / "plaid"


@pytest.fixture(scope="session")
def langflow_fixtures() -> Path:
    """A small checkpoint in LangFlow's layout and what LangFlow's own code computes from it."""
    shared = shared_folder()
    if shared is None or not (shared / "fixtures" / "langflow").is_dir():
        pytest.skip("the reference numbers of LangFlow are not here (set DIFFINITY_SHARED)")
    return shared / "fixtures" / "langflow"
