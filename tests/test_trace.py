"""The page that replays a run: what it shows is what happened, and no text can break out of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from io import StringIO
from typing import Any

import pytest
import torch
from rich.console import Console

import diffinity as dy
from diffinity import trace as trace_module
from diffinity.commands.live import live_drafts, sparkline
from diffinity.models.markov import MarkovLM
from diffinity.sampling import SamplerState
from diffinity.trace import Pieces, Trace

TEXTS = [f"the {a} {v} the {t}." for a in ("cat", "dog") for v in ("saw", "took") for t in ("box", "cup")]
LENGTH, STEPS = 14, 10
HOSTILE = "</script><img src=x onerror=alert(1)><!-- & \u2028 'it'"


@pytest.fixture(scope="module")
def model() -> MarkovLM:
    return dy.fit_markov(TEXTS, order=1, vocab_size=300)


class Page(HTMLParser):
    """What a browser makes of the page: its elements, and the data in its one script."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.script = ""
        self._inside = False
        self.feed(source)
        self.close()
        (line,) = [line for line in self.script.splitlines() if line.startswith("const trace = ")]
        self.data: dict[str, Any] = json.loads(line.removeprefix("const trace = ").removesuffix(";"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._inside = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.script += data

    def text(self, numbers: list[int]) -> str:
        return "".join(self.data["pieces"][number] for number in numbers)


def run(model: MarkovLM, constraint: object, n: int = 1, **options: Any) -> tuple[Page, list[dy.Generated]]:
    trace = Trace()
    options = {"length": LENGTH, "num_inference_steps": STEPS, **options}
    found = dy.generate(model, constraint, n, callback_on_step_end=trace, **options)
    return Page(trace.page(model, found, constraint=[("is", "x")], settings={"steps": STEPS})), found


def test_the_page_has_every_step_and_the_text(model: MarkovLM) -> None:
    states: list[SamplerState] = []
    constraint = dy.Regex("the dog [a-z ]+.")
    dy.generate(
        model,
        constraint,
        2,
        LENGTH,
        num_inference_steps=STEPS,
        callback_on_step_end=lambda _, state: states.append(state),
    )
    page, found = run(model, constraint, 2)
    for i, (sample, text) in enumerate(zip(page.data["samples"], found, strict=True)):
        assert page.text(sample["final"]) == text.text
        assert sample["satisfied"] is True
        assert sample["curve"] == pytest.approx(text.log_acceptance, abs=1e-3)
        assert [frame["step"] for frame in sample["frames"]] == list(range(STEPS))
        for frame, state in zip(sample["frames"], states, strict=True):
            assert state.prediction is not None
            probs = state.prediction.logits[i].softmax(dim=-1)
            ids = probs.argmax(dim=-1).tolist()
            assert page.text(frame["tokens"]) == dy.texts(model, torch.tensor([ids]))[0]
            shown = probs.amax(dim=-1)[: len(frame["sure"])] * 100
            assert frame["sure"] == pytest.approx(shown.tolist(), abs=0.6)


def test_what_exact_decoding_changed_is_marked(model: MarkovLM) -> None:
    constraint, drafts = dy.Text("the dog xyz."), list[list[int]]()

    def keep(_: int, state: SamplerState) -> None:
        assert state.prediction is not None
        drafts.append(state.prediction.logits[0].argmax(dim=-1).tolist())

    options: dict[str, Any] = {"length": LENGTH, "num_inference_steps": 2, "guidance": "none"}
    dy.generate(model, constraint, callback_on_step_end=keep, **options)
    page, (text,) = run(model, constraint, **options)
    sample = page.data["samples"][0]
    differs = [mine != drafted for mine, drafted in zip(text.tokens, drafts[-1], strict=True)]
    assert sample["changed"] == differs[: len(sample["final"])]
    assert any(sample["changed"])
    assert sample["curve"] == [None, None]


def test_no_text_breaks_out_of_the_page() -> None:
    model = dy.fit_markov([HOSTILE], order=1, vocab_size=300)
    trace = Trace()
    found = dy.generate(model, HOSTILE, length=64, num_inference_steps=2, callback_on_step_end=trace)
    source = trace.page(model, found, constraint=[("is", HOSTILE)], settings={HOSTILE: HOSTILE})
    page = Page(source)
    assert page.text(page.data["samples"][0]["final"]) == HOSTILE
    assert page.data["constraint"] == [["is", HOSTILE]]
    assert page.data["settings"] == {HOSTILE: HOSTILE}
    assert page.tags.count("script") == 1
    assert source.count("</script") == 1
    assert "img" not in page.tags


def test_the_page_needs_nothing_from_elsewhere(model: MarkovLM) -> None:
    page, _ = run(model, dy.Regex("the .*"))
    assert not {name for name, _ in page.attributes} & {"src", "href"}
    assert (
        "content",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'",
    ) in page.attributes
    assert re.findall(r"https?://[^\"]+", page.script) == ["http://www.w3.org/2000/svg"]  # a name, not an address
    assert not re.search(r"fetch\(|import\(|XMLHttpRequest|innerHTML|document\.write|eval\(", page.script)


def test_batches_are_put_together_in_order(model: MarkovLM) -> None:
    page, _ = run(model, dy.Regex("the .*"), 5)
    parts, found = run(model, dy.Regex("the .*"), 5, batch_size=2)
    assert [sample["seed"] for sample in parts.data["samples"]] == [[0, i] for i in range(5)]
    for left, right, text in zip(page.data["samples"], parts.data["samples"], found, strict=True):
        assert parts.text(right["final"]) == text.text
        assert [page.text(frame["tokens"]) for frame in left["frames"]] == [
            parts.text(frame["tokens"]) for frame in right["frames"]
        ]


def test_a_large_run_is_thinned_and_keeps_its_end(model: MarkovLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "MOST_CELLS", 3 * LENGTH * 2)
    monkeypatch.setattr(trace_module, "MOST_SAMPLES", 2)
    page, _ = run(model, dy.Regex("the .*"), 3)
    assert page.data["texts"] == 3
    assert len(page.data["samples"]) == 2
    for sample in page.data["samples"]:
        assert [frame["step"] for frame in sample["frames"]] == [1, 5, 9]
        assert len(sample["curve"]) == STEPS


def test_parts_of_a_character_are_one_piece() -> None:
    model = dy.fit_markov(["a b"], vocab_size=257)  # bytes only: the euro sign is three tokens
    ids = model.tokenizer.encode("a€b").ids
    pieces = Pieces(model)
    spelled = pieces.spelled(ids)
    assert [pieces.texts[number] for number, _ in spelled] == ["a", "€", "b"]
    assert [size for _, size in spelled] == [1, 3, 1]
    broken = pieces.spelled([ids[1], ids[0]])
    assert "".join(pieces.texts[number] for number, _ in broken) == "\ufffda"


def test_of_particles_the_first_is_recorded(model: MarkovLM) -> None:
    trace = Trace(particles=3)
    found = dy.generate(
        model, dy.Regex("the .*"), 2, LENGTH, num_inference_steps=4, particles=3, callback_on_step_end=trace
    )
    page = Page(trace.page(model, found))
    assert page.data["particles"] == 3
    assert [page.text(sample["final"]) for sample in page.data["samples"]] == [text.text for text in found]


def test_a_trace_of_other_texts_is_refused(model: MarkovLM) -> None:
    found = dy.generate(model, "the", n=2, length=4, num_inference_steps=2)
    with pytest.raises(dy.InvalidArgument, match="steps of 0 samples, but there are 2 texts"):
        Trace().page(model, found)


def test_the_live_view_shows_drafts_and_the_climb(model: MarkovLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffinity.commands.live.SECONDS_BETWEEN", 0.0)
    seen = StringIO()
    console = Console(file=seen, force_terminal=True, width=80, color_system=None, legacy_windows=False)
    with live_drafts(console, model, STEPS) as view:
        found = dy.generate(
            model, dy.Regex("the dog [a-z ]+."), 2, LENGTH, num_inference_steps=STEPS, callback_on_step_end=view
        )
    shown = seen.getvalue()
    for step in range(1, STEPS + 1):
        assert f"step {step} of {STEPS}" in shown
    last = shown.rsplit("╭", 1)[1]
    assert found[0].text in last
    assert len(re.findall(r"log P\(L\) [▁▂▃▄▅▆▇█]{10} −?\d+\.\d", last)) == 2


def test_a_sparkline_rises_with_its_values_and_has_a_width() -> None:
    assert sparkline([-float("inf"), -7.0, -3.5, 0.0]) == "▁▁▄█"
    long = sparkline([-x / 10 for x in range(1000, -1, -1)], width=16)
    assert len(long) == 16
    assert list(long) == sorted(long)
    assert long[-1] == "█"
    assert sparkline([]) == ""
