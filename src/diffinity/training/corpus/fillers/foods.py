"""Foods: mass nouns and plurals, which stand without an article."""

from diffinity.training.corpus.fillers.entry import Entry, listed

_FOODS = """
bread, butter, cheese, honey, jam, rice, soup, stew, porridge, oatmeal, yogurt, cream cheese, goat cheese,
cottage cheese, scrambled eggs, boiled eggs, fried eggs, bacon, ham, sausages, meatballs, roast beef,
roast chicken, fried chicken, chicken soup, tomato soup, onion soup, pea soup, pumpkin soup, bean stew,
fish stew, grilled fish, smoked fish, fried fish, salmon, tuna, shrimp, sardines, oysters, fish cakes,
noodles, spaghetti, pasta, macaroni, lasagna, ravioli, pizza, dumplings, rice balls, fried rice, rice
pudding, sushi, tacos, burritos, tortillas, nachos, hamburgers, hot dogs, french fries, baked potatoes,
mashed potatoes, potatoes, potato salad, potato pancakes, sweet potatoes, carrots, peas, green beans,
black beans, lentils, chickpeas, corn, popcorn, tomatoes, cucumbers, lettuce, spinach, cabbage, broccoli,
cauliflower, mushrooms, onions, garlic bread, radishes, turnips, beets, pumpkins, pickles, olives,
peppers, asparagus, celery, apples, pears, plums, cherries, peaches, apricots, grapes, oranges, lemons,
bananas, pineapple, melon, watermelon, mangoes, figs, raisins, strawberries, raspberries, blueberries,
blackberries, cranberries, gooseberries, fruit salad, coconut, almonds, walnuts, hazelnuts, peanuts,
chestnuts, roasted nuts, sunflower seeds, peanut butter, chocolate, chocolate cake, apple cake, apple pie,
cherry pie, pumpkin pie, plum cake, carrot cake, cheesecake, sponge cake, fruitcake, gingerbread,
shortbread, cookies, oat cookies, biscuits, crackers, pretzels, rolls, buns, cinnamon rolls, muffins,
pancakes, waffles, doughnuts, croissants, bagels, toast, rye bread, corn bread, banana bread, flatbread,
sandwiches, cheese sandwiches, egg sandwiches, ice cream, vanilla pudding, strawberry jam, plum jam, maple
syrup, whipped cream, custard, jelly, caramel, toffee, licorice, lollipops, marshmallows, candy, apple
sauce, cherry tarts, lemon tart, meat pie, pea pudding, granola, cereal, tofu, seaweed, curry, hummus,
salad, coleslaw, roast turkey, stuffed peppers, vegetable soup, spring rolls
"""


def _foods() -> tuple[Entry, ...]:
    return tuple(
        Entry({"": food, "the": f"the {food}"}, frozenset({food, *food.split()})) for food in listed(_FOODS)
    )


FOODS = _foods()
