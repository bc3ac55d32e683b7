"""Public text as training documents: every published layout is read, and what must not be trained on stays out."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from diffinity.cli import app
from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.models.tokenization import train_bpe
from diffinity.training.corpus.public.build import Document, collect, read_documents, write_documents
from diffinity.training.corpus.public.cleaning import acceptable, plain
from diffinity.training.corpus.public.names import MEN, WOMEN, vary_names
from diffinity.training.corpus.public.pieces import LONGEST, pieces, sentences_of
from diffinity.training.corpus.public.readers import SOURCES, read_source
from diffinity.training.data import BLOCK
from diffinity.training.mixture import SHARES, MixedCorpus, is_corpus_file, letter, read_training_data
from diffinity.training.trainer import Trainer, TrainingSettings

SENTENCES = [f"The {animal} {verb} home." for animal in ("cat", "dog", "hen") for verb in ("ran", "came", "went")]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# ---- the published layouts


def test_tatoeba_export_gives_the_english_sentences(tmp_path: Path) -> None:
    rows = '1\teng\tIt is "late".\n2\tfra\tIl est tard.\n3\teng\tGo home.\n'
    assert list(read_source("tatoeba", write(tmp_path / "sentences.csv", rows))) == ['It is "late".', "Go home."]


def test_common_voice_gives_a_sentence_a_line(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "One fish.\nTwo fish.\n")
    write(tmp_path / "b.txt", "Red fish.\n")
    assert list(read_source("commonvoice", tmp_path)) == ["One fish.", "Two fish.", "Red fish."]


def test_storybook_markdown_ends_before_its_credits(tmp_path: Path) -> None:
    pages = "##\nHis bed was short.\n\n##\nHe bought a long bed.\n\n"
    story = f"# The Tall Man\n\n{pages}##\n* License: [CC-BY]\n* Text: A\n"
    assert list(read_source("storybooks", write(tmp_path / "en" / "0001.md", story).parent)) == [
        "The Tall Man\nHis bed was short.\nHe bought a long bed."
    ]


def test_ebook_chapters_give_their_paragraphs_without_markup(tmp_path: Path) -> None:
    page = "<body><h2>I</h2><p>The <em>old</em>\n man &amp; the sea.</p><p class='x'>He slept.</p></body>"
    assert list(read_source("ebooks", write(tmp_path / "chapter-1.xhtml", page))) == [
        "I\nThe old man & the sea.\nHe slept."
    ]


def test_star_dialogues_name_the_wizard_system(tmp_path: Path) -> None:
    events = [
        {"Agent": "User", "Text": "Hello."},
        {"Agent": "KnowledgeBase", "Item": {}},
        {"Agent": "Wizard", "Text": "How can I help?"},
    ]
    file = write(tmp_path / "1.json", json.dumps({"Events": events}))
    assert list(read_source("star", file)) == ["User: Hello.\nSystem: How can I help?"]


def test_taskmaster_conversations_become_turns(tmp_path: Path) -> None:
    turns = [{"speaker": "user", "text": "One tea."}, {"speaker": "assistant", "text": "Here it is."}]
    file = write(tmp_path / "a.json", json.dumps([{"utterances": turns}]))
    assert list(read_source("taskmaster", file)) == ["User: One tea.\nSystem: Here it is."]


@pytest.mark.parametrize("name", list(SOURCES))
def test_every_source_reads_blocks_of_text(name: str, tmp_path: Path) -> None:
    file = write(tmp_path / "blocks.txt", "first line\nsecond line\n\nanother\n")
    assert list(read_source(name, file)) == ["first line\nsecond line", "another"]


def test_an_unknown_source_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match="unknown source 'wiki'; known are tatoeba"):
        list(read_source("wiki", "x"))


# ---- cleaning and cutting


@pytest.mark.parametrize(
    "text",
    [
        "Write to me at ann@example.org.",
        "Call 555 123 4567 now.",
        "My PIN is 12.",
        "He was murdered.",
        'An "open quotation.',
        "Ça va bien.",
    ],
)
def test_private_offensive_and_broken_text_is_left_out(text: str) -> None:
    assert not acceptable(text)


@pytest.mark.parametrize("text", ["The class begins at 9.", "She passed the glass.", "Scunthorpe is a town."])
def test_harmless_words_that_contain_offensive_ones_stay(text: str) -> None:
    assert acceptable(text)


def test_plain_text_keeps_lines_and_drops_typography() -> None:
    assert plain("“Yes”,  he said—slowly.\n\n Next.") == '"Yes", he said - slowly.\nNext.'


def test_a_quotation_stays_in_its_sentence() -> None:
    text = '"Who are you? What is it?" asked the hen. "It is me," said Mr. Fox.'
    assert sentences_of(text) == ['"Who are you? What is it?" asked the hen.', '"It is me," said Mr. Fox.']


def test_passages_are_consecutive_sentences_that_fit() -> None:
    sentence = "The goat ate the grass in the garden all day long."
    found = list(pieces(" ".join([sentence] * 9), "prose"))
    assert all(len(text) <= LONGEST for text in found)
    assert {text.count("goat") for text in found} == {1, 2, 3}


def test_dialogue_pieces_begin_with_the_user() -> None:
    lines = "\n".join(["System: Hi.", "User: Tea?", "System: Yes.", "User: Thanks.", "System: Bye."])
    assert list(pieces(lines, "dialogue")) == [
        "User: Tea?\nSystem: Yes.",
        "User: Tea?\nSystem: Yes.\nUser: Thanks.\nSystem: Bye.",
        "User: Thanks.\nSystem: Bye.",
    ]


def test_long_json_gives_the_short_values_in_it() -> None:
    inner = {"name": "box", "size": 3}
    document = json.dumps({"items": [inner, {"filler": "x" * 400}], "n": 1})
    assert [json.loads(text) for text in pieces(document, "json")] == [inner]


# ---- names


def test_a_name_becomes_the_same_other_name_everywhere() -> None:
    texts = {vary_names("Tom saw Mary, and Mary saw Tom's dog.", Random(seed)) for seed in range(60)}
    for text in texts:
        man, woman = text.split(" saw ")[0], text.split(" saw ")[1].split(",")[0]
        assert text == f"{man} saw {woman}, and {woman} saw {man}'s dog."
        assert man in MEN
        assert woman in WOMEN
    assert len(texts) > 30


# ---- the file


@pytest.fixture
def tatoeba(tmp_path: Path) -> Path:
    lines = [*SENTENCES, "Tom came home.", "Mary came home.", "TOM CAME HOME!", "A xylograph came home."]
    return write(tmp_path / "sentences.tsv", "".join(f"{i}\teng\t{text}\n" for i, text in enumerate(lines)))


def test_repetitions_and_rare_words_are_left_out(tatoeba: Path) -> None:
    texts = [document.text for document in collect({"tatoeba": tatoeba}, rarest_word=2, rarest_triple=1)]
    assert texts == [*SENTENCES, "Tom came home.", "Mary came home."]


def test_sentences_with_rare_triples_are_left_out(tmp_path: Path) -> None:
    sentences = ["The dog ran home.", "The dog ran away.", "The dog ran home again.", "Home the dog ran."]
    lines = "".join(f"{i}\teng\t{text}\n" for i, text in enumerate(sentences))
    place = {"tatoeba": write(tmp_path / "sentences.tsv", lines)}
    assert [document.text for document in collect(place, 1, 1)] == sentences
    assert [document.text for document in collect(place, 1, 2)] == []
    write(tmp_path / "sentences.tsv", lines + "9\teng\tThe cat ran home.\n")  # now "ran home." stands twice, too
    assert [document.text for document in collect(place, 1, 2)] == ["The dog ran home."]


def test_the_held_out_split_does_not_depend_on_names_or_order() -> None:
    texts = [f"{{}} has {n} apples." for n in range(3000)]
    men = [Document("tatoeba", text.format("Tom")).held_out for text in texts]
    others = [Document("tatoeba", text.format("Sami")).held_out for text in texts]
    assert men == others
    assert 5 < sum(men) < 80


def test_a_corpus_file_is_read_as_it_was_written(tatoeba: Path, tmp_path: Path) -> None:
    counts = write_documents({"tatoeba": tatoeba}, tmp_path / "c.jsonl", 2, 1)
    assert [d.text for d in read_documents(tmp_path / "c.jsonl")] == [
        d.text for d in collect({"tatoeba": tatoeba}, 2, 1)
    ]
    assert counts == {"tatoeba": 11}
    assert is_corpus_file(str(tmp_path / "c.jsonl"))
    assert not list(tmp_path.glob("*.part"))


def test_nothing_left_after_filtering_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    file = write(tmp_path / "x.tsv", "1\teng\tpage 4\n")
    with pytest.raises(InvalidArgument, match="no document of the sources passed the filters"):
        write_documents({"tatoeba": file}, tmp_path / "c.jsonl")
    assert not (tmp_path / "c.jsonl").exists()


# ---- the mixture


def test_a_block_has_the_shares_of_the_sources_that_are_there() -> None:
    corpus = MixedCorpus([Document("tatoeba", "Go home."), Document("star", "User: Hi.\nSystem: Hello.")])
    block = corpus.block(3)
    assert len(block) == BLOCK
    assert block == corpus.block(3) != corpus.block(4)
    ratio = block.count("Go home.") / block.count("User: Hi.\nSystem: Hello.")
    assert ratio == pytest.approx(SHARES["tatoeba"] / SHARES["star"], rel=0.02)


def test_every_document_of_a_source_is_drawn_before_one_is_drawn_again() -> None:
    texts = [f"It is {n}." for n in range(5000)]
    corpus = MixedCorpus([Document("commonvoice", text) for text in texts])
    per_block = corpus.counts["commonvoice"]
    drawn: list[str] = []
    for index in range(-(-len(texts) // per_block)):
        drawn += [text for text in corpus.block(index) if text.startswith("It is ")][:per_block]
    assert set(drawn) == set(texts)


def test_letters_begin_with_a_greeting_and_end_with_a_name() -> None:
    for seed in range(30):
        lines = letter(Random(seed), ["I am well.", "My dog is ill."]).splitlines()
        assert lines[0].endswith(",")
        assert lines[-1] in (*MEN, *WOMEN)


def test_a_run_refuses_to_go_on_with_another_corpus(tmp_path: Path) -> None:
    settings = TrainingSettings(
        dim=16, n_blocks=1, n_heads=1, embed_dim=4, lengths=(16,), tokens_per_batch=64, steps=1, bias_warmup=0
    )
    write(tmp_path / "a.txt", "".join(f"{text}\n" for text in SENTENCES))
    for name, refused in (("a.txt", False), ("b.txt", True)):
        write(tmp_path / "b.txt", "other text here.\n" * 9)
        data = read_training_data(str(tmp_path / name))
        tokenizer = train_bpe(SENTENCES, 270)
        fields = {**settings.__dict__, "data": data.fingerprint}
        arguments = (TrainingSettings(**fields), tmp_path / "run", tokenizer, 0, data.source, data.held_out)
        if refused:
            with pytest.raises(CheckpointError, match="holds a run with other settings \\(data was"):
                Trainer(*arguments)
        else:
            Trainer(*arguments).run()


# ---- the command line


def test_corpus_build_and_show_on_the_command_line(tatoeba: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.jsonl"
    runner = CliRunner()
    built = runner.invoke(
        app,
        ["corpus", "build", f"tatoeba={tatoeba}", "--out", str(out), "--rarest-word", "2", "--rarest-triple", "1"],
        env={"COLUMNS": "200"},
    )
    assert built.exit_code == 0, built.output
    assert "11 tatoeba" in built.output
    shown = runner.invoke(app, ["corpus", "show", str(out), "--documents", "7"])
    assert len([json.loads(line)["text"] for line in shown.stdout.splitlines()]) == 7


def test_a_source_without_a_path_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["corpus", "build", "tatoeba", "--out", str(tmp_path / "c")])
    assert result.exit_code == 2
    assert "a source is NAME=PATH" in result.stderr
