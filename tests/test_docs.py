"""The documentation is true to the code: its Python runs, and its links lead somewhere."""

from __future__ import annotations

import doctest
import importlib.util
import re
import runpy
from dataclasses import fields
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

import diffinity as dy

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").glob("*.md")])
NEEDS_MORE = (  # downloads, or a server
    'dy.load("plaid-1b"',
    'dy.load("langflow-owt"',
    "OpenAI(base_url",
    'from_pretrained("google/',
)
LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\))?)\)")
SITE = re.compile(r"(?:src|href)=\"([^\"]+)\"")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_python_of_a_page_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    program = "\n".join(block for block in blocks if not any(load in block for load in NEEDS_MORE))
    if program:
        exec(compile(program, page.name, "exec", dont_inherit=True), {"__name__": "page"})
        assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    wrong = [link for link in links_of(page) if not leads_somewhere(page, link)]
    assert not wrong, f"{name_of(page)} has links that lead nowhere: {wrong}"


@pytest.mark.parametrize("link", ["nowhere.md", "models.md#no-such-heading", "http://example.org", "#nothing"])
def test_a_wrong_link_is_noticed(link: str) -> None:
    assert not leads_somewhere(DOCS / "models.md", link)


def links_of(page: Path) -> list[str]:
    text = without_code(page.read_text())
    return LINK.findall(text) + SITE.findall(text)


def leads_somewhere(page: Path, link: str) -> bool:
    """A file that exists with a heading that exists; of what lies elsewhere only the form can be checked here."""
    parts = urlsplit(link)
    if parts.scheme:
        return parts.scheme == "https" and "." in parts.netloc
    target = (page.parent / parts.path).resolve() if parts.path else page
    if not target.is_file() or not target.is_relative_to(ROOT):
        return False
    return not parts.fragment or (target.suffix == ".md" and parts.fragment in anchors_of(target))


@cache
def anchors_of(page: Path) -> set[str]:
    """The anchors of headings, as Python-Markdown makes them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def test_every_page_is_in_the_navigation_and_the_other_way_round() -> None:
    yaml = pytest.importorskip("yaml")
    config = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r": ([\w/-]+\.md)$", config, flags=re.MULTILINE))
    assert yaml.safe_load(config)["strict"] is True
    generated = {"architecture.md", "changelog.md", "contributing.md", "security.md", "model-card.md"}
    assert listed - generated == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_every_option_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| ", (DOCS / "generation.md").read_text(), flags=re.MULTILINE)
    documented = {name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    for option in fields(dy.GenerationSettings):
        assert option.name in documented
        if isinstance(option.default, str | float) and option.default != "":
            default = option.default if isinstance(option.default, str) else f"{option.default:g}"
            assert documented[option.name].strip('`"') == default
        if option.metadata["name"]:
            assert option.metadata["name"] in documented


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("*.py")), ids=lambda path: path.name)
def test_the_doctests_of_a_script_hold(script: Path) -> None:
    if script.name == "docs_site.py":
        pytest.importorskip("mkdocs", reason="pip install 'diffinity[docs]'")
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert doctest.testmod(module).failed == 0


def test_every_drawing_is_well_formed_and_can_run_nothing() -> None:
    drawings = sorted(DOCS.rglob("*.svg"))
    assert drawings
    for drawing in drawings:
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(drawing).iter()}
        assert "script" not in tags


def test_the_figures_come_from_a_run_that_satisfies_its_constraint(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'diffinity[train]'")
    figures = runpy.run_path(str(ROOT / "scripts" / "docs_figures.py"))
    written = figures["write"](tmp_path)
    assert {path.name for path in written} <= {path.name for path in (DOCS / "images").iterdir()}
    texts = [element.text or "" for element in ElementTree.parse(tmp_path / "denoising.svg").iter()]
    assert re.fullmatch(figures["PATTERN"], texts[-1])
