"""Adjectives for people: how one feels, and what one is like."""

from diffinity.training.corpus.fillers.entry import listed, plain_entries

# All of these also follow "so", "very" and "a little".
_FEELINGS = """
happy, sad, tired, proud, afraid, angry, lonely, nervous, calm, glad, sorry, bored, excited, surprised,
worried, ashamed, grateful, hopeful, jealous, curious, confused, cheerful, upset, brave, shy, restless,
relieved, pleased, disappointed, scared, frightened, homesick, embarrassed, guilty, miserable, joyful,
peaceful, content, annoyed, impatient, anxious, puzzled, amused, gloomy, grumpy, thankful, weary,
exhausted, uneasy, comfortable, uncomfortable, confident, discouraged, determined, delighted, thrilled,
astonished, shocked, furious, cross, hurt, helpless, foolish, silly, safe, unhappy, merry, satisfied,
tense, relaxed, lively, playful, suspicious, envious, heartbroken, overjoyed, fearful, tearful, alarmed,
inspired, fascinated, bitter, nostalgic, giddy
"""
_CHARACTER = """
kind, clever, brave, quiet, honest, patient, polite, friendly, gentle, generous, loyal, modest, careful,
careless, cheerful, curious, lazy, stubborn, shy, proud, wise, funny, serious, strict, fair, helpful,
thoughtful, thoughtless, greedy, selfish, rude, noisy, nosy, moody, grumpy, cautious, bold, daring,
fearless, timid, calm, gloomy, jolly, merry, lively, playful, sensible, silly, foolish, witty, smart,
bright, talented, gifted, skillful, hardworking, busy, tidy, messy, neat, elegant, charming, graceful,
clumsy, forgetful, absent-minded, dreamy, imaginative, creative, inventive, practical, reliable, faithful,
trustworthy, truthful, sincere, frank, humble, vain, boastful, bossy, cunning, sly, tricky, mischievous,
naughty, obedient, good-natured, warm-hearted, tender, caring, loving, unselfish, forgiving, tolerant,
easygoing, independent, ambitious, determined, eager, energetic, enthusiastic, impatient, nervous,
restless, suspicious, talkative, silent, mysterious, strange, odd, unusual, ordinary, stern, grateful,
optimistic, cheeky, adventurous, observant, precise, punctual
"""

FEELINGS = plain_entries(listed(_FEELINGS))
CHARACTER = plain_entries(listed(_CHARACTER))
