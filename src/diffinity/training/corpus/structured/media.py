"""Kinds of record about works and knowledge: books, films, songs, recipes, articles, quizzes."""

from __future__ import annotations

from random import Random

from diffinity.training.corpus.structured.names import person
from diffinity.training.corpus.structured.phrases import headline, work_title
from diffinity.training.corpus.structured.registry import ABSENT, Record, json_kind
from diffinity.training.corpus.structured.values import (
    LANGUAGES,
    TAGS,
    WORDS,
    day,
    decimal,
    filled,
    flag,
    hex_colour_code,
    image_url,
    maybe,
    number_id,
    price,
    slug,
    some,
    timestamp,
    url,
)

_KNOWN_BOOKS = (
    ("Pride and Prejudice", "Jane Austen", 1813),
    ("Moby-Dick", "Herman Melville", 1851),
    ("Dracula", "Bram Stoker", 1897),
    ("Frankenstein", "Mary Shelley", 1818),
    ("Emma", "Jane Austen", 1815),
    ("Middlemarch", "George Eliot", 1871),
    ("Walden", "Henry David Thoreau", 1854),
    ("The Time Machine", "H. G. Wells", 1895),
    ("Jane Eyre", "Charlotte Brontë", 1847),
    ("Treasure Island", "Robert Louis Stevenson", 1883),
)
_GENRES = ("drama", "comedy", "thriller", "fantasy", "romance", "history", "mystery", "adventure", "poetry")
_MUSIC = ("jazz", "rock", "pop", "folk", "classical", "blues", "techno", "soul", "country")
# dish: minutes, ingredients with the two essential ingredients first
_DISHES = {
    "Tomato Soup": (30, ("4 tomatoes", "1 onion", "500 ml water", "salt", "1 tbsp olive oil", "basil")),
    "Pancakes": (25, ("200 g flour", "2 eggs", "300 ml milk", "1 pinch salt", "butter")),
    "Greek Salad": (15, ("2 tomatoes", "1 cucumber", "100 g feta", "olives", "1 red onion")),
    "Lentil Curry": (40, ("200 g lentils", "1 onion", "400 ml coconut milk", "2 tsp curry powder", "ginger")),
    "Banana Bread": (70, ("3 bananas", "250 g flour", "100 g sugar", "2 eggs", "80 g butter")),
    "Vegetable Rice": (30, ("200 g rice", "2 carrots", "100 g peas", "1 onion", "soy sauce")),
    "Apple Pie": (80, ("5 apples", "250 g flour", "120 g butter", "80 g sugar", "cinnamon")),
    "Omelette": (10, ("3 eggs", "1 tbsp butter", "salt", "pepper", "50 g cheese")),
    "Pesto Pasta": (20, ("250 g pasta", "50 g basil", "30 g pine nuts", "50 g parmesan", "olive oil")),
    "Potato Salad": (45, ("1 kg potatoes", "2 pickles", "3 tbsp mayonnaise", "1 onion", "mustard")),
}
# question, right answer, wrong answers
_QUESTIONS = (
    ("What is the capital of France?", "Paris", ("London", "Rome", "Madrid", "Berlin")),
    ("How many legs does a spider have?", "8", ("4", "6", "10", "12")),
    ("Which planet is the largest?", "Jupiter", ("Mars", "Venus", "Saturn", "Earth")),
    ("What is the chemical symbol for gold?", "Au", ("Ag", "Go", "Gd", "Fe")),
    ("Which ocean is the largest?", "Pacific", ("Atlantic", "Indian", "Arctic", "Southern")),
    ("How many days are in a leap year?", "366", ("364", "365", "367", "360")),
    ("What do bees make?", "Honey", ("Milk", "Silk", "Wool", "Wine")),
    ("Which animal is a mammal?", "Whale", ("Shark", "Eagle", "Frog", "Trout")),
    ("What is the capital of Japan?", "Tokyo", ("Kyoto", "Osaka", "Seoul", "Beijing")),
    ("How many strings has a violin?", "4", ("3", "5", "6", "8")),
    ("Which metal is liquid at room temperature?", "Mercury", ("Iron", "Lead", "Zinc", "Tin")),
    ("What color do blue and yellow make?", "Green", ("Purple", "Orange", "Brown", "Pink")),
)
_TRANSLATIONS = {
    "hello": {"de": "hallo", "fr": "bonjour", "es": "hola", "it": "ciao", "nl": "hallo", "sv": "hej"},
    "thank you": {
        "de": "danke",
        "fr": "merci",
        "es": "gracias",
        "it": "grazie",
        "pt": "obrigado",
        "sv": "tack",
    },
    "water": {
        "de": "Wasser",
        "fr": "eau",
        "es": "agua",
        "it": "acqua",
        "pt": "água",
        "nl": "water",
        "sv": "vatten",
    },
    "house": {
        "de": "Haus",
        "fr": "maison",
        "es": "casa",
        "it": "casa",
        "pt": "casa",
        "nl": "huis",
        "sv": "hus",
    },
    "bread": {
        "de": "Brot",
        "fr": "pain",
        "es": "pan",
        "it": "pane",
        "pt": "pão",
        "nl": "brood",
        "sv": "bröd",
    },
    "good morning": {"de": "guten Morgen", "fr": "bonjour", "es": "buenos días", "it": "buongiorno"},
    "book": {
        "de": "Buch",
        "fr": "livre",
        "es": "libro",
        "it": "libro",
        "pt": "livro",
        "nl": "boek",
        "sv": "bok",
    },
    "night": {
        "de": "Nacht",
        "fr": "nuit",
        "es": "noche",
        "it": "notte",
        "pt": "noite",
        "nl": "nacht",
        "sv": "natt",
    },
    "sun": {"de": "Sonne", "fr": "soleil", "es": "sol", "it": "sole", "pt": "sol", "nl": "zon", "sv": "sol"},
    "milk": {
        "de": "Milch",
        "fr": "lait",
        "es": "leche",
        "it": "latte",
        "pt": "leite",
        "nl": "melk",
        "sv": "mjölk",
    },
}

_LANGUAGE_NAMES = {"de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "sv": "Swedish"}


def isbn_13(rng: Random) -> str:
    """Return an ISBN of thirteen digits with a right check digit.

    >>> len(isbn_13(Random(0)))
    13
    """
    body = filled(rng, "978#########")
    total = sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(body))
    return body + str(-total % 10)


@json_kind()
def book(rng: Random) -> Record:
    is_known_book = flag(rng, 0.2)
    title, author, year = rng.choice(_KNOWN_BOOKS)
    return {
        "title": title if is_known_book else work_title(rng),
        "author": author if is_known_book else person(rng).name,
        "year": year if is_known_book else rng.randint(1900, 2025),
        "isbn": maybe(rng, isbn_13(rng)) if not is_known_book else ABSENT,
        "pages": maybe(rng, rng.randint(90, 900), 0.6),
        "language": maybe(rng, "en", 0.3) if is_known_book else maybe(rng, rng.choice(LANGUAGES), 0.3),
        "genres": maybe(rng, some(rng, _GENRES, 1, 2)) if not is_known_book else maybe(rng, ["classic"]),
        "available": maybe(rng, flag(rng, 0.7), 0.4),
    }


@json_kind()
def library_loan(rng: Random) -> Record:
    return {
        "book": {"title": work_title(rng), "isbn": isbn_13(rng)},
        "borrower": person(rng).name,
        "due": day(rng).isoformat(),
        "renewals": rng.randint(0, 3),
        "fine": maybe(rng, rng.choice((0, 0.5, 1.5, price(rng, 50, 900)))),
    }


@json_kind()
def film(rng: Random) -> Record:
    return {
        "title": work_title(rng),
        "director": person(rng).name,
        "year": rng.randint(1930, 2025),
        "runtime_minutes": maybe(rng, rng.randint(72, 190), 0.7),
        "genres": some(rng, _GENRES[:8], 1, 3),
        "rating": maybe(rng, decimal(rng, 3, 9.6, 1), 0.6),
        "cast": maybe(rng, [person(rng).name for _ in range(2)], 0.4),
    }


@json_kind()
def song(rng: Random) -> Record:
    return {
        "title": work_title(rng),
        "artist": rng.choice((person(rng).name, f"The {rng.choice(WORDS).capitalize()} Band")),
        "album": maybe(rng, work_title(rng)),
        "duration": rng.choice((rng.randint(95, 420), f"{rng.randint(2, 6)}:{rng.randint(0, 59):02}")),
        "genre": rng.choice(_MUSIC),
        "bpm": maybe(rng, rng.randint(60, 180), 0.3),
        "explicit": maybe(rng, flag(rng, 0.1), 0.4),
    }


@json_kind()
def playlist(rng: Random) -> Record:
    tracks = [work_title(rng) for _ in range(rng.randint(1, 4))]
    return {
        "name": rng.choice(("Morning Run", "Focus", "Road Trip", "Rainy Day", "Dinner", "Party", "Sleep")),
        "owner": maybe(rng, person(rng).username),
        "public": flag(rng),
        "tracks": tracks,
        "track_count": len(tracks),
    }


@json_kind()
def podcast_episode(rng: Random) -> Record:
    return {
        "episode": rng.randint(1, 300),
        "title": headline(rng),
        "published": day(rng).isoformat(),
        "duration_seconds": rng.randint(300, 7200),
        "guests": maybe(rng, [person(rng).name for _ in range(rng.randint(0, 2))], 0.6),
        "audio_url": maybe(rng, f"https://cdn.example.com/audio/{slug(rng)}.mp3", 0.4),
    }


@json_kind()
def recipe(rng: Random) -> Record:
    dish, (minutes, ingredients) = rng.choice(tuple(_DISHES.items()))
    return {
        "name": dish,
        "servings": rng.randint(1, 6),
        "minutes": minutes + rng.choice((0, 0, 5, 10)),
        "ingredients": [*ingredients[:2], *(item for item in ingredients[2:] if flag(rng, 0.6))],
        "vegetarian": maybe(rng, True),
        "difficulty": maybe(rng, "easy" if minutes < 40 else "medium"),
    }


@json_kind()
def article(rng: Random) -> Record:
    title = headline(rng)
    return {
        "title": title,
        "slug": maybe(rng, title.lower().replace("'", "").replace(" ", "-"), 0.3),
        "author": person(rng).name,
        "published_at": timestamp(rng),
        "tags": some(rng, TAGS, 0, 4),
        "word_count": maybe(rng, rng.randint(150, 4000)),
        "category": maybe(rng, rng.choice(("science", "travel", "food", "culture", "history")), 0.3),
    }


@json_kind()
def photo(rng: Random) -> Record:
    width, height = rng.choice(((1920, 1080), (1024, 768), (800, 600), (4000, 3000), (640, 480), (1200, 1200)))
    return {
        "id": number_id(rng),
        "url": image_url(rng),
        "width": width,
        "height": height,
        "taken_at": maybe(rng, timestamp(rng)),
        "camera": maybe(
            rng, {"iso": rng.choice((100, 200, 400, 800)), "aperture": rng.choice((1.8, 2.8, 4.0, 8.0))}
        ),
        "dominant_color": maybe(rng, hex_colour_code(rng), 0.3),
    }


@json_kind()
def video(rng: Random) -> Record:
    views = rng.choice((rng.randint(0, 500), rng.randint(500, 3_000_000)))
    return {
        "video_id": filled(rng, "~~~~~~~~"),
        "title": headline(rng),
        "channel": person(rng).username,
        "views": views,
        "likes": maybe(rng, rng.randint(0, views // 10), 0.7),
        "length_s": rng.randint(8, 5400),
        "subtitles": maybe(rng, some(rng, LANGUAGES, 0, 3)),
        "live": maybe(rng, flag(rng, 0.1), 0.4),
    }


@json_kind()
def quiz_question(rng: Random) -> Record:
    question, right, wrong = rng.choice(_QUESTIONS)
    options = [right, *rng.sample(wrong, rng.randint(2, 3))]
    rng.shuffle(options)
    return {
        "question": question,
        "options": options,
        "answer": rng.choice((right, options.index(right))),
        "points": maybe(rng, rng.choice((1, 2, 5, 10))),
        "difficulty": maybe(rng, rng.choice(("easy", "medium", "hard")), 0.4),
    }


@json_kind()
def flashcard(rng: Random) -> Record:
    question, right, _ = rng.choice(_QUESTIONS)
    return {
        "front": question,
        "back": right,
        "box": rng.randint(1, 5),
        "ease": maybe(rng, decimal(rng, 1.3, 3.0)),
        "next_review": maybe(rng, day(rng).isoformat(), 0.7),
    }


@json_kind()
def translation(rng: Random) -> Record:
    word, translations = rng.choice(tuple(_TRANSLATIONS.items()))
    chosen = set(some(rng, tuple(translations), 1, 4))
    return {
        "word": word,
        "language": "en",
        "translations": {language: text for language, text in translations.items() if language in chosen},
        "confidence": maybe(rng, decimal(rng, 0.7, 1.0)),
    }


@json_kind()
def text_label(rng: Random) -> Record:
    good = flag(rng)
    pool = (
        (
            "I love it.",
            "Great service!",
            "It works very well.",
            "What a beautiful day.",
            "The best soup in town.",
        )
        if good
        else (
            "It broke at once.",
            "Very rude staff.",
            "The room was cold.",
            "I want my money back.",
            "Far too slow.",
        )
    )
    return {
        "text": " ".join(some(rng, pool, 1, 2)),
        "label": "positive" if good else "negative",
        "score": decimal(rng, 0.5, 1.0),
        "source": maybe(rng, url(rng), 0.2),
    }


@json_kind()
def chat_history(rng: Random) -> list[object]:
    question, right, _ = rng.choice(_QUESTIONS)
    word, translations = rng.choice(tuple(_TRANSLATIONS.items()))
    language, name = rng.choice([pair for pair in _LANGUAGE_NAMES.items() if pair[0] in translations])
    a, b = rng.randint(2, 99), rng.randint(2, 99)
    exchanges = (
        (question, rng.choice((right, f"The answer is {right}."))),
        (f"What is {a} + {b}?", rng.choice((str(a + b), f"{a} + {b} = {a + b}"))),
        (f"How do you say '{word}' in {name}?", translations[language]),
        (f"Which is larger, {a} or {a + b}?", str(a + b)),
    )
    user_turn, assistant_turn = rng.choice(exchanges)
    opening = [{"role": "system", "content": rng.choice(("Be brief.", "You are helpful.", "Answer politely."))}]
    turns = [{"role": "user", "content": user_turn}, {"role": "assistant", "content": assistant_turn}]
    return [*(opening if flag(rng, 0.3) else []), *turns]
