"""Places that one can go to, each with its preposition."""

from diffinity.training.corpus.fillers.entry import Entry, listed, with_article

_PLACES = {
    "in": """
        forest, garden, kitchen, park, village, town, city, valley, meadow, field, barn, stable, cave,
        castle, library, classroom, cellar, attic, tower, harbor, orchard, vineyard, desert, jungle,
        museum, church, temple, shed, greenhouse, cottage, palace, courtyard, backyard, playground,
        schoolyard, churchyard, bakery, workshop, office, hospital, theater, bathroom, bedroom, living
        room, dining room, hallway, garage, basement, laundry room, waiting room, town hall, school hall,
        concert hall, gym, flower shop, bookshop, toy shop, candy store, hardware store, grocery store,
        department store, coffee shop, tea house, old mill, windmill, lighthouse, fire station, police
        station, courtroom, bank, pharmacy, barber shop, shoe shop, swamp, canyon, apple orchard, rose
        garden, herb garden, cornfield, wheat field, pine forest, birch forest, old town, main square,
        town square, village square, parking lot, tree house, henhouse, boathouse, woodshed, sawmill,
        factory, bell tower, art room, music room, science room, cafeteria, reading room, botanical
        garden, olive grove, cherry orchard, banquet hall, throne room, dungeon, ruined castle, abandoned
        house, empty house, hotel lobby, corner shop, night market, fishing village, mountain hut""",
    "at": """
        market, station, bus stop, train station, airport, zoo, circus, fair, farm, beach, seaside, lake,
        river, pond, well, fountain, crossroads, gate, inn, hotel, restaurant, cafe, post office, swimming
        pool, ferry dock, fish market, flower market, village school, music school, university, town gate,
        riverbank, waterfall, campsite, fairground, stadium, tennis court, ice rink, skating rink, ticket
        office, summer camp, castle gate, garden gate, old well, fishing pond, duck pond, tram stop, gas
        station, pizza place""",
    "on": """
        hill, bridge, island, mountain, roof, pier, balcony, terrace, porch, hillside, cliff, riverboat,
        ferry, football field, village green, stage, rooftop, lawn, dock, stone bridge, wooden bridge,
        north shore, coast, back porch, soccer field, sand dune, mountain path""",
}
_NEVER_COUNTED = frozenset({"seaside", "old town", "coast", "north shore"})


def _places() -> tuple[Entry, ...]:
    entries = []
    for preposition, text in _PLACES.items():
        for name in listed(text):
            forms = {
                "": name,
                "in": f"{preposition} the {name}",
                "to": f"to the {name}",
                "the": f"the {name}",
                "a": f"the {name}" if name in _NEVER_COUNTED else with_article(name),
            }
            entries.append(Entry(forms, frozenset({name, name.split()[-1]})))
    return tuple(entries)


PLACES = _places()
