"""Chats whose later turns need the earlier ones: personas, texts to ask about, "And its currency?", "Say that again".

Decides what a follow-up leaves out. The first turns come from `talk.py`, `facts.py` and `telling.py`.
"""

import json

from scripts.demo_model.corpus import facts, talk
from scripts.demo_model.corpus.chat_turns import Chat, opened
from scripts.demo_model.corpus.draw import Document, Draw, combination_key
from scripts.demo_model.corpus.grammar import capitalized, with_article
from scripts.demo_model.corpus.lists import list_task
from scripts.demo_model.corpus.passage_words import PERSON
from scripts.demo_model.corpus.people import Record, person
from scripts.demo_model.corpus.relations import RELATIONS
from scripts.demo_model.corpus.telling import about, answer_text, question_text

_PERSONA_TURNS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "name",
        (
            "Who are you?",
            "What is your name?",
            "What are you called?",
            "Tell me your name.",
            "Hello! What is your name?",
        ),
        ("My name is {name}.", "I am {name}."),
    ),
    (
        "job",
        (
            "What is your job?",
            "What do you do?",
            "What do you work as?",
            "What do you do for a living?",
            "What is your work?",
        ),
        ("I am {job}.", "I work as {job}."),
    ),
    (
        "city",
        ("Where do you live?", "Which city do you live in?", "Where is your home?", "Where are you at home?"),
        ("I live in {city}.", "My home is in {city}."),
    ),
    ("age", ("How old are you?", "What is your age?", "Tell me your age."), ("I am {age} years old.",)),
)


def persona_chat(draw: Draw) -> Document:
    """The system turn says who the assistant is; the user asks for it."""
    one = person(draw)
    value = {name: one.values[name].text for name in ("job", "city", "age")}
    value["name"] = one.short
    value["job"] = with_article(value["job"])
    chat = Chat()
    chat.system(
        draw.pick(
            (
                "You are {name}, {job}. You live in {city}. You are {age} years old.",
                "You are {name}, {job} from {city}. Your age is {age}.",
                "Play the part of {name}, {job} who lives in {city} and is {age} years old.",
                "Your name is {name}. You are {job} in {city}. You are {age}.",
                "Speak as {name}. {name} is {age} years old, lives in {city} and works as {job}.",
                "Act as {job}. Your name is {name}, you are {age} years old and your home is {city}.",
            )
        ).format(**value)
    )
    for _, said, replies in draw.sample(_PERSONA_TURNS, draw.number(1, 3)):
        chat.user(draw.pick(said))
        chat.reply(draw.pick(replies).format(**value))
    if draw.chance(0.3):
        chat.exchange(talk.question(draw))
    chat.add_keys(*one.keys)
    return chat.document("chat.persona")


_TOLD = ("age", "city", "job", "company", "pet", "pet_name", "colour", "food", "instrument", "language")
_TEXT_HEADS = (
    "Use this text to answer: ",
    "Here is what you know: ",
    "Context: ",
    "Answer from this text: ",
    "Notes:\n",
)


def text_chat(draw: Draw) -> Document:
    """A text about a person in the first turn, several questions about it that name the person by a pronoun."""
    one = person(draw)
    told = draw.sample(_TOLD, 3)
    text = about(draw, one, list(told))
    chat = Chat()
    if draw.chance(0.5):
        chat.system(draw.pick(_TEXT_HEADS) + text)
    else:
        chat.user(text + draw.pick((" I will ask you about it.", "", " Please read this.", " Remember this text.")))
        chat.reply(draw.pick(("All right. What would you like to know?", "I have read it.", "Good. Please ask.")))
    asked = draw.sample(told, draw.number(1, 3))
    for index, attribute in enumerate(asked):
        chat.user(_pronoun_question(draw, one, attribute) if index else question_text(draw, one, attribute))
        chat.reply(answer_text(one, attribute))
    chat.add_keys(*one.keys)
    return chat.document("chat.text")


def _with_pronouns(question: str) -> str | None:
    """The question with {o} for the owner and {s} for the subject, if the name is only used in these ways."""
    changed = question.replace("{n}'s", "{o}")
    for verb in ("does", "was", "is", "can", "did"):
        changed = changed.replace(f" {verb} {{n}}", f" {verb} {{s}}")
    return None if "{n}" in changed else changed


_PRONOUN_QUESTIONS = {
    attribute: tuple(asked for question in PERSON[attribute].questions if (asked := _with_pronouns(question)))
    for attribute in _TOLD
}


def _pronoun_question(draw: Draw, one: Record, attribute: str) -> str:
    she = one.pronoun == "She"
    asked = draw.pick(_PRONOUN_QUESTIONS[attribute]).format(s="she" if she else "he", o="her" if she else "his")
    return f"And {asked[0].lower()}{asked[1:]}" if draw.chance(0.5) else asked


# --- references -----------------------------------------------------------------------------------------------------

_COUNTRY_FOLLOWS: dict[str, tuple[str, ...]] = {
    "capital": (
        "And its capital?",
        "What about its capital?",
        "And the capital?",
        "What is its capital?",
        "And what is its capital?",
    ),
    "currency": (
        "And its currency?",
        "What about its currency?",
        "And the currency?",
        "What is its currency?",
        "And what do people pay with there?",
    ),
    "language": (
        "And its official language?",
        "What about its official language?",
        "And the official language?",
        "What is its official language?",
        "And which language is official there?",
    ),
    "continent": (
        "And its continent?",
        "On which continent is it?",
        "What about its continent?",
        "And where in the world is it?",
        "Which continent is it on?",
    ),
}
_SAME_FOLLOWS = ("And {}?", "What about {}?", "And what about {}?", "And for {}?", "Now {}?", "How about {}?")
_SAME_RELATIONS = (
    "capital",
    "currency",
    "language",
    "continent",
    "symbol",
    "atomic number",
    "animal class",
    "opposite",
    "young",
)


def country_chat(draw: Draw) -> Document:
    """A question about a country, then its other facts, each asked with "its"; held out, one of them."""
    num_turns = 2 if draw.held_out else draw.number(2, 3)
    while True:  # the relations are drawn again too: three of them may share no held-out country
        names = draw.sample(tuple(_COUNTRY_FOLLOWS), 3)
        relations = [RELATIONS[name] for name in names]
        (_, item), key = draw.combine("follow", (names[1],), relations[0].items)
        last_key = combination_key("follow", names[2], item)
        if all(item in relation.facts for relation in relations) and (draw.held_out or draw.allows(last_key)):
            break
    chat = opened(draw)
    for index, relation in enumerate(relations[:num_turns]):
        one = facts.ask_about(draw, relation, item)
        chat.exchange(
            talk.Exchange(draw.pick(_COUNTRY_FOLLOWS[names[index]]) if index else one.question, one.sentence, one.keys)
        )
    chat.add_keys(key, *(() if num_turns == 2 else (last_key,)))
    return chat.document("chat.reference")


def same_question_chat(draw: Draw) -> Document:
    """The same question about another thing: "And Spain?"."""
    relation = RELATIONS[draw.pick(_SAME_RELATIONS)]
    chat = opened(draw)
    (_, first), key = draw.combine("same", (relation.name,), relation.items)
    (_, second), second_key = draw.combine("same", (relation.name,), relation.items)
    one = facts.ask_about(draw, relation, first)
    chat.exchange(talk.Exchange(one.question, one.sentence, (*one.keys, key)))
    if second != first:
        other = facts.ask_about(draw, relation, second)
        chat.exchange(
            talk.Exchange(
                draw.pick(_SAME_FOLLOWS).format(relation.facts[second].fields["x"]),
                other.sentence,
                (*other.keys, second_key),
            )
        )
    return chat.document("chat.reference")


_POSITIONS = (("first", 0), ("second", 1), ("last", -1))


def earlier_chat(draw: Draw) -> Document:
    """The user points back at the last reply: again, in capitals, the first of the list."""
    chat = opened(draw)
    if draw.chance(0.5):
        task = list_task(draw)
        chat.exchange(talk.Exchange(task.prompt, task.answer))
        items = [
            line.strip('-0123456789. "[]')
            for line in task.answer.replace(", ", "\n").replace(" and ", "\n").split("\n")
        ]
        word, index = draw.pick(_POSITIONS)
        asked = draw.pick(
            ("Which one was {}?", "Which one came {}?", "What was the {} one?", "Tell me the {} one again.")
        )
        chat.exchange(talk.Exchange(asked.format(word), capitalized(items[index]) + "."))
        return chat.document("chat.reference")
    one = talk.question(draw)
    chat.exchange(one)
    kinds = (
        (
            (
                "Say that again.",
                "Can you repeat that?",
                "Please repeat your answer.",
                "What did you say?",
                "Once more, please.",
            ),
            one.reply,
        ),
        (("Say that in capitals.", "Now in capital letters.", "Write that in upper case."), one.reply.upper()),
        (
            ("What did I ask you?", "What was my question?", "Repeat my question.", "What did I just ask?"),
            f'You asked: "{one.user}"',
        ),
        (
            ("Put that in JSON with the key answer.", "Now as JSON with the key answer."),
            json.dumps({"answer": one.reply}),
        ),
    )
    asks, reply = draw.pick(kinds)
    chat.exchange(talk.Exchange(draw.pick(asks), reply))
    return chat.document("chat.reference")
