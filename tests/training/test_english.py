"""The English documents: skeletons read well under any filling, and a seed always gives the same text."""

import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest

from diffinity.training.corpus import fillers
from diffinity.training.corpus.english import (
    SkeletonError,
    Slot,
    Template,
    english_documents,
    is_held_out,
    load_skeletons,
    parse,
    render,
)

SEEDS = range(5)

# An oracle of its own: words with their article as a dictionary of pronunciation has it.
AN_WORDS = """
apple old orange owl eagle elephant ostrich umbrella hour honest heir icy empty eight eleven eighteen
ugly unusual uncle aunt envelope apron actor architect engineer explorer inventor island inn orchard office
ant ape otter ox elk emu antelope armadillo anteater alarm atlas accordion axe egg earring acorn eraser
eager elegant easygoing energetic enthusiastic imaginative impatient independent ambitious adventurous
observant optimistic ordinary odd obedient inventive unselfish absent-minded iron interesting expensive
accountant astronomer acrobat electrician editor innkeeper optician organist oil invitation ink olive
"""
A_WORDS = """
university unicorn uniform useful usual one one-eyed once european ewe ukulele unique union user
horse house hat hero hen history yellow year wolf week young baker kind key map red
"""


def renderings(template: Template) -> Iterator[str]:
    return (render(template, random.Random(seed)) for seed in SEEDS)


def all_skeletons() -> tuple[Template, ...]:
    return load_skeletons("train") + load_skeletons("validation")


def rendered_skeletons() -> Iterator[tuple[str, str]]:
    return ((template.source, text) for template in all_skeletons() for text in renderings(template))


def test_the_package_ships_enough_skeletons_and_words() -> None:
    texts = list(islice(english_documents(random.Random(0), "train"), 10_000))
    assert len(all_skeletons()) >= 2000
    assert len(set(re.findall(r"[a-z]+", " ".join(texts).lower()))) >= 4000


def test_no_slot_or_bracket_is_left_in_a_document() -> None:
    left = [(source, text) for source, text in rendered_skeletons() if re.search(r"[{}\[\]|\0]", text)]
    assert left == []


def test_spacing_and_punctuation_are_clean() -> None:
    untidy = re.compile(r"  |^ | $| [,.!?;]|,,|\.\.(?!\.)|[.!?][A-Z]")
    found = [(source, text) for source, text in rendered_skeletons() if untidy.search(text)]
    assert found == []


def test_articles_agree_with_the_sound_of_the_next_word() -> None:
    wrong = re.compile(rf"\b(?:[Aa] (?:{'|'.join(AN_WORDS.split())})|[Aa]n (?:{'|'.join(A_WORDS.split())}))\b")
    found = [(source, match.group()) for source, text in rendered_skeletons() if (match := wrong.search(text))]
    assert found == []


def test_documents_and_sentences_start_with_a_capital() -> None:
    lower = re.compile(r"^\"?[a-z]|[a-z]{3,}[.!?] [a-z]")
    found = [(source, text) for source, text in rendered_skeletons() if lower.search(text)]
    assert found == []


@pytest.mark.parametrize("word", AN_WORDS.split())
def test_words_with_a_vowel_sound_take_an(word: str) -> None:
    assert fillers.article(word) == "an"


@pytest.mark.parametrize("word", A_WORDS.split())
def test_words_with_a_consonant_sound_take_a(word: str) -> None:
    assert fillers.article(word) == "a"


def test_an_article_written_before_a_slot_follows_the_filler() -> None:
    template = parse("It was a {color} hat and an [old|big] coat.")
    texts = {render(template, random.Random(seed)) for seed in range(300)}
    assert any("an orange hat and a big coat" in text for text in texts)
    assert not any(re.search(r"a orange|an red|an big|a old", text) for text in texts)


def test_pronouns_agree_with_the_character() -> None:
    template = parse("{A}/{A.he}/{A.him}/{A.his}/{A.himself}/{A.His}")
    agreeing = {"he him his himself His", "she her her herself Her", "it it its itself Its"}
    rng = random.Random(0)
    pronouns: dict[str, set[str]] = {}
    for _ in range(20_000):
        name, *forms = render(template, rng).split("/")
        pronouns.setdefault(name, set()).add(" ".join(forms))
    assert set().union(*pronouns.values()) == agreeing
    for name in ("Anna", "The queen", "The hen"):
        assert pronouns[name] == {"she her her herself Her"}
    for name in ("Ben", "The king", "The ox"):
        assert pronouns[name] == {"he him his himself His"}


def test_a_repeated_slot_keeps_its_filler() -> None:
    template = parse("{thing.a}; {thing}; {thing.the}; {P}; {P}")
    for seed in range(100):
        described, bare, definite, first, second = render(template, random.Random(seed)).split("; ")
        assert described.endswith(bare)
        assert definite == f"the {bare}"
        assert first == second


@pytest.mark.parametrize(
    "slots",
    ["{A};{B};{C};{P};{Q}", "{thing};{thing2}", "{place};{place2}", "{food};{food2}", "{A};{B};{job.the}"],
)
def test_slots_of_one_kind_get_different_fillers(slots: str) -> None:
    template = parse(slots)
    for seed in range(3000):
        chosen = render(template, random.Random(seed)).lower().split(";")
        assert len(set(chosen)) == len(chosen)


def test_an_animal_kind_differs_from_the_animal_characters() -> None:
    template = parse("{A};{B};{animal.the}")
    assert all(len(set(render(template, random.Random(seed)).lower().split(";"))) == 3 for seed in range(1000))


def test_a_filler_does_not_repeat_a_fixed_word_of_the_line() -> None:
    template = parse("Not winter, spring or summer: it was {season}.")
    assert {render(template, random.Random(seed)).split()[-1] for seed in range(50)} == {"autumn."}


def test_a_time_that_looks_back_never_opens_a_document() -> None:
    template = parse("{Time}, {P} woke up.")
    openings = {render(template, random.Random(seed)).split(",")[0] for seed in range(2000)}
    assert "One evening" in openings
    assert not any(re.search(r"\b(?:later|next|that)\b", opening) for opening in openings)


def test_snow_does_not_fall_in_a_summer_month() -> None:
    template = parse("In {month} they met. {weather}")
    texts = [render(template, random.Random(seed)) for seed in range(3000)]
    assert any(re.search(r"January.*(?:[Ss]now|frost)", text) for text in texts)
    assert not any(re.search(r"(?:June|July|August) .*(?:[Ss]now|frost)", text) for text in texts)


def test_alternatives_are_drawn_independently_and_may_be_empty() -> None:
    template = parse("[A|One] day the[ very|] old man ate [{food}|nothing].")
    texts = {render(template, random.Random(seed)) for seed in range(200)}
    assert {"A day the old man ate nothing.", "One day the very old man ate nothing."} <= texts
    assert any(not text.endswith("nothing.") for text in texts)


def test_a_slot_after_a_closing_quotation_mark_keeps_its_small_letter() -> None:
    template = parse('"Stop!" {animal.the} cried. {job.the} ran. "{animal.pl} can talk!"')
    for seed in range(20):
        assert re.fullmatch(
            r'"Stop!" the .* cried\. The .* ran\. "[A-Z].* can talk!"', render(template, random.Random(seed))
        )


def test_a_capital_in_the_slot_is_a_capital_in_the_text() -> None:
    assert parse("x {A.Cap}").parts[1] == Slot("A", "character", "", capital=True)
    assert parse("x {thing.The}").parts[1] == Slot("thing", "thing", "the", capital=True)
    assert parse("x {Number}").parts[1] == Slot("number", "number", "", capital=True)


def test_the_same_seed_gives_the_same_documents() -> None:
    first, again, other = (
        list(islice(english_documents(random.Random(seed), "train"), 200)) for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other


def test_held_out_skeletons_never_appear_in_training() -> None:
    train = {template.source for template in load_skeletons("train")}
    validation = {template.source for template in load_skeletons("validation")}
    assert train.isdisjoint(validation)
    assert 0.01 < len(validation) / len(train | validation) < 0.05
    assert all(is_held_out(line) for line in validation)


def test_every_skeleton_of_the_split_is_used_and_short_ones_more_often() -> None:
    templates = load_skeletons("validation")
    plain = {template.source for template in templates if not re.search(r"[{\[]", template.source)}
    texts = Counter(islice(english_documents(random.Random(0), "validation"), 40 * len(templates)))
    assert plain <= set(texts)
    short, long = min(plain, key=len), max(plain, key=len)
    assert texts[short] > texts[long]


@pytest.mark.parametrize("line", ["{dragon} came.", "{A.wings}", "{thing.he}", "{A.}", "{P", "[a|b", "a|b", "]x"])
def test_what_is_not_in_the_slot_language_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(SkeletonError, match=re.escape(f"tales.txt:9: {line}")):
        parse(line, "tales.txt:9")
