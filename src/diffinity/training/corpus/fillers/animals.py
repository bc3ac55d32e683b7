"""Animals: as characters of a fable, and as kinds with their plurals."""

from diffinity.training.corpus.fillers.entry import Entry, listed, noun_forms, noun_keys
from diffinity.training.corpus.fillers.people import role

# Land animals and birds only: skeletons let a kind come out of the bushes or sleep in the barn.
_KINDS = """
fox, hare, rabbit, bear, wolf/wolves, badger, hedgehog, squirrel, mouse/mice, rat, mole, otter, beaver,
weasel, deer/deer, goat, sheep/sheep, lamb, cow, calf/calves, bull, ox/oxen, horse, pony, foal, donkey,
mule, pig, piglet, dog, puppy, cat, kitten, hen, rooster, chicken, chick, duck, duckling, goose/geese,
gosling, swan, turkey, peacock, pigeon, dove, crow, raven, magpie, owl, eagle, hawk, falcon, sparrow,
robin, wren, lark, swallow, blackbird, thrush, finch, canary, parrot, cuckoo, woodpecker, heron, stork,
crane, seagull, pelican, penguin, ostrich, flamingo, frog, toad, newt, lizard, gecko, snake, tortoise,
turtle, crocodile, alligator, lion, tiger, leopard, cheetah, panther, lynx, wildcat, elephant, rhino,
hippo, giraffe, zebra, camel, llama, alpaca, antelope, gazelle, buffalo/buffalo, bison/bison, moose/moose,
elk/elk, reindeer/reindeer, kangaroo, koala, wombat, platypus, panda, monkey, gorilla, chimpanzee, baboon,
lemur, sloth, anteater, armadillo, raccoon, skunk, opossum, porcupine, chipmunk, hamster, guinea pig,
gerbil, ferret, chinchilla, mongoose, meerkat, hyena, jackal, coyote, dingo/dingoes, polar bear, brown
bear, snow leopard, mountain goat, wild boar, bat, poodle, terrier, spaniel, sheepdog, greyhound, bulldog,
dachshund, mountain lion, barn owl, yak, tapir, emu, kiwi, quail/quail, pheasant, partridge, toucan,
hummingbird, kingfisher, nightingale, starling, vulture
"""
# "noun=she" fixes the gender; the others may be he, she or it.
_CHARACTERS = {
    "little, clever, hungry, sly, curious, young, gray, quick, playful": """
        fox, hare, rabbit, squirrel, mouse, weasel, otter, raccoon, cat, kitten=it, puppy=it, monkey,
        ferret, chipmunk, jackal, coyote, lemur, meerkat, hamster, mongoose""",
    "big, old, friendly, sleepy, hungry, gentle, lazy, strong, grumpy": """
        bear, badger, lion, tiger, elephant, hippo, rhino, buffalo, moose, panda, gorilla, camel, ox=he,
        bull=he, bison, polar bear, yak, wild boar=he""",
    "old, wise, quiet, slow, patient, gray, shy, thoughtful": """
        owl, tortoise, turtle, toad, mole, hedgehog, donkey, mule, goat, raven, crane, heron, sloth,
        koala, porcupine, stork, anteater, armadillo, wombat, beaver""",
    "little, proud, cheerful, noisy, busy, brown, young, tiny, merry": """
        sparrow, robin, wren, lark, crow, magpie, blackbird, finch, duck, goose=she, hen=she, rooster=he,
        parrot, pigeon, swallow, woodpecker, penguin, turkey, thrush, seagull, duckling=it,
        nightingale=she, canary""",
    "white, young, thin, lonely, stubborn, kind, tired, brave, spotted": """
        wolf, deer, sheep, lamb=it, cow=she, horse, pony, pig, piglet=it, dog, sheepdog, foal=it, calf=it,
        llama, reindeer, antelope, zebra, giraffe, swan, lynx, frog, lizard, leopard""",
    "tiny, brave, busy, cheerful, polite, curious, green, careful": """
        snail, beetle, ant, cricket, grasshopper, spider, bee=she, ladybug=she, caterpillar=it, newt""",
    "small, green, shy, friendly, sleepy, old, kind": "dragon, unicorn, troll=he, goblin=he, elf=he",
    "grand, vain, tall, old, elegant, lonely, polite": """
        peacock=he, flamingo, ostrich, eagle, falcon, pelican""",
}


def _kinds() -> tuple[Entry, ...]:
    nouns = [noun_forms(item) for item in listed(_KINDS)]
    return tuple(Entry(forms, noun_keys(forms)) for forms in nouns)


def _characters() -> tuple[Entry, ...]:
    entries = []
    for adjectives, animals in _CHARACTERS.items():
        for item in listed(animals):
            noun, _, fixed = item.partition("=")
            genders = (fixed,) if fixed else ("he", "she", "it")
            entries += [role(noun, gender, tuple(listed(adjectives))) for gender in genders]
    return tuple(entries)


ANIMALS = _kinds()
ANIMAL_CHARACTERS = _characters()
