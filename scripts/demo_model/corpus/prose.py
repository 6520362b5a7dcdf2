"""Short fluent English: stories, places, letters, diaries, steps, tips, talks and small essays.

Decides the plan of a text and fills its frames, which stand in prose_frames. The people and things of one text are
drawn once, so that names and pronouns agree from the first sentence to the last. Nothing here is held out: no
combination of a story can be asked for.
"""

from scripts.demo_model.corpus import prose_frames as frames
from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.grammar import capitalized, with_article
from scripts.demo_model.corpus.words import (
    ANIMALS,
    CITIES,
    HOBBIES,
    JOBS,
    NOUNS,
    PEOPLE,
    PLACES,
    SMALL_THINGS,
    Noun,
    Person,
)

Slots = dict[str, str]
_PEOPLE_BY_NAME = {person.name: person for person in PEOPLE}
_ANIMALS_BY_WORD = {animal.word: animal for animal in ANIMALS}
_THINGS_BY_WORD = {noun.word: noun for noun in NOUNS}
_CREATURES = tuple(_ANIMALS_BY_WORD[word] for word in frames.CREATURES)
_SMALL_CREATURES = tuple(_ANIMALS_BY_WORD[word] for word in frames.SMALL_CREATURES)
_EDIBLE = ("cake", "egg", "lemon", "onion", "orange", "peach", "pear", "plum", "apple")
_ODD = (
    "nail",
    "oven",
    "pin",
    "needle",
    "leaf",
    "seed",
    "pocket",
    "paper bag",
    "bead",
    "bolt",
    "zip",
    "wooden spoon",
    "frame",
    "cork",
    "brick",
)
_THINGS = tuple(noun for noun in SMALL_THINGS if noun.word not in _EDIBLE + _ODD)
_DULL_PLACES = ("at school", "in the kitchen", "in the attic", "in the street", "in the yard", "at the hospital")
_PLACES = tuple(place for place in PLACES if place not in _DULL_PLACES)


def _thing(draw: Draw, noun: Noun) -> str:
    return f"{draw.pick(frames.PROSE_ADJECTIVES)} {noun.word}"


def _person_slots(draw: Draw, person: Person, thing: str) -> Slots:
    """The slots of one text with this person as its hero and this thing in it."""
    friend = draw.pick(PEOPLE)
    while friend.name == person.name:
        friend = draw.pick(PEOPLE)
    place = draw.pick(_PLACES)
    animal = draw.pick(_SMALL_CREATURES)
    food = draw.pick(frames.DISHES)
    other_thing = _thing(draw, draw.pick(_THINGS))
    while other_thing.rpartition(" ")[2] == thing.rpartition(" ")[2]:
        other_thing = _thing(draw, draw.pick(_THINGS))
    color, color2 = draw.pick(frames.COLORS), draw.pick(frames.COLORS)
    job = draw.pick(JOBS)
    return {
        "n": person.name,
        "N": person.name,
        "he": person.he,
        "He": capitalized(person.he),
        "him": person.him,
        "his": person.his,
        "His": capitalized(person.his),
        "m": friend.name,
        "mhe": friend.he,
        "thing": thing,
        "a_thing": with_article(thing),
        "A_thing": capitalized(with_article(thing)),
        "things": draw.pick(_THINGS).many,
        "thing2": other_thing,
        "a_thing2": with_article(other_thing),
        "at": place,
        "At": capitalized(place),
        "spot": place.split(" ", 1)[1],
        "Time": draw.pick(frames.TIMES),
        "day": draw.pick(frames.DAYS),
        "season": draw.pick(frames.SEASONS),
        "sky": draw.pick(frames.SKIES),
        "storm": draw.pick(frames.STORMS),
        "food": food,
        "Food": capitalized(food),
        "food2": draw.pick(frames.FRUITS),
        "job": job,
        "an_job": with_article(job),
        "hobby": draw.pick(HOBBIES),
        "animal": animal.word,
        "an_animal": animal.one,
        "An_animal": capitalized(animal.one),
        "rel": draw.pick(frames.RELATIVES),
        "city": draw.pick(CITIES),
        "feel": draw.pick(frames.FEELINGS),
        "trait": draw.pick(frames.TRAITS),
        "color": color,
        "color2": color2,
        "size": draw.pick(frames.SIZES),
    }


def _slots(draw: Draw, person: Person | None = None, thing: Noun | None = None) -> Slots:
    return _person_slots(draw, person or draw.pick(PEOPLE), _thing(draw, thing or draw.pick(_THINGS)))


def _creature_slots(draw: Draw, creature: Noun) -> Slots:
    """An animal as the hero: "the little fox", it; another animal for it to meet."""
    slots = _slots(draw)
    hero = f"{draw.pick(frames.CREATURE_TRAITS)} {creature.word}"
    place = draw.pick(frames.WILD_PLACES)
    slots |= {
        "at": place,
        "At": capitalized(place),
        "spot": place.split(" ", 1)[1],
        "n": f"the {hero}",
        "N": f"The {hero}",
        "a_hero": with_article(hero),
        "A_hero": capitalized(with_article(hero)),
        "he": "it",
        "He": "It",
        "him": "it",
        "his": "its",
        "His": "Its",
    }
    while slots["animal"] == creature.word:
        other = draw.pick(_CREATURES)
        slots |= {"animal": other.word, "an_animal": other.one, "An_animal": capitalized(other.one)}
    return slots


def _lines(draw: Draw, arc: frames.Arc, slots: Slots) -> list[str]:
    """One sentence of each stage that is told. A name may open a sentence, so its first letter is made large."""
    return [
        capitalized(draw.pick(stage.frames).format_map(slots))
        for stage in arc
        if stage.chance == 1.0 or draw.random.random() < stage.chance
    ]


def sentence(draw: Draw) -> str:
    """One sentence that stands alone."""
    return capitalized(draw.pick(frames.SENTENCES).format_map(_slots(draw)))


def story(draw: Draw, about: str | None = None) -> str:
    """Three to eight sentences about a first name, an animal or a thing ("Anna", "fox", "kite"), or about anybody."""
    if about is None:
        about = draw.pick(_CREATURES).word if draw.chance(0.35) else draw.pick(PEOPLE).name
    if about in _ANIMALS_BY_WORD:
        slots = _creature_slots(draw, _ANIMALS_BY_WORD[about])
        return " ".join(_lines(draw, draw.pick(frames.ANIMAL_STORIES), slots))
    if about in _THINGS_BY_WORD:
        slots = _slots(draw, thing=_THINGS_BY_WORD[about])
        return " ".join(_lines(draw, draw.pick((frames.LOST_THING, frames.GIFT)), slots))
    slots = _slots(draw, person=_PEOPLE_BY_NAME.get(about))
    return " ".join(_lines(draw, draw.pick(frames.PERSON_STORIES), slots))


def paragraph(draw: Draw) -> str:
    """A description, a diary entry or a small essay, in one paragraph."""
    roll = draw.random.random()
    if roll < 0.4:
        return essay_text(draw, draw.pick(frames.ESSAYS))
    arc = draw.pick((frames.PLACE_ARC, frames.ROOM_ARC, frames.DIARY_ARC))
    return " ".join(_lines(draw, arc, _slots(draw)))


def essay_text(draw: Draw, essay: tuple[str, frames.Frames]) -> str:
    """An opening, two points and a closing on one subject."""
    subject, points = essay
    first, second = draw.sample(points, 2)
    return " ".join(
        (
            draw.pick(frames.ESSAY_OPENINGS).format(s=subject),
            draw.pick(frames.ESSAY_FIRSTS).format(p=first),
            draw.pick(frames.ESSAY_SECONDS).format(p=second),
            draw.pick(frames.ESSAY_CLOSINGS).format(s=subject),
        )
    )


def _plain(family: str, text: str) -> Document:
    return Document(f"prose.{family}", ("", text))


def story_document(draw: Draw) -> Document:
    """A story, with or without a request that names its hero."""
    if draw.chance(0.45):
        return _plain("story", story(draw))
    roll = draw.random.random()
    if roll < 0.4:
        creature = draw.pick(_CREATURES)
        about, subject = creature.word, creature.one
    elif roll < 0.8:
        about = subject = draw.pick(PEOPLE).name
    else:
        thing = draw.pick(_THINGS)
        about, subject = thing.word, thing.one
    request = draw.pick(frames.STORY_REQUESTS).format(s=subject)
    return Document("prose.story", (f"{request}\n", story(draw, about)))


def sentences(draw: Draw) -> Document:
    """One to four sentences with nothing in common, a line each."""
    return _plain("sentences", "\n".join(sentence(draw) for _ in range(draw.pick((1, 1, 2, 3, 4)))))


def description(draw: Draw) -> Document:
    arc = draw.pick((frames.PLACE_ARC, frames.ROOM_ARC))
    slots = _slots(draw)
    text = " ".join(_lines(draw, arc, slots))
    if arc is frames.PLACE_ARC and draw.chance(0.4):
        return Document(
            "prose.place", (draw.pick(("Describe {city}.\n", "Tell me about {city}.\n")).format_map(slots), text)
        )
    return _plain("place", text)


def letter(draw: Draw) -> Document:
    slots = _slots(draw)
    body = " ".join(_lines(draw, frames.LETTER_ARC, slots))
    greeting = draw.pick(frames.GREETINGS).format_map(slots)
    text = f"{greeting}\n\n{body}\n\n{draw.pick(frames.CLOSINGS)}\n{slots['n']}"
    if draw.chance(0.4):
        request = draw.pick(("Write a letter from {n} to {m}.\n", "Write a short letter to {m} from {n}.\n"))
        return Document("prose.letter", (request.format_map(slots), text))
    return _plain("letter", text)


def diary(draw: Draw) -> Document:
    slots = _slots(draw)
    heading = draw.pick(("", "", f"{slots['day']}\n", "Dear diary,\n"))
    return _plain("diary", heading + " ".join(_lines(draw, frames.DIARY_ARC, slots)))


def talk(draw: Draw) -> Document:
    """Two people by turns, each line under its speaker's name or in quotation marks."""
    slots = _slots(draw)
    lines = "|".join(_lines(draw, frames.TALK_ARC, slots)).split("|")
    speakers = (slots["n"], slots["m"])
    if draw.chance(0.75):
        text = "\n".join(f"{speakers[index % 2]}: {line}" for index, line in enumerate(lines))
        return _plain("talk", text)
    return _plain("talk", "\n".join(f'"{line}"' for line in lines))


def how_to(draw: Draw) -> Document:
    """Steps in their order: numbered, or told with "first" and "then"."""
    task, steps = draw.pick(frames.HOW_TO)
    asked = draw.pick(("How do I {}?\n", "How to {}:\n", "Explain how to {}.\n", "Tell me how to {}.\n"))
    request = asked.format(task.replace("your", "my") if asked.startswith("How do I") else task)
    if draw.chance(0.5):
        text = "\n".join(f"{index}. {capitalized(step)}." for index, step in enumerate(steps, 1))
    else:
        openers = (
            "First,",
            draw.pick(("Then", "Next,")),
            draw.pick(("After that,", "Then")),
            "Next,",
            draw.pick(("Finally,", "In the end,")),
        )
        text = " ".join(f"{opener} {step}." for opener, step in zip(openers, steps))
    return Document("prose.how_to", (request, text))


def tips(draw: Draw) -> Document:
    """Three to five numbered tips on one subject."""
    subject, pool = draw.pick(frames.TIPS)
    count = draw.number(3, 5)
    chosen = draw.sample(pool, count)
    word = ("three", "four", "five")[count - 3]
    request = draw.pick(("Give me {w} tips for {s}.\n", "{W} tips for {s}:\n", "Write {w} tips for {s}.\n"))
    text = "\n".join(f"{index}. {tip}" for index, tip in enumerate(chosen, 1))
    return Document("prose.tips", (request.format(w=word, W=capitalized(word), s=subject), text))


def essay(draw: Draw) -> Document:
    chosen = draw.pick(frames.ESSAYS)
    text = essay_text(draw, chosen)
    if draw.chance(0.5):
        request = draw.pick(
            ("Write a short text about {}.\n", "What do you think about {}?\n", "Write a few lines about {}.\n")
        )
        return Document("prose.essay", (request.format(chosen[0]), text))
    return _plain("essay", text)


FAMILIES = (
    (5.0, story_document),
    (2.0, sentences),
    (1.5, description),
    (1.0, letter),
    (1.0, diary),
    (1.5, talk),
    (1.0, how_to),
    (0.7, tips),
    (1.0, essay),
)
