"""Facts that somebody tells in a chat and asks for later: how each is told, asked and answered.

A kind of fact with its value is the combination (kind "recall"). `stated` says the fact to the one who told it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from scripts.demo_model.corpus.draw import Draw
from scripts.demo_model.corpus.grammar import with_article
from scripts.demo_model.corpus.people import (
    CITIES,
    COLOURS,
    DATES,
    DAYS,
    DRINKS,
    FAMILY_NAMES,
    FIRST_NAMES,
    FOODS,
    HOBBIES,
    ITEMS,
    JOBS,
    LANGUAGES,
    MATERIALS,
    MONTHS,
    PET_NAMES,
    PETS,
    TIMES,
    words,
)


class Kind(NamedTuple):
    """One kind of fact: {v} is the value, with its article where the pool holds one."""

    name: str
    pool: Sequence[str]
    told: tuple[str, ...]
    asked: tuple[str, ...]
    stated: tuple[str, ...]


class Fact(NamedTuple):
    """A fact with its value filled in; `asked` keeps the question that fits."""

    told: str
    asked: str
    stated: str
    value: str
    key: str


_SHADES = tuple(f"{shade} {colour}" for shade in ("light", "dark", "pale", "deep", "bright") for colour in COLOURS[:9])
_DAY_TIMES = tuple(f"{day} at {hour}" for day in DAYS for hour in range(7, 20))
_CODES = tuple(" ".join(f"{number:04d}") for number in range(1000, 10_000, 7))
_WORDS = (*ITEMS, *PETS, *MATERIALS, *FOODS[:20])
_SPOTS = tuple(
    f"the {which}{place}"
    for which in ("", "old ", "new ", "small ", "big ")
    for place in words("library museum park theatre harbour station school church office bank gym cafe hotel shop")
)
_SIZES = tuple(str(number) for number in range(10, 100))
_ROOMS = tuple(str(number) for number in range(100, 1000, 3))


def _pet(animal: str) -> Kind:
    return Kind(
        f"{animal}_name",
        PET_NAMES,
        (
            f"My {animal} is called {{v}}.",
            f"I have a {animal}. Its name is {{v}}.",
            f"The name of my {animal} is {{v}}.",
            f"I have a {animal} called {{v}}.",
            f"We named our {animal} {{v}}.",
            f"{{v}} is my {animal}.",
        ),
        (
            f"What is my {animal} called?",
            f"What is the name of my {animal}?",
            f"What is my {animal}'s name?",
            f"Do you remember the name of my {animal}?",
            f"Can you tell me the name of my {animal}?",
            f"Which name did I give my {animal}?",
        ),
        (f"your {animal} is called {{v}}", f"the name of your {animal} is {{v}}"),
    )


def _relative(relative: str) -> Kind:
    return Kind(
        f"{relative.replace(' ', '_')}_name",
        FIRST_NAMES,
        (
            f"My {relative} is called {{v}}.",
            f"My {relative}'s name is {{v}}.",
            f"The name of my {relative} is {{v}}.",
            f"I have a {relative} called {{v}}.",
            f"{{v}} is my {relative}.",
            f"I often visit my {relative} {{v}}.",
        ),
        (
            f"What is my {relative} called?",
            f"What is the name of my {relative}?",
            f"What is my {relative}'s name?",
            f"Who is my {relative}?",
            f"Do you remember the name of my {relative}?",
            f"Can you tell me my {relative}'s name?",
        ),
        (f"your {relative} is called {{v}}", f"the name of your {relative} is {{v}}"),
    )


def _favourite(thing: str, pool: Sequence[str]) -> Kind:
    return Kind(
        f"favourite_{thing}",
        pool,
        (
            f"My favourite {thing} is {{v}}.",
            f"I like {{v}} best of all. It is my favourite {thing}.",
            f"The {thing} that I like best is {{v}}.",
            f"No {thing} is better than {{v}}, so it is my favourite.",
            f"If you ask for my favourite {thing}, it is {{v}}.",
            f"For me the best {thing} is {{v}}.",
        ),
        (
            f"What is my favourite {thing}?",
            f"Which {thing} do I like best?",
            f"Do you remember my favourite {thing}?",
            f"Which {thing} did I call my favourite?",
            f"Can you tell me my favourite {thing}?",
            f"What did I say is my favourite {thing}?",
        ),
        (f"your favourite {thing} is {{v}}", f"the {thing} that you like best is {{v}}"),
    )


KINDS = (
    Kind(
        "name",
        FIRST_NAMES,
        (
            "My name is {v}.",
            "I am {v}.",
            "Hello, I am {v}.",
            "Hi! My name is {v}.",
            "You can call me {v}.",
            "People call me {v}.",
            "Hello! I'm {v}.",
            "My first name is {v}.",
        ),
        (
            "What is my name?",
            "Do you remember my name?",
            "Who am I?",
            "What am I called?",
            "Can you tell me my name?",
            "What was my name?",
            "Do you know my name?",
            "What's my name?",
        ),
        ("your name is {v}", "your name is {v}", "you are {v}"),
    ),
    Kind(
        "family_name",
        FAMILY_NAMES,
        (
            "My family name is {v}.",
            "My last name is {v}.",
            "I come from the {v} family.",
            "The sign on my door says {v}. It is my last name.",
            "In the list you find me under {v}, my last name.",
            "My last name is spelled {v}.",
        ),
        (
            "What is my last name?",
            "What is my family name?",
            "Do you remember my last name?",
            "Can you tell me my family name?",
            "Which last name do I have?",
            "What was my last name?",
        ),
        ("your last name is {v}", "your family name is {v}"),
    ),
    Kind(
        "home",
        CITIES,
        (
            "I live in {v}.",
            "My home is in {v}.",
            "I have a flat in {v}.",
            "I am at home in {v}.",
            "I moved to {v} last year.",
            "My house is in {v}.",
            "We live in {v}.",
        ),
        (
            "Where do I live?",
            "In which city do I live?",
            "Where is my home?",
            "Do you remember where I live?",
            "What city do I live in?",
            "Which city is my home?",
        ),
        ("you live in {v}", "your home is in {v}"),
    ),
    Kind(
        "birthplace",
        CITIES,
        (
            "I was born in {v}.",
            "My birthplace is {v}.",
            "I came into the world in {v}.",
            "{v} is the city where I was born.",
            "The city of my birth is {v}.",
            "I was born in {v} long ago.",
        ),
        (
            "Where was I born?",
            "In which city was I born?",
            "What is my birthplace?",
            "Do you remember where I was born?",
            "Which city was I born in?",
            "What is the city of my birth?",
        ),
        ("you were born in {v}", "your birthplace is {v}"),
    ),
    Kind(
        "job",
        tuple(with_article(job) for job in JOBS),
        (
            "I am {v}.",
            "I work as {v}.",
            "My job: I am {v}.",
            "For a living I work as {v}.",
            "I earn my money as {v}.",
            "I have worked as {v} for years.",
        ),
        (
            "What is my job?",
            "What do I do for a living?",
            "What do I work as?",
            "Do you remember my job?",
            "Which job do I have?",
            "What work do I do?",
        ),
        ("you are {v}", "you work as {v}"),
    ),
    Kind(
        "age",
        _SIZES,
        (
            "I am {v} years old.",
            "My age is {v}.",
            "I turned {v} this year.",
            "I just turned {v}.",
            "I am {v}, to be exact.",
            "Last week I had my birthday. Now I am {v}.",
        ),
        (
            "How old am I?",
            "What is my age?",
            "Do you remember my age?",
            "Do you remember how old I am?",
            "Can you tell me how old I am?",
            "What age did I tell you?",
        ),
        ("you are {v} years old", "your age is {v}"),
    ),
    Kind(
        "code",
        _CODES,
        (
            "The code is {v}.",
            "Remember the code {v}.",
            "The code for the door is {v}.",
            "Please keep this code: {v}.",
            "Here is the secret code: {v}.",
            "My code is {v}.",
            "To open the box you need the code {v}.",
        ),
        (
            "What is the code?",
            "What was the code?",
            "Do you remember the code?",
            "Please tell me the code.",
            "Which code did I give you?",
            "Repeat the code, please.",
        ),
        ("the code is {v}",),
    ),
    Kind(
        "password",
        _WORDS,
        (
            "The password is {v}.",
            "Remember the password {v}.",
            "Our password for today is {v}.",
            "The secret word is {v}, so the password is {v}.",
            "Please note the password: {v}.",
            "We use {v} as the password.",
        ),
        (
            "What is the password?",
            "What was the password?",
            "Do you remember the password?",
            "Please tell me the password.",
            "Which password did I give you?",
            "What do we use as the password?",
        ),
        ("the password is {v}",),
    ),
    Kind(
        "room",
        _ROOMS,
        (
            "My room is number {v}.",
            "I am in room {v}.",
            "I stay in room {v}.",
            "My hotel room is {v}.",
            "You find me in room {v}.",
            "The key in my hand is for room {v}.",
        ),
        (
            "Which room am I in?",
            "What is my room number?",
            "What is the number of my room?",
            "Do you remember my room?",
            "In which room am I?",
            "Where is my room?",
        ),
        ("you are in room {v}", "your room is number {v}"),
    ),
    Kind(
        "meeting",
        TIMES,
        (
            "My meeting is at {v}.",
            "I have a meeting at {v}.",
            "The meeting starts at {v}.",
            "We meet at {v}.",
            "Our meeting begins at {v}.",
            "Please remember my meeting at {v}.",
        ),
        (
            "When is my meeting?",
            "At what time is my meeting?",
            "What time is the meeting?",
            "Do you remember when my meeting is?",
            "When does the meeting start?",
            "When do we meet?",
        ),
        ("your meeting is at {v}", "the meeting starts at {v}"),
    ),
    Kind(
        "train",
        TIMES,
        (
            "My train leaves at {v}.",
            "I take the train at {v}.",
            "The train goes at {v}.",
            "I have a seat on the train at {v}.",
            "At {v} my train leaves.",
            "I must catch the train at {v}.",
        ),
        (
            "When does my train leave?",
            "At what time does my train go?",
            "What time is my train?",
            "Do you remember when my train leaves?",
            "Which train do I take?",
            "When must I catch the train?",
        ),
        ("your train leaves at {v}", "you take the train at {v}"),
    ),
    Kind(
        "dentist",
        _DAY_TIMES,
        (
            "I see the dentist on {v}.",
            "My visit to the dentist is on {v}.",
            "The dentist has time for me on {v}.",
            "On {v} I must go to the dentist.",
            "I go to the dentist on {v}.",
            "My dentist wrote me down for {v}.",
        ),
        (
            "When do I see the dentist?",
            "When is my visit to the dentist?",
            "Do you remember when I go to the dentist?",
            "When must I go to the dentist?",
            "What time did I plan for the dentist?",
            "When does the dentist have time for me?",
        ),
        ("you see the dentist on {v}", "your visit to the dentist is on {v}"),
    ),
    Kind(
        "birthday",
        DATES,
        (
            "My birthday is on {v}.",
            "I was born on {v}.",
            "I have my birthday on {v}.",
            "On {v} it is my birthday.",
            "My birthday party is always on {v}, my birthday.",
            "The date of my birthday is {v}.",
        ),
        (
            "When is my birthday?",
            "On which date is my birthday?",
            "What is the date of my birthday?",
            "Do you remember my birthday?",
            "Which day is my birthday?",
            "Can you tell me when my birthday is?",
        ),
        ("your birthday is on {v}", "your birthday is {v}"),
    ),
    Kind(
        "destination",
        CITIES,
        (
            "Next week I fly to {v}.",
            "I am planning a trip to {v}.",
            "My next trip goes to {v}.",
            "I will travel to {v} soon.",
            "I bought a ticket to {v}.",
            "My holiday this year is in {v}.",
        ),
        (
            "Where do I travel?",
            "Where does my trip go?",
            "Which city will I visit?",
            "Do you remember where I will travel?",
            "Which city is the goal of my trip?",
            "To which city do I go?",
        ),
        ("you travel to {v}", "your trip goes to {v}"),
    ),
    Kind(
        "keys",
        _SPOTS,
        (
            "I left my keys at {v}.",
            "My keys are at {v}.",
            "I think that I lost my keys at {v}.",
            "The keys must be at {v}.",
            "I forgot my keys at {v}.",
            "My keys are still at {v}.",
        ),
        (
            "Where are my keys?",
            "Where did I leave my keys?",
            "Where can I find my keys?",
            "Do you remember where my keys are?",
            "At which place are my keys?",
            "Where must I look for my keys?",
        ),
        ("your keys are at {v}",),
    ),
    Kind(
        "car",
        tuple(with_article(shade) + " car" for shade in (*COLOURS, *_SHADES)),
        (
            "I drive {v}.",
            "I own {v}.",
            "In front of my house stands {v}.",
            "I bought {v}.",
            "At home we have {v}.",
            "My brother sold me {v}.",
        ),
        (
            "What car do I drive?",
            "What kind of car do I have?",
            "Do you remember my car?",
            "What does my car look like?",
            "Which car is mine?",
            "What car did I tell you about?",
        ),
        ("you have {v}", "you drive {v}"),
    ),
    Kind(
        "gift",
        tuple(with_article(item) for item in ITEMS),
        (
            "I bought {v} today.",
            "Today I got {v} as a gift.",
            "My new thing at home is {v}. I bought it today.",
            "This morning I bought {v}.",
            "In the shop I bought {v}.",
            "I went out and bought {v}.",
        ),
        (
            "What did I buy?",
            "What did I buy today?",
            "Do you remember what I bought?",
            "Which thing did I buy?",
            "What did I tell you that I bought?",
            "What is my new thing?",
        ),
        ("you bought {v}",),
    ),
    Kind(
        "number",
        _SIZES,
        (
            "My lucky number is {v}.",
            "The number that brings me luck is {v}.",
            "I always choose {v}. It is my lucky number.",
            "For luck I take the number {v}.",
            "{v} is my lucky number.",
            "If I need luck, I think of {v}.",
        ),
        (
            "What is my lucky number?",
            "Which number brings me luck?",
            "Do you remember my lucky number?",
            "Can you tell me my lucky number?",
            "What number is my lucky number?",
            "What was my lucky number?",
        ),
        ("your lucky number is {v}",),
    ),
    Kind(
        "dinner",
        _SIZES,
        (
            "The bill was {v} dollars.",
            "I paid {v} dollars for dinner.",
            "Dinner cost me {v} dollars.",
            "For dinner I had to pay {v} dollars.",
            "Our dinner was {v} dollars.",
            "I spent {v} dollars on dinner.",
        ),
        (
            "How many dollars did I pay for dinner?",
            "How much was dinner?",
            "How much did I pay for dinner?",
            "What did dinner cost me?",
            "Do you remember the price of dinner?",
            "How much did I spend on dinner?",
        ),
        ("you paid {v} dollars for dinner", "dinner cost you {v} dollars"),
    ),
    Kind(
        "hobby",
        HOBBIES,
        (
            "My hobby is {v}.",
            "In my free time I enjoy {v}.",
            "I spend my weekends with {v}.",
            "I am very fond of {v}. It is my hobby.",
            "After work I love {v}.",
            "For fun I go in for {v}.",
        ),
        (
            "What is my hobby?",
            "What do I enjoy in my free time?",
            "Do you remember my hobby?",
            "What do I do for fun?",
            "What do I love to do?",
            "Which hobby do I have?",
        ),
        ("your hobby is {v}", "you enjoy {v}"),
    ),
    Kind(
        "month",
        tuple(f"{part} {month}" for part in ("early", "late", "the middle of") for month in MONTHS),
        (
            "My exam is in {v}.",
            "I have an exam in {v}.",
            "I must pass an exam in {v}.",
            "The exam will be in {v}.",
            "They put my exam in {v}.",
            "In {v} I have a big exam.",
        ),
        (
            "When is my exam?",
            "When do I have an exam?",
            "Do you remember when my exam is?",
            "When will my exam be?",
            "When must I pass the exam?",
            "What is the time of my exam?",
        ),
        ("your exam is in {v}",),
    ),
    *(_pet(animal) for animal in ("dog", "cat", "rabbit", "parrot")),
    *(_relative(relative) for relative in ("sister", "brother", "boss", "best friend", "teacher")),
    _favourite("colour", (*COLOURS, *_SHADES)),
    _favourite("food", FOODS),
    _favourite("city", CITIES),
    _favourite("drink", (*DRINKS, *(f"cold {drink}" for drink in DRINKS), *(f"hot {drink}" for drink in DRINKS[:6]))),
    _favourite(
        "animal", tuple(f"the {pet}" for pet in (*PETS, "lion", "tiger", "bear", "wolf", "owl", "whale", "fox"))
    ),
    _favourite("language", (*LANGUAGES, "Swedish", "Danish", "Finnish", "Norwegian", "Russian", "Thai", "Swahili")),
)


def fact(draw: Draw, kind: Kind) -> Fact:
    (_, value), key = draw.combine("recall", (kind.name,), kind.pool)
    told, asked, stated = draw.pick(kind.told), draw.pick(kind.asked), draw.pick(kind.stated)
    return Fact(told.format(v=value), asked, stated.format(v=value), str(value), key)


def facts(draw: Draw, number: int) -> list[Fact]:
    """Facts of different kinds."""
    return [fact(draw, kind) for kind in draw.sample(KINDS, number)]
