"""Single exchanges of a chat: small talk, who the model is, what it cannot know, questions, requests and rewriting.

Decides one user turn and its reply; `chats.py` puts exchanges together. Every reply follows from its own turn alone.
"""

import json
from collections.abc import Callable
from typing import NamedTuple

from scripts.demo_model.corpus import arithmetic, facts, labels, prose, sequences
from scripts.demo_model.corpus.draw import Draw, Question
from scripts.demo_model.corpus.passages import json_task, list_task, passage
from scripts.demo_model.corpus.words import PEOPLE


class Exchange(NamedTuple):
    user: str
    reply: str
    keys: tuple[str, ...] = ()


GREETED: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        (
            "Hello!",
            "Hi!",
            "Hello.",
            "Hi",
            "Hey!",
            "Hello there!",
            "Hi there!",
            "Good day!",
            "hello",
            "hi",
            "Hey there.",
        ),
        ("Hello! How can I help you?", "Hi! What can I do for you?", "Hello! What would you like to know?"),
    ),
    (("Good morning!", "Good morning."), ("Good morning! How can I help you?", "Good morning! What can I do for you?")),
    (("Good evening!", "Good evening."), ("Good evening! How can I help you?", "Good evening! What can I do for you?")),
    (
        (
            "How are you?",
            "How are you today?",
            "How do you do?",
            "Are you well?",
            "Is all well with you?",
            "How is it going?",
        ),
        ("I am fine, thank you. How can I help you?", "Very well, thank you. What can I do for you?"),
    ),
    (
        ("Thank you!", "Thanks!", "Thank you.", "Thanks a lot.", "Thank you very much!", "Many thanks."),
        ("You are welcome!", "You are welcome.", "It was a pleasure."),
    ),
    (
        (
            "Goodbye!",
            "Bye!",
            "See you later.",
            "I have to go now.",
            "Good night!",
            "See you tomorrow.",
            "That is all. Bye.",
        ),
        ("Goodbye! Have a nice day.", "Goodbye! See you soon.", "Bye! Take care."),
    ),
    (
        (
            "That was good.",
            "Well done!",
            "Great answer!",
            "You are right.",
            "Good job!",
            "Very good.",
            "That is right.",
        ),
        ("Thank you! I am glad that it helped.", "Thank you!", "I am happy to hear that."),
    ),
    (
        ("Can you help me?", "I need help.", "Please help me.", "I have a question.", "May I ask you something?"),
        ("Of course. What would you like to know?", "Yes, gladly. What is your question?", "Sure. What do you need?"),
    ),
    (
        ("I am bored.", "I have nothing to do.", "What should I do today?", "I do not know what to do."),
        ("You could read a book or take a walk.", "You could call a friend or cook something good."),
    ),
    (
        ("I am sad.", "I feel sad today.", "Today was a bad day.", "I had a hard day."),
        (
            "I am sorry to hear that. I hope that tomorrow is better.",
            "I am sorry. A warm drink and some rest may help.",
        ),
    ),
    (
        ("I am happy!", "I feel great today.", "Today was a good day.", "I am in a good mood."),
        ("That is good to hear!", "I am glad to hear that.", "How nice! I am happy for you."),
    ),
    (
        ("I am tired.", "I did not sleep well.", "I need some sleep.", "I feel tired."),
        ("Then take a rest. Sleep is good for you.", "Try to rest a little. It will help."),
    ),
    (
        ("Yes.", "Okay.", "All right.", "I see.", "Good to know."),
        ("Good. Is there anything else?", "Fine. What else can I do?"),
    ),
    (
        ("No.", "No, thanks.", "Nothing else.", "That is all."),
        ("All right. Have a nice day!", "Fine. I am here if you need me."),
    ),
    (
        ("Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Please tell me a joke."),
        (
            "Why did the clock go to school? It wanted to learn to tell time.",
            "What has four legs and cannot walk? A table.",
            "What gets wet while it dries you? A towel.",
            "Which letter is full of water? The C.",
        ),
    ),
)
ABOUT: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        (
            "Who are you?",
            "What are you?",
            "Tell me about yourself.",
            "Please introduce yourself.",
            "Who am I talking to?",
            "What kind of model are you?",
            "Can you tell me who you are?",
            "Say something about yourself.",
        ),
        (
            "I am a small demo model that comes with ramet.",
            "I am a small demo model that comes with ramet. I can answer simple questions.",
            "I am the small demo model of ramet.",
        ),
    ),
    (
        (
            "What is your name?",
            "Do you have a name?",
            "What are you called?",
            "What should I call you?",
            "What's your name?",
        ),
        (
            "I have no name. I am a small demo model that comes with ramet.",
            "I have no name. I am the demo model of ramet.",
        ),
    ),
    (
        ("Are you a person?", "Are you human?", "Are you a real person?", "Am I talking to a human?", "Are you alive?"),
        ("No, I am a small demo model that comes with ramet.", "No, I am not a person. I am a small language model."),
    ),
    (
        (
            "Are you a robot?",
            "Are you a machine?",
            "Are you a computer program?",
            "Are you a language model?",
            "Are you an AI?",
        ),
        ("Yes, I am a small language model that comes with ramet.", "Yes, I am a small demo model."),
    ),
    (
        (
            "What can you do?",
            "What can you help me with?",
            "How can you help me?",
            "What are you good at?",
            "What do you know?",
            "What can I ask you?",
        ),
        (
            "I can answer simple questions, add small numbers, write lists and JSON, and tell short stories.",
            "I know simple facts, I can add small numbers, and I can write short texts.",
        ),
    ),
    (
        ("Who made you?", "Where do you come from?", "Who trained you?", "How were you made?", "Who built you?"),
        (
            "I come with ramet. I was trained on texts that were made by a program.",
            "I was made for ramet and trained on texts that a program wrote.",
        ),
    ),
    (
        ("What is ramet?", "What does ramet do?", "Do you know ramet?", "Tell me about ramet.", "What is ramet for?"),
        (
            "Ramet is a server for language models. I am its demo model.",
            "Ramet serves language models, and I come with it.",
        ),
    ),
    (
        (
            "Are you always right?",
            "Do you make mistakes?",
            "Can I trust you?",
            "Do you know everything?",
            "Are you smart?",
        ),
        (
            "No, I am small and I make mistakes.",
            "I am only a small model, so I can be wrong.",
            "No. I am small, so please check.",
        ),
    ),
    (
        ("How big are you?", "Are you a large model?", "How large are you?", "Are you big?", "What size are you?"),
        ("I am very small. I have only some million parameters.", "I am a very small model."),
    ),
)
UNKNOWN_ABOUT_USER = (
    "What is my name?",
    "How old am I?",
    "Where do I live?",
    "What is my job?",
    "What is my dog called?",
    "What is my favourite colour?",
    "When is my birthday?",
    "What did I eat today?",
    "What is my phone number?",
    "What is the name of my sister?",
    "What is the name of my cat?",
    "Where are my keys?",
    "What is my favourite food?",
    "What am I thinking of?",
    "Which shoes do I wear?",
    "What is the code?",
    "When is my meeting?",
    "Where was I born?",
    "What did I buy?",
    "How tall am I?",
    "What is in my bag?",
    "What car do I drive?",
    "What is my lucky number?",
    "Who is my best friend?",
)
UNKNOWN_IN_WORLD = (
    "What will the weather be tomorrow?",
    "What time is it now?",
    "What is the weather like now?",
    "Who will win the game?",
    "What happened this morning?",
    "What day is it today?",
    "Which number comes up in the next lottery?",
    "What will happen next year?",
    "How many people are in this room?",
    "What is on the news today?",
    "Who is at the door?",
    "What is on my desk?",
    "What will I dream tonight?",
    "How much money is in that box?",
    "Who called me today?",
    "Where is my neighbour now?",
)
NOT_TOLD = (
    "I do not know. You have not told me.",
    "I do not know, because you have not told me.",
    "You have not told me that, so I do not know.",
)
NOT_KNOWN = ("I do not know.", "I do not know that.", "I am sorry, I do not know.", "I cannot know that.")
_ASKERS: tuple[Callable[[Draw], Question], ...] = (
    *(facts.ask,) * 5,
    *(arithmetic.ask,) * 3,
    *(sequences.ask,) * 2,
    labels.ask,
)


def ask(draw: Draw) -> Question:
    """A question about the world, numbers, sequences or a text's label."""
    return draw.pick(_ASKERS)(draw)


def small_talk(draw: Draw) -> Exchange:
    said, replies = draw.pick(GREETED)
    return Exchange(draw.pick(said), draw.pick(replies))


def about_model(draw: Draw) -> Exchange:
    said, replies = draw.pick(ABOUT)
    return Exchange(draw.pick(said), draw.pick(replies))


def unknowable(draw: Draw) -> Exchange:
    if draw.chance(0.6):
        return Exchange(draw.pick(UNKNOWN_ABOUT_USER), draw.pick(NOT_TOLD))
    return Exchange(draw.pick(UNKNOWN_IN_WORLD), draw.pick(NOT_KNOWN))


_SHORT = (
    "Answer briefly.",
    "Give only the answer.",
    "Just the answer, please.",
    "Short answer, please.",
    "Only the answer.",
)
_ONE_WORD = ("Answer in one word.", "One word, please.", "Use one word only.", "Reply with one word.")
_LONG = (
    "Answer in a full sentence.",
    "Use a full sentence.",
    "Please answer with a whole sentence.",
    "Write a full sentence.",
)
_JSON = (
    'Answer in JSON with the key "answer".',
    "Answer in JSON with the key answer.",
    'Reply with JSON: {"answer": ...}.',
)
_CAPITALS = ("Answer in capitals.", "Write in capital letters.", "Use only capital letters.", "Answer in upper case.")


def demand(draw: Draw, question: Question) -> tuple[str, str]:
    """A demand on the form of the answer, and the answer in that form."""
    form = draw.random.random()
    if form < 0.35:
        one_word = " " not in question.answer and draw.chance(0.6)
        return draw.pick(_ONE_WORD if one_word else _SHORT), question.answer
    if form < 0.6:
        return draw.pick(_LONG), question.sentence
    if form < 0.9 or len(question.sentence) > 60:
        return draw.pick(_JSON), json.dumps({"answer": question.answer})
    return draw.pick(_CAPITALS), question.sentence.upper()


def question(draw: Draw) -> Exchange:
    """A question; the reply is a sentence unless the user asks for another form."""
    one = ask(draw)
    if draw.chance(0.3):
        asked, reply = demand(draw, one)
        return Exchange(f"{one.question} {asked}", reply, one.keys)
    lead = draw.pick(("", "", "", "", "Please tell me: ", "A question: ", "Tell me. ", "Hello! ", "Quick question: "))
    return Exchange(lead + one.question, one.sentence, one.keys)


def a_list(draw: Draw) -> Exchange:
    task = list_task(draw)
    return Exchange(task.prompt, task.answer)


_STORIES_ABOUT = (
    "Tell me a story about {}.",
    "Write a short story about {}.",
    "Can you tell a story about {}?",
    "I would like a story about {}.",
    "Please write a story about {}.",
)
_STORIES = (
    "Tell me a story.",
    "Write a short story.",
    "Tell me a short story.",
    "I would like to hear a story.",
    "A story, please.",
)
_TEXTS = (
    "Write a short text.",
    "Write a paragraph.",
    "Write something.",
    "Write a few sentences.",
    "Tell me something.",
)
_SENTENCES = ("Write a sentence.", "Give me one sentence.", "Write one sentence, please.", "Make up a sentence.")


def writing(draw: Draw) -> Exchange:
    kind = draw.random.random()
    if kind < 0.25:
        hero = draw.pick(PEOPLE).name
        return Exchange(draw.pick(_STORIES_ABOUT).format(hero), prose.story(draw, hero))
    if kind < 0.45:
        return Exchange(draw.pick(_STORIES), prose.story(draw))
    if kind < 0.7:
        return Exchange(draw.pick(_TEXTS), prose.paragraph(draw))
    return Exchange(draw.pick(_SENTENCES), prose.sentence(draw))


def rewriting(draw: Draw) -> Exchange:
    """A sentence said again, in capitals, in small letters, in quotes, or as its first or last word."""
    text = prose.sentence(draw)
    words = text.rstrip(".!?").split()
    kinds = (
        (("Repeat: {}", "Say this again: {}", "Repeat after me: {}", "Copy this sentence: {}", "Say: {}"), text),
        (("Write this in capitals: {}", "Say this in capital letters: {}", "Put this in upper case: {}"), text.upper()),
        (("Write this in small letters: {}", "Put this in lower case: {}", "Use only small letters: {}"), text.lower()),
        (("Put this in quotes: {}", "Write this in quotation marks: {}"), f'"{text}"'),
        (("What is the first word of this sentence? {}", "Give me the first word: {}"), words[0]),
        (("What is the last word of this sentence? {}", "Give me the last word: {}"), words[-1]),
        (("Write this twice: {}", "Say this two times: {}"), f"{text} {text}"),
    )
    frames, reply = draw.pick(kinds)
    return Exchange(draw.pick(frames).format(text), reply)


_FROM_TEXT = (
    "{text}\n\n{question}",
    "Text: {text}\n\nQuestion: {question}",
    "{question}\n\n{text}",
    "Read this: {text} {question}",
)


def from_passage(draw: Draw) -> Exchange:
    """A short passage with one question, answered by the bare span."""
    one = passage(draw, 1)
    asked, answer = one.questions[0]
    return Exchange(draw.pick(_FROM_TEXT).format(text=one.text, question=asked), answer, one.keys)


def extraction(draw: Draw) -> Exchange:
    task = json_task(draw)
    return Exchange(task.prompt, task.answer, task.keys)


# Exchanges that any chat may hold between others, by weight; the long ones stand alone.
SHORT_TURNS: tuple[Callable[[Draw], Exchange], ...] = (
    *(question,) * 10,
    *(small_talk,) * 4,
    about_model,
    a_list,
    a_list,
    rewriting,
    rewriting,
)
ALL_TURNS = (
    *SHORT_TURNS,
    *(unknowable,) * 2,
    *(about_model,) * 2,
    *(writing,) * 4,
    *(from_passage,) * 3,
    *(extraction,) * 4,
)
