"""People: first names with their gender, and roles that a character or a job can have."""

from diffinity.training.corpus.fillers.entry import (
    Entry,
    listed,
    noun_forms,
    noun_keys,
    pronouns,
    with_article,
)

_NAMES_SHE = """
Anna, Emma, Clara, Nora, Lucy, Mia, Ella, Alice, Sarah, Julia, Laura, Maria, Sophie, Hannah, Leah, Ruth,
Eva, Ida, Martha, Helen, Irene, Agnes, Edith, Esther, Judith, Miriam, Rachel, Rebecca, Naomi, Susan,
Karen, Linda, Nancy, Betty, Dorothy, Margaret, Elizabeth, Catherine, Charlotte, Caroline, Emily, Olivia,
Amelia, Isabel, Eleanor, Matilda, Beatrice, Harriet, Louise, Josephine, Victoria, Diana, Audrey, Sylvia,
Vera, Tessa, Wendy, Molly, Polly, Sally, Kitty, Maggie, Annie, Jenny, Penny, Katie, Ellie, Millie, Tilly,
Zoe, Chloe, Phoebe, Daphne, Iris, Flora, Greta, Heidi, Ingrid, Astrid, Freya, Signe, Elsa, Hilda, Frieda,
Marta, Petra, Tanya, Olga, Nina, Katya, Sonia, Natasha, Irina, Milena, Zora, Danica, Ivana, Bianca,
Chiara, Giulia, Lucia, Paola, Carla, Carmen, Elena, Ines, Rosa, Teresa, Pilar, Lola, Juana, Camila,
Valeria, Yolanda, Amina, Fatima, Layla, Leila, Samira, Yasmin, Nadia, Noor, Zahra, Aisha, Farah, Salma,
Priya, Anjali, Meera, Kavita, Lakshmi, Indira, Sita, Asha, Mei, Ling, Hana, Yuki, Keiko, Akiko, Naoko,
Sakura, Amara, Adaeze, Ngozi, Zuri, Makena, Abena, Thandi, Imani, Nala, Bridget, Fiona, Maeve, Siobhan,
Moira, Rhona, Gwen, Megan, Bronwyn, Celine, Colette, Margot, Simone, Yvette, Odette
"""
_NAMES_HE = """
Ben, Tom, Sam, Max, Leo, Paul, Peter, Jacob, Oscar, Henry, George, Arthur, Edward, Albert, Alfred, Walter,
Harold, Ralph, Edgar, Edwin, Ernest, Felix, Hugo, Simon, Martin, Philip, Thomas, James, John, Joseph,
David, Daniel, Samuel, Benjamin, Nathan, Aaron, Adam, Noah, Isaac, Caleb, Joshua, Jonah, Elijah, Gabriel,
Michael, Raphael, Andrew, Matthew, Luke, Stephen, Anthony, Vincent, Victor, Patrick, Brian, Kevin, Sean,
Liam, Finn, Declan, Owen, Rhys, Dylan, Evan, Ian, Callum, Duncan, Malcolm, Angus, Stuart, Robert, William,
Richard, Charlie, Harry, Freddie, Teddy, Toby, Billy, Jimmy, Danny, Tommy, Robin, Oliver, Theo, Lucas,
Ethan, Jason, Eric, Karl, Otto, Fritz, Hans, Klaus, Jonas, Anton, Emil, Lars, Sven, Olaf, Nils, Bjorn,
Gustav, Henrik, Mikkel, Pavel, Ivan, Boris, Dmitri, Sergei, Yuri, Oleg, Igor, Milan, Marek, Janek, Tomas,
Andrei, Stefan, Luca, Marco, Paolo, Matteo, Lorenzo, Giovanni, Enzo, Pablo, Diego, Carlos, Miguel, Luis,
Mateo, Javier, Rafael, Andres, Pedro, Tiago, Ahmed, Omar, Hassan, Ali, Karim, Yusuf, Ibrahim, Tariq,
Samir, Khalid, Jamal, Malik, Rashid, Arjun, Rohan, Vikram, Sanjay, Anil, Kiran, Ravi, Amit, Suresh, Wei,
Chen, Jun, Kenji, Hiro, Takeshi, Haruto, Daichi, Kwame, Kofi, Chidi, Emeka, Jabari, Tendai, Sipho, Kamau,
Pierre, Louis, Antoine, Marcel, Gaston, Rene, Olivier, Etienne, Bastien
"""

# Work that either a man or a woman may do: nothing here fixes the gender.
_JOBS = """
baker, teacher, doctor, farmer, nurse, carpenter, plumber, painter, singer, dancer, writer, poet, pilot,
sailor, soldier, tailor, cook, chef, waiter, barber, butcher, grocer, gardener, florist, librarian,
dentist, lawyer, judge, mayor, clerk, cashier, banker, engineer, architect, builder, electrician,
mechanic, welder, blacksmith, goldsmith, locksmith, potter, weaver, shoemaker, hatmaker, watchmaker,
clockmaker, candlemaker, toymaker, bookbinder, printer, editor, reporter, photographer, actor, musician,
pianist, violinist, drummer, fiddler, trumpeter, composer, conductor, sculptor, magician, juggler,
acrobat, astronomer, scientist, chemist, geologist, biologist, historian, professor, student, tutor,
coach, referee, swimmer, cyclist, runner, driver, bus driver, taxi driver, truck driver, train driver,
captain, firefighter, police officer, detective, guard, lifeguard, ranger, forester, hunter, beekeeper,
shepherd, miller, cheesemaker, winemaker, brewer, fruit seller, fish seller, bookseller, shopkeeper,
innkeeper, lighthouse keeper, zookeeper, stable keeper, veterinarian, pharmacist, surgeon,
midwife/midwives, optician, translator, interpreter, secretary, accountant, treasurer, inspector,
surveyor, mapmaker, explorer, diver, inventor, programmer, designer, jeweler, glassblower, stonecutter,
bricklayer, roofer, chimney sweep, window cleaner, street sweeper, mail carrier, messenger, porter, ferry
pilot, tour guide, museum guide, storyteller, puppeteer, playwright, cartoonist, basket weaver, rope
maker, sail maker, boat builder, bridge builder, piano tuner, organist, bell ringer, night guard, social
worker, farm worker, dairy farmer, rice farmer, gravedigger, knife grinder, tax collector, weather
reporter, costume designer
"""
_VILLAGE_ROLES = """
baker, teacher, doctor, farmer, nurse, carpenter, painter, singer, dancer, poet, sailor, soldier, tailor,
cook, barber, butcher, gardener, librarian, judge, mayor, blacksmith, goldsmith, potter, weaver,
shoemaker, watchmaker, clockmaker, candlemaker, toymaker, musician, fiddler, drummer, magician, juggler,
acrobat, student, captain, guard, forester, hunter, beekeeper, shepherd, miller, shopkeeper, innkeeper,
lighthouse keeper, ferry pilot, bookseller, explorer, inventor, chimney sweep, messenger, storyteller,
puppeteer, bell ringer, basket weaver, boat builder, traveler, neighbor, stranger, pirate, pilgrim,
hermit, astronomer, mapmaker, orphan, giant, dwarf, ghost, child, pupil, pastry cook, tinker, peddler,
scholar, scribe, kite maker, bird catcher
"""
_ROLES_HE = """
fisherman, king, prince, knight, wizard, monk, boy, man, grandfather, gentleman, miller's son, farmer's
son, postman, milkman, woodcutter, ferryman, nobleman, shepherd boy, stable boy
"""
_ROLES_SHE = """
queen, princess, witch, nun, girl, woman, grandmother, lady, miller's daughter, farmer's daughter,
milkmaid, goose girl, duchess, empress, fairy, seamstress, shepherd girl, fisherman's wife, landlady
"""
_ROLE_ADJECTIVES = tuple(
    listed("""
old, young, kind, poor, tired, cheerful, clever, tall, shy, quiet, lonely, friendly, busy, honest, hungry,
gentle, brave, curious, wise, proud, merry, polite, patient, stubborn, sleepy, sad, famous, lucky,
thoughtful
""")
)


def _names() -> tuple[Entry, ...]:
    entries = []
    for gender, text in (("she", _NAMES_SHE), ("he", _NAMES_HE)):
        for name in listed(text):
            forms = {"": name, "the": name, "intro": name, **pronouns(gender)}
            entries.append(Entry(forms, frozenset({name.lower()})))
    return tuple(entries)


def _jobs() -> tuple[Entry, ...]:
    nouns = [noun_forms(item) for item in listed(_JOBS)]
    return tuple(Entry(forms, noun_keys(forms)) for forms in nouns)


def role(noun: str, gender: str, adjectives: tuple[str, ...]) -> Entry:
    """A character known by a noun: "the fox" later on, "a little fox" at first mention.

    >>> role("fox", "she", ()).forms["intro"]
    'a fox'
    """
    name = f"the {noun}"
    forms = {"": name, "the": name, "noun": noun, "intro": with_article(noun), **pronouns(gender)}
    return Entry(forms, frozenset({noun, noun.split()[-1]}), described="intro", adjectives=adjectives)


def _roles() -> tuple[Entry, ...]:
    pairs = [(noun, gender) for noun in listed(_VILLAGE_ROLES) for gender in ("he", "she")]
    pairs += [(noun, "he") for noun in listed(_ROLES_HE)] + [(noun, "she") for noun in listed(_ROLES_SHE)]
    return tuple(role(noun, gender, _ROLE_ADJECTIVES) for noun, gender in pairs)


NAMES = _names()
JOBS = _jobs()
ROLES = _roles()
