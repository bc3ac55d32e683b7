"""Short texts in a fixed layout: recipes, lists, offers, three-line poems, notices, forms."""

from __future__ import annotations

from random import Random
from typing import Final

from diffinity.training.corpus.structured.names import product
from diffinity.training.corpus.structured.registry import line_kind
from diffinity.training.corpus.structured.values import MONTHS, WEEKDAYS, parts, words

_DISHES: Final = {
    "Tomato Soup": ("tomatoes", "onion", "basil", "salt", "vegetable stock"),
    "Pancakes": ("flour", "milk", "eggs", "butter", "sugar"),
    "Apple Pie": ("apples", "flour", "butter", "sugar", "cinnamon"),
    "Rice Salad": ("rice", "peas", "corn", "olive oil", "lemon juice"),
    "Fried Eggs": ("eggs", "butter", "salt", "pepper"),
    "Fruit Salad": ("bananas", "apples", "oranges", "honey", "lemon juice"),
    "Garlic Bread": ("bread", "garlic", "butter", "parsley"),
    "Vegetable Curry": ("potatoes", "carrots", "coconut milk", "curry powder", "rice"),
    "Lemon Cake": ("flour", "sugar", "eggs", "lemon juice", "butter"),
    "Onion Soup": ("onions", "butter", "vegetable stock", "bread", "cheese"),
    "Potato Salad": ("potatoes", "onion", "eggs", "salt", "vinegar"),
    "Hot Chocolate": ("milk", "cocoa", "sugar", "cream"),
}
_AMOUNTS: Final = parts("1 cup of|2 cups of|a little|200 g of|100 g of|2 spoons of|some|half a cup of|50 g of")
_FIRST_STEPS: Final = parts(
    "Wash and cut the {0}.|Mix the {0} with the {1}.|Put the {0} in a large bowl.|Cut the {0} into small pieces."
    "|Melt the {1} in a pan and add the {0}.|Heat the {0} slowly."
)
_NEXT_STEPS: Final = parts(
    "Add the {1} and stir well.|Cook for {n} minutes.|Bake for {n} minutes until golden.|Serve warm."
    "|Let it cool and serve with {1}.|Stir in the {1} and cook for {n} minutes."
    "|Leave it in the fridge for an hour."
)
_ERRANDS: Final = parts(
    """Buy milk and bread|Call the dentist|Water the plants|Clean the kitchen|Write to Grandma|Pay the rent
    |Pick up the children|Book the train tickets|Return the library books|Feed the cat|Wash the car|Send the report
    |Prepare the meeting|Fix the bicycle|Order new shoes|Answer the letter|Take out the rubbish|Iron the shirts"""
)
_GROCERIES: Final = words(
    """milk bread eggs butter cheese apples bananas rice pasta tomatoes potatoes onions carrots tea coffee sugar
    salt flour yogurt juice honey lemons chicken fish water soap"""
)
_FIRST_LINES: Final = parts(
    """The old pond is still|Snow falls on the hill|Rain on the window|A leaf in the wind|The moon over the lake
    |Morning in the park|A bird on the roof|The garden at night|Clouds above the sea|An empty street
    |The first day of spring
    |Cold wind from the north|A boat on the river|Evening in the town|The road to the coast|Fog over the field
    |Late light on the wall|The market is closed|A letter from home|Summer in the woods|The long way back
    |Smoke above the roofs|The bridge in the rain|A quiet morning"""
)
_MIDDLE_LINES: Final = parts(
    """a frog jumps into the dark|two children walk home slowly|nobody hears the small bell
    |the cat waits beside the door
    |a candle burns in the house|somebody sings a soft song|the last train leaves the station
    |an old man feeds the pigeons
    |yellow flowers open again|the dog sleeps under the tree|a light goes out in the hall
    |the fisherman counts his fish|my mother opens the window|the horses stand in the field
    |a boy looks up at the sky|we drink our coffee in silence|the leaves turn red on the trees
    |the baker lights his oven|a woman reads by the lamp|the snow covers all the roads"""
)
_LAST_LINES: Final = parts(
    """the sound of water|and then it is quiet|tomorrow it rains|winter has begun|I think of my friend
    |the tea is still warm
    |a new day begins|the stars come out now|no one is at home|the summer is gone|and the world sleeps on
    |we wait for the sun|the door stays open|and nobody speaks|my brother is late|it smells of apples
    |the night comes slowly|I walk home alone|the birds have come back|and the rain goes on"""
)


@line_kind(weight=4.0)
def recipe_card(rng: Random) -> str:
    dish, ingredients = rng.choice(tuple(_DISHES.items()))
    chosen = rng.sample(ingredients, rng.randint(2, 3))
    fields = {"n": rng.choice((5, 10, 15, 20, 30, 45))}
    steps = [rng.choice(_FIRST_STEPS), *rng.sample(_NEXT_STEPS, rng.randint(1, 2))]
    return "\n".join(
        [
            dish,
            "Ingredients:",
            *(f"- {rng.choice(_AMOUNTS)} {ingredient}" for ingredient in chosen),
            "Steps:",
            *(f"{number}. {step.format(*chosen, **fields)}" for number, step in enumerate(steps, 1)),
        ]
    )


@line_kind(weight=0.6)
def list_of_errands(rng: Random) -> str:
    title = rng.choice(("To do:", "Today:", f"{rng.choice(WEEKDAYS)}:", "This week:"))
    mark = rng.choice(("- ", "- ", "* ", "[ ] "))
    return "\n".join([title, *(mark + errand for errand in rng.sample(_ERRANDS, rng.randint(2, 4)))])


@line_kind(weight=0.4)
def shopping_list(rng: Random) -> str:
    chosen = rng.sample(_GROCERIES, rng.randint(3, 5))
    if rng.random() < 0.4:
        return "Shopping list: " + ", ".join(chosen)
    return "\n".join(["Shopping list:", *(f"- {item}" for item in chosen)])


@line_kind(weight=1.5)
def three_line_poem(rng: Random) -> str:
    return "\n".join((rng.choice(_FIRST_LINES), rng.choice(_MIDDLE_LINES), rng.choice(_LAST_LINES)))


@line_kind()
def price_line(rng: Random) -> str:
    item = product(rng)
    return rng.choice(
        (
            f"{item.name} - ${item.price:.2f}",
            f"{item.name}: ${item.price:.2f}",
            f"{item.name}, {item.price:.2f} EUR",
            f"{item.name} (${item.price:.2f})",
        )
    )


@line_kind(weight=0.3)
def opening_hours_line(rng: Random) -> str:
    first, last = rng.choice((("Monday", "Friday"), ("Tuesday", "Sunday"), ("Monday", "Saturday")))
    opens, closes = (rng.choice(("00", "30")) for _ in range(2))
    return f"Open {first} to {last}, {rng.randint(7, 10)}:{opens} to {rng.randint(16, 20)}:{closes}."


@line_kind()
def appointment_line(rng: Random) -> str:
    title = rng.choice(("Dentist", "Meeting", "Lunch", "Doctor", "Piano lesson", "Haircut", "Interview", "Dinner"))
    day = f"{rng.choice(WEEKDAYS)}, {rng.randint(1, 28)} {rng.choice(MONTHS)}"
    return f"{title}: {day} at {rng.randint(8, 20)}:{rng.choice(('00', '15', '30', '45'))}"
