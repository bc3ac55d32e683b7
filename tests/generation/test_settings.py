"""`GenerationSettings`: one set of options behind every door."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
import typer
from typer.testing import CliRunner

import diffinity as dy
from diffinity.commands.generate import command_line_options, settings_of, with_settings
from diffinity.generation.settings import shown_options
from diffinity.request import read_request


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length must be a whole number of tokens, at least 1, or 'auto', not 0"),
        ({"length": "long"}, "length must be a whole number of tokens, at least 1, or 'auto', not 'long'"),
        ({"num_inference_steps": 0}, "num_inference_steps must be at least 1, but is 0"),
        ({"guidance_scale": float("nan")}, "guidance_scale must be a finite number, at least 0, but is nan"),
        ({"guidance_scale": "strong"}, "guidance_scale must be a finite number, at least 0, but is strong"),
        ({"score_temp": 0.0}, "score_temp must be a finite number above 0, but is 0.0"),
        ({"particles": 0}, "particles must be at least 1"),
        ({"decode": "beam"}, "decode must be 'best', 'sample' or 'argmax'"),
        ({"method": "euler"}, "method must be 'ancestral' or 'ddim'"),
        ({"particles": 2, "decode": "argmax"}, "particles go with"),
        ({"prompt": "a", "messages": []}, "not both"),
        ({"step": 3}, "there is no option 'step'"),
        ({"scale": 3}, "there is no option 'scale': did you mean 'guidance_scale'?"),
    ],
)
def test_what_is_no_setting_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=message.replace("?", r"\?")):
        dy.GenerationSettings.of(None, **options)


def test_a_request_can_say_every_option_that_is_shown() -> None:
    for option in shown_options():
        request = read_request(json.dumps({"regex": "a", option.name: option.default}))
        assert getattr(request, option.name) == option.default


def test_the_command_line_has_an_option_for_each_setting_with_its_default() -> None:
    seen: list[dy.GenerationSettings] = []

    @with_settings
    def command(*, settings: dy.GenerationSettings, n: int = 1) -> None:
        seen.append(settings)

    app = typer.Typer()
    app.command()(command)
    assert CliRunner().invoke(app, []).exit_code == 0
    assert CliRunner().invoke(app, ["--steps", "7", "--length", "auto", "--particles", "2"]).exit_code == 0
    assert seen == [
        dy.GenerationSettings(),
        dy.GenerationSettings(num_inference_steps=7, length="auto", particles=2),
    ]
    assert "--score-temp" in CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output


def test_command_line_and_request_mean_the_same() -> None:
    spoken = {"steps": 9, "scale": 1.5, "decode": "sample", "prefix": "the", "particles": 3}
    asked = read_request(json.dumps({"regex": "a", "length": 8, **spoken})).settings()
    defaults = {option.name: option.default for option in command_line_options()}
    assert settings_of({**defaults, **spoken, "length": "8"}) == asked


def test_every_setting_says_what_it_is() -> None:
    for field in fields(dy.GenerationSettings):
        assert field.metadata["help"]
        assert field.metadata["accepts"]


def test_settings_and_options_go_together() -> None:
    model = dy.fit_markov(["the cat sat.", "the dog ran."])
    settings = dy.GenerationSettings(length=12, num_inference_steps=8)
    write = dy.Generator(model, dy.Regex("the [a-z ]+."), settings, decode="sample")
    assert (write.length, write.num_inference_steps, write.settings.decode) == (12, 8, "sample")
    assert write(2, seed=5) == dy.generate(
        model, dy.Regex("the [a-z ]+."), 2, 12, num_inference_steps=8, decode="sample", seed=5
    )


def test_a_generator_is_called_again_without_compiling_again() -> None:
    model = dy.fit_markov(["the cat sat.", "the dog ran."])
    write = dy.Generator(model, dy.Regex("the [a-z ]+."), length=12, num_inference_steps=6)
    automata = write.automata
    assert write(seed=1) == write(seed=1)
    assert list(write.stream(seed=1))[-1] == write(seed=1)[0]
    assert write.automata is automata


def test_particles_can_be_streamed() -> None:
    model = dy.fit_markov(["the cat sat.", "the dog ran."])
    write = dy.Generator(model, dy.Regex("the [a-z ]+."), length=12, num_inference_steps=6, particles=3)
    *drafts, text = write.stream(every=2, seed=4)
    assert [(draft.step, len(draft.texts)) for draft in drafts if isinstance(draft, dy.Draft)] == [
        (2, 1),
        (4, 1),
        (6, 1),
    ]
    assert [text] == write(seed=4)


def test_without_a_constraint_nothing_guides() -> None:
    model = dy.fit_markov(["the cat sat.", "the dog ran."])
    (free,) = dy.generate(model, length=12, num_inference_steps=6)
    assert free.log_acceptance == ()
    assert free.value == free.text


class Half(dy.EmbeddingDiffusion):
    """A model that its author has not finished."""

    def denoise(self, z: object, noise_level: object, x_selfcond: object) -> object:  # type: ignore[override]
        return z


def test_a_model_that_lacks_something_is_refused_by_name() -> None:
    with pytest.raises(dy.InvalidArgument, match="Half is no whole EmbeddingDiffusion: it has no tokenizer"):
        dy.generate(Half(), dy.Regex("a"))  # type: ignore[abstract]
    with pytest.raises(dy.InvalidArgument, match="not a str"):
        dy.generate("gpt2", dy.Regex("a"))  # type: ignore[arg-type]
