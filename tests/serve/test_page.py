"""The page in headless Chromium: write, check, generate, watch, compare, change, export, at every width."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from diffinity.serve.settings import digest_of
from tests.serve.running import Client, running
from tests.serve.test_load import slow_model

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE = 20_000  # milliseconds
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path is not None, "install it with `make system`"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(params=["light 1280", "dark 390"])
def page(request: pytest.FixtureRequest, browser: Browser, server: Client) -> Iterator[Page]:
    """The page, wide and light, and narrow and dark; a test fails if anything is said on the console."""
    yield from opened(browser, server.url, *request.param.split())


def opened(browser: Browser, url: str, scheme: Any = "light", width: str = "1280") -> Iterator[Page]:
    context = browser.new_context(viewport={"width": int(width), "height": 900}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.set_default_timeout(PATIENCE)
    page.goto(url)
    expect(page.locator("#model")).to_contain_text("The model here is")
    yield page
    context.close()
    assert [text for text in said if "400 (Bad Request)" not in text and "401 (Unauthorized)" not in text] == []


def write(page: Page, kind: str, source: str) -> None:
    page.get_by_label(kind, exact=True).first.check()
    page.locator("#source").fill(source)


def generate(page: Page, steps: int = 6) -> None:
    page.locator("#steps").fill(str(steps))
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#status")).to_contain_text("Done", timeout=PATIENCE)


def shown_texts(page: Page) -> list[str]:
    return [
        text.removesuffix("∎") for text in page.locator(".draft:not(.note *)").all_inner_texts() if "∎" in text
    ]


def assert_accessible(page: Page) -> None:
    found = Axe().run(page, options=RULES).response["violations"]
    assert [(problem["id"], [node["html"] for node in problem["nodes"]][:3]) for problem in found] == []


def assert_fits(page: Page) -> None:
    """Nothing sticks out: no scrolling sideways."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_write_generate_watch(page: Page) -> None:
    write(page, "Regular expression", "the (cat|dog) [a-z ]+\\.")
    expect(page.locator("#check")).to_contain_text("✓ Compiles")
    accepted = page.locator("#check code").all_inner_texts()
    assert len(accepted) == 3
    assert all(re.fullmatch("the (cat|dog) [a-z ]+\\.", text) for text in accepted)
    generate(page, 8)
    (text,) = shown_texts(page)
    assert re.fullmatch("the (cat|dog) [a-z ]+\\.", text)
    expect(page.locator("article")).to_contain_text("✓ satisfies the constraint")
    expect(page.locator("#where")).to_have_text("finished")
    assert page.locator("#chart path.curve").get_attribute("d")
    page.locator("#slider").focus()
    page.keyboard.press("Home")
    expect(page.locator("#where")).to_have_text("step 1 of 8")
    expect(page.locator("article .state")).to_contain_text("log P(L)")
    assert_accessible(page)
    assert_fits(page)


def test_a_token_shows_its_part_of_the_automaton(page: Page) -> None:
    write(page, "Choices", "yes\nno")
    page.get_by_text("The automaton", exact=True).click()
    expect(page.locator("#picture svg")).to_be_visible()
    generate(page)
    first = page.locator("article .draft button").first
    first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("article .path")).to_contain_text("took the states 0 →")
    assert page.locator("#picture circle.taken").count() >= 2
    assert page.locator("#picture path.taken").count() >= 1
    assert_accessible(page)
    assert_fits(page)


def test_methods_side_by_side(page: Page) -> None:
    write(
        page,
        "JSON Schema",
        '{"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}',
    )
    page.get_by_label("posterior").check()
    page.get_by_label("none").check()
    page.locator("#texts").fill("2")
    generate(page, 4)
    expect(page.locator("#status")).to_have_text("Done: 6 of 6 texts satisfy the constraint.")
    titles = page.locator("article h3").all_inner_texts()
    assert titles == [f"{name}, text {i}" for name in ("auto", "posterior", "none") for i in (1, 2)]
    assert page.locator("#chart path.curve").count() == 6
    assert_accessible(page)
    assert_fits(page)


def test_an_error_is_shown_and_a_change_mends_it(page: Page) -> None:
    write(page, "Regular expression", "the (cat")
    expect(page.locator("#check")).to_contain_text("unterminated")
    expect(page.locator("#source")).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#status")).to_contain_text("unterminated")
    assert_accessible(page)
    page.locator("#source").fill("the (cat|dog) saw the box\\.")
    expect(page.locator("#check")).to_contain_text("✓ Compiles")
    generate(page)
    write(page, "JSON Schema", '{"type": ')
    expect(page.locator("#check")).to_contain_text("This is not JSON")


def test_every_example_compiles(browser: Browser, server: Client) -> None:
    for page in opened(browser, server.url):
        for kind in ("Regular expression", "JSON Schema", "Choices", "Grammar"):
            page.get_by_label(kind, exact=True).first.check()
            for name in page.locator("#example option").all_inner_texts():
                page.get_by_label("Example").select_option(name)
                page.locator("#source").dispatch_event("input")  # also where it was chosen already
                expect(page.locator("#check")).to_contain_text("✓ Compiles")


def test_the_code_runs(browser: Browser, server: Client) -> None:
    for page in opened(browser, server.url):
        write(page, "Choices", 'yes\nit\'s "no"')
        page.locator("#steps").fill("4")
        curl = page.locator("#code").inner_text()
        answer = subprocess.run(
            ["bash", "-c", curl.replace("curl ", "curl -s ", 1)], capture_output=True, text=True
        )
        assert '"finish_reason":"stop"' in answer.stdout, answer
        for language in ("Python", "openai client"):
            page.get_by_label(language, exact=True).check()
            compile(page.locator("#code").inner_text(), language, "exec")
        texts: list[str] = []
        exec(page.locator("#code").inner_text(), {"print": texts.append})
        assert texts[0] in ("yes", 'it\'s "no"')


def test_a_run_can_be_saved_as_the_page_that_replays_it(browser: Browser, server: Client, tmp_path: Path) -> None:
    for page in opened(browser, server.url):
        write(page, "Regular expression", "the (cat|dog) [a-z ]+\\.")
        generate(page)
        (text,) = shown_texts(page)
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as a page").click()
        download.value.save_as(tmp_path / "run.html")
        page.goto((tmp_path / "run.html").as_uri())
        expect(page.locator("#where")).to_have_text("decoded")
        expect(page.locator("article .draft")).to_have_text(text + "∎")
        expect(page.locator("#asked")).to_contain_text("the (cat|dog)")


def test_a_run_can_be_stopped(browser: Browser) -> None:
    with running(slow_model(0.1)) as client:
        for page in opened(browser, client.url):
            page.locator("#steps").fill("500")
            page.get_by_role("button", name="Generate").click()
            expect(page.locator("article .state")).to_contain_text("step ")
            page.get_by_role("button", name="Stop").click()
            expect(page.locator("#status")).to_have_text("Stopped.")
            expect(page.get_by_role("button", name="Generate")).to_be_enabled()


def test_a_key_is_asked_for(browser: Browser) -> None:
    with running(key_digests=(digest_of("secret"),)) as client:
        context = browser.new_context()
        page = context.new_page()
        page.goto(client.url)
        page.get_by_label("API key").fill("secret")
        page.get_by_label("API key").press("Tab")
        expect(page.locator("#model")).to_contain_text("The model here is")
        expect(page.locator("#check")).to_contain_text("✓ Compiles")
        context.close()
