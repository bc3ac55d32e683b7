"""The package: every public name is there, and importing it does not import torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import diffinity as dy
from diffinity.cli import COMMANDS, called_commands


@pytest.mark.parametrize("name", dy.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(dy, name) is not None


def test_what_type_checkers_see_is_what_is_imported() -> None:
    tree = ast.parse(Path(str(dy.__file__)).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: f"{node.module}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    lazily = {name: f"diffinity.{module}" for name, module in dy._MODULE_OF.items()}
    assert lazily == seen
    assert set(dy.__all__) == {*seen, "__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'diffinity' has no attribute 'nothing'"):
        _ = dy.nothing  # type: ignore[attr-defined]


def test_acceptance_is_the_function_whatever_was_imported_before() -> None:
    code = "import diffinity.acceptance, diffinity as dy; assert callable(dy.acceptance)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["-h"]])
def test_help_needs_neither_torch_nor_numba(arguments: list[str]) -> None:
    code = (
        "import sys, diffinity.cli as cli\n"
        f"sys.argv = ['diffinity', *{arguments!r}]\n"
        "try: cli.main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert not {'torch', 'numba', 'pydantic'} & set(sys.modules), 'imported'\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "diffinity" in shown
    if arguments != ["--version"]:
        assert all(name in shown for name in COMMANDS)


def test_a_shell_that_completes_gets_the_options_of_the_command() -> None:
    assert called_commands([], {"COMP_WORDS": "diffinity generate --re"}) == {"generate"}


UNNEEDED = {
    "pydantic",
    "huggingface_hub.hf_api",
    "huggingface_hub.file_download",
    "transformers",
    "diffinity.constraints.schema.compiler",
}


def test_generate_imports_neither_the_hub_s_client_nor_what_requests_and_schemas_need() -> None:
    code = (
        "import sys, diffinity.commands.generate\n"
        "from diffinity import Regex, generate, load\n"
        "generate(load(), Regex('a cat|the dog'), length=4, num_inference_steps=1)\n"
        f"print(sorted({UNNEEDED!r} & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown == "[]\n"


def test_a_command_runs_with_garbage_collection_and_what_was_imported_left_out_of_it() -> None:
    code = (
        "import gc, diffinity.cli as cli\n"
        "cli.make_app = lambda wanted: lambda: print(gc.isenabled(), gc.get_freeze_count() > 1000)\n"
        "cli.main()\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown == "True True\n"
