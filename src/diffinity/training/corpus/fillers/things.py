"""Things that one can carry, lose, lend and give, grouped under the adjectives that suit them."""

from dataclasses import replace

from diffinity.training.corpus.fillers.entry import Entry, listed, noun_forms, noun_keys

_GROUPS = {
    "red, blue, green, striped, old, new, rubber, colorful": "ball, balloon, beach ball, toy boat, yo-yo",
    "red, yellow, paper, big, torn, new, colorful, broken": "kite, fan, pinwheel, parasol, paper lantern",
    "rusty, old, small, heavy, brass, iron, strange, shiny": """
        key, padlock, bell, horseshoe, chain, lock, door handle""",
    "old, little, brass, broken, heavy, fine, dusty, strange": """
        lamp, lantern, candlestick, clock, alarm clock, compass, telescope, music box, spyglass,
        barometer, magnifying glass, pocket watch, microscope""",
    "old, little, cracked, dusty, plain, pretty": """
        snow globe, hourglass, thermometer, mirror, hand mirror, magnet, tea tin, music stand, doorknob,
        globe""",
    "torn, old, folded, yellow, strange, faded, small": """
        map, letter, postcard, note, photograph, ticket, newspaper, envelope, poster, drawing, recipe,
        receipt, bookmark, birthday card, sheet of music/sheets of music, treasure map, train ticket,
        invitation, newspaper clipping, calendar, painting, road map, shopping list, sketch""",
    "thick, thin, old, dusty, heavy, little, red, blue, interesting": """
        book, notebook, diary, cookbook, dictionary, songbook, atlas, photo album, storybook, sketchbook,
        guidebook, library book, school book, telephone book""",
    "red, blue, warm, woolen, old, new, soft, striped, gray, thick": """
        hat, scarf/scarves, cap, glove, mitten, sock, sweater, jacket, coat, shawl, blanket, vest,
        cardigan, poncho, winter coat, nightcap""",
    "silk, green, white, yellow, old, clean, pretty": """
        ribbon, handkerchief, dress, shirt, skirt, sash, headband, bow tie, necktie, nightgown, robe""",
    "checkered, cotton, white, green, old, clean, striped": """
        apron, towel, napkin, tablecloth, pillow, cushion, bandana, flag, quilt, bathrobe, sheet""",
    "leather, worn, old, brown, new, black, heavy, fine": """
        boot, shoe, belt, bag, suitcase, purse, wallet, handbag, satchel, backpack, slipper, sandal,
        school bag, briefcase, dog leash, travel bag""",
    "gold, silver, old, plain, pretty, precious, tiny": """
        ring, necklace, bracelet, brooch, medal, crown, locket, earring, coin, whistle, thimble, hairpin,
        cup, goblet, trophy, button, pin, buckle, tiara, charm""",
    "china, white, blue, chipped, pretty, old, painted, clean": """
        cup, teacup, teapot, bowl, plate, saucer, vase, mug, jug, sugar bowl, egg cup, pitcher, salt
        shaker, piggy bank, soup bowl, butter dish""",
    "sharp, small, old, new, rusty, good": """
        saw, axe, chisel, spade, hoe, pocketknife/pocketknives, sickle, pickaxe, shovel""",
    "small, old, heavy, new, rusty, good": """
        hammer, screwdriver, wrench, rake, drill, trowel, crowbar, toolbox, tape measure, pump""",
    "big, small, iron, copper, old, clean, dented, heavy, new": """
        pot, kettle, pan, frying pan, coffee pot, ladle, bucket""",
    "big, small, old, clean, dented, new, tin, shiny": """
        spoon, fork, tray, watering can, funnel, sieve, cake tin, cookie jar, lunch box, cheese grater,
        oil can, soup spoon, whisk, can opener, birdcage""",
    "wooden, painted, carved, plain, old, small, strong": """
        spoon, flute, stool, comb, mask, puppet, spinning top, picture frame, toy horse, chessboard,
        walking stick, cane, paddle, toy soldier, toy train, model ship, rolling pin, fishing rod, tennis
        racket, coat hanger, back scratcher""",
    "wooden, painted, carved, plain, old, small, empty": """
        box, bowl, jewelry box, hatbox, sewing box, cigar box, tin box""",
    "small, old, wicker, empty, round, light": """
        basket, picnic basket, bread basket, fruit basket, sewing basket""",
    "small, heavy, light, mysterious, brown, big": """
        parcel, package, sack, paper bag, gift box, bundle, envelope""",
    "small, empty, dusty, green, old, round": """
        jar, bottle, flask, medicine bottle, water bottle, ink bottle, perfume bottle, honey jar,
        flowerpot, jar of buttons/jars of buttons""",
    "big, small, black, red, old, colorful, broken, new": """
        umbrella, raincoat, rain hat, tent, sun hat, straw hat""",
    "old, small, fine, battered, new, broken": """
        drum, trumpet, violin, guitar, harmonica, flute, tambourine, banjo, accordion, fiddle, bugle,
        horn, gong, ukulele, clarinet, mandolin, saxophone, recorder, xylophone""",
    "little, soft, old, one-eyed, worn, dusty, handmade": """
        teddy bear, doll, toy rabbit, toy elephant, toy dog, rag doll, toy monkey, toy lion, toy owl, toy
        mouse/toy mice""",
    "smooth, round, flat, white, pretty, tiny, strange, shiny": """
        stone, pebble, shell, pearl, marble, crystal, seashell, bead, glass bead, button""",
    "long, white, pretty, tiny, perfect, brown, strange": """
        feather, acorn, pinecone, fossil, walnut shell, four-leaf clover""",
    "red, new, short, thick, broken, cheap, good": """
        pencil, pen, crayon, paintbrush, piece of chalk/pieces of chalk, brush""",
    "new, small, cheap, good, old, red": """
        eraser, ruler, pencil case, paint box, stamp, calculator, stapler, hairbrush, toothbrush, jigsaw
        puzzle, deck of cards/decks of cards, board game, jump rope""",
    "small, new, old, broken, cheap, expensive, black": """
        radio, camera, flashlight, telephone, tablet, keyboard, battery, light bulb, remote control,
        microphone, typewriter, toaster, hair dryer, laptop, phone charger, record player""",
    "long, thick, strong, old, short, thin, new": """
        rope, piece of string/pieces of string, broom, mop, stick, pole, clothesline, measuring stick,
        fishing line""",
    "pretty, small, fresh, dried, wild, wilted": """
        rose, sunflower, wreath, tulip, bunch of flowers/bunches of flowers, bouquet, daisy, flower crown""",
    "white, fat, thin, tall, half-burned, scented": "candle, birthday candle",
    "small, new, cheap": """
        bar of soap/bars of soap, box of matches/boxes of matches, ball of wool/balls of wool, first aid
        kit, roll of tape/rolls of tape, matchbox, pillowcase, spool of thread/spools of thread""",
}


def _things() -> tuple[Entry, ...]:
    found: dict[str, Entry] = {}
    for adjectives, things in _GROUPS.items():
        for item in listed(things):
            forms = noun_forms(item)
            suited = tuple(word for word in listed(adjectives) if word not in forms[""].split())
            entry = found.get(forms[""], Entry(forms, noun_keys(forms), described="a"))
            found[forms[""]] = replace(entry, adjectives=entry.adjectives + suited)
    return tuple(found.values())


THINGS = _things()
