"""Whole sentences about the weather, in the past tense, grouped by what would contradict them."""

import re

from diffinity.training.corpus.fillers.entry import Entry, listed

_WARM = "june july august summer hot sunny sunshine warm"
_COLD = "december january february winter snow ice frost icy snowy frozen cold snowman"
_DARK = "night midnight dusk evening stars moon dark bedtime"
_WET = "rain rained raining rainy stormy foggy fog storm wet"
_DRY = "sunny dry sunshine stars moonlight foggy"

_SENTENCES = {
    _DRY: """
        It was raining. It was raining hard. It rained all day. It had rained since breakfast. A light
        rain was falling. A cold rain was falling. The rain had just stopped. It had rained for three
        days. Rain ran down the windows. The rain would not stop. It was a wet and gray day. The streets
        were wet. There were puddles everywhere. Heavy drops fell from the sky. It was only drizzling. The
        rain drummed on the roof. Soft rain fell on the gardens. Everything was wet and shiny. There was a
        long, steady rain. It looked like rain. The paths were full of mud. Water dripped from every leaf.
        The rain came and went. A short shower had washed the dust away.""",
    f"{_DRY} calm": """
        A storm was coming. Thunder rolled over the hills. There was thunder far away. Dark clouds hung
        low in the sky. Lightning flashed over the rooftops. The storm had passed. A storm was blowing
        from the sea. The sky was as black as ink. Everyone said that a storm was near. Hail rattled
        against the windows.""",
    f"{_WARM} rain rained raining rainy flowers bees grass": """
        It was snowing. It had snowed all night. Snow lay on the roofs. The snow was deep. Soft flakes
        were falling. The first snow had come. Everything was white. The snow creaked under every step.
        The trees were white with frost. There was ice on the puddles. The pond was frozen. Long icicles
        hung from the roof. It was bitterly cold. The air was cold and clear. It was freezing. Everyone
        wore gloves and a thick coat. The ground was hard with frost. An icy wind blew through the
        streets. The windows were white with frost.""",
    f"{_DARK} {_WET} {_COLD}": """
        The sun was warm. The sun was shining. It was a hot day. The sun burned down on the fields. It was
        warm and dry. It was a fine, sunny day. There was not a cloud in the sky. The sky was blue from
        end to end. It was very hot. The heat made everyone slow. It was too hot to run. The sun stood
        high in the sky. The air was warm and still. Butterflies danced in the warm air. The air smelled
        of hay and flowers. The stones were warm in the sun. It had not rained for weeks. Even the shade
        was warm. Not a leaf moved in the heat. The whole day was golden. It was the hottest day of the
        year. The sun had dried the grass. Bright light lay on everything.""",
    f"{_DARK} {_WET}": """
        It was a beautiful day. It was a mild day. It was a cool day. The sun came out at last. The
        weather was fine. White clouds sailed across the sky. It was neither warm nor cold. The sky was
        clear. It was a lovely day. The clouds were soft and white. A rainbow stood over the hills. The
        sun and the clouds took turns. The sun peeped out from behind a cloud. It was a bright, fresh day.""",
    "calm still": """
        It was windy. A strong wind was blowing. The wind howled. The wind blew from the north. The wind
        was cool. A soft wind moved the leaves. A gentle breeze was blowing. The wind shook the branches.
        A warm wind came from the south. The wind had changed. The wind played with the leaves. It was a
        windy day. The wind pulled at every hat and coat. The wind smelled of the sea. Leaves flew through
        the air. The trees bent in the wind. Doors and windows rattled in the wind.""",
    "sunny sunshine stars moon sun": """
        It was foggy. Thick fog lay over the fields. A thin mist hung over the water. The fog was as thick
        as milk. It was cloudy. The sky was gray. Gray clouds covered the sky. The day was dull and gray.
        It was a gray day. The air was damp and cool. The mist made everything look strange. The hills
        were hidden in the clouds. No one could see far in the fog. The air was heavy and still. Low
        clouds hid the tops of the trees.""",
}
_TOPICS = """
rain, rained, raining, rainy, wind, windy, fog, foggy, storm, snow, snowing, snowed, frost, ice, icicles,
sun, sunny, thunder, lightning, hail, rainbow, clouds, cloud, cloudy, mist, puddles, mud, heat, hot, cold,
freezing, frozen
"""


def _weather() -> tuple[Entry, ...]:
    known = frozenset(listed(_TOPICS))
    entries = []
    for contradicted, text in _SENTENCES.items():
        for sentence in re.findall(r"[A-Z][^.]*\.", " ".join(text.split())):
            topics = frozenset(re.findall(r"\w+", sentence.lower())) & known
            entries.append(Entry({"": sentence}, topics, frozenset(contradicted.split())))
    return tuple(entries)


WEATHER = _weather()
