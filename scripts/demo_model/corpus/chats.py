"""Chats in ChatML: questions, requests, recall, personas, references, reasoning and field markers.

Decides which turns a chat has. The format is `chat_format.py`'s, single exchanges are `talk.py`'s, facts told and asked
for later `recall.py`'s, turns that need earlier ones `follow_ups.py`'s, fields under markers `markers.py`'s.
"""

from scripts.demo_model.corpus import arithmetic, facts, recall, talk
from scripts.demo_model.corpus.chat_format import CHAT_TEMPLATE, END, render, thought_text
from scripts.demo_model.corpus.chat_turns import SYSTEMS, Chat, opened
from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.follow_ups import country_chat, earlier_chat, persona_chat, same_question_chat, text_chat
from scripts.demo_model.corpus.grammar import capitalized
from scripts.demo_model.corpus.markers import marker_chat

__all__ = ["CHAT_TEMPLATE", "FAMILIES", "Chat", "chat_prompt", "recall_prompt", "render"]


def mixed_chat(draw: Draw) -> Document:
    """One to four exchanges that have nothing to do with each other."""
    chat = opened(draw)
    chat.exchange(draw.pick(talk.ALL_TURNS)(draw))
    while chat.num_chars < 450 and draw.chance(0.45):
        chat.exchange(draw.pick(talk.SHORT_TURNS)(draw))
    return chat.document("chat.mixed")


def demanding_chat(draw: Draw) -> Document:
    """The system turn fixes the form of every answer."""
    chat = Chat()
    one = talk.ask(draw)
    asked, answer = talk.demand(draw, one)
    chat.system(asked if draw.chance(0.6) else f"{draw.pick(SYSTEMS)} {asked}")
    chat.exchange(talk.Exchange(one.question, answer, one.keys))
    return chat.document("chat.demand")


# --- recall ---------------------------------------------------------------------------------------------------------

_NOTED = (
    "Noted: {}.",
    "Good, {}.",
    "I see, {}.",
    "Thank you. I will remember that {}.",
    "All right, {}.",
    "I will keep in mind that {}.",
)
_PLAIN_NOTED = (
    "Thank you, I will remember that.",
    "Noted.",
    "Good to know.",
    "All right, I will remember it.",
    "I see.",
)
_REMEMBER = (
    "",
    "",
    "",
    "",
    " Please remember that.",
    " Remember it, please.",
    " I will ask you later.",
    " Do not forget it.",
)
_ASK_LEADS = ("", "", "", "", "Now tell me: ", "One more thing: ", "Back to me. ", "Tell me again: ", "By the way: ")


def _noted(draw: Draw, fact: recall.Fact) -> str:
    if fact.key.startswith("recall|name|") and draw.chance(0.6):
        return draw.pick(
            ("Nice to meet you, {}!", "Hello, {}! How can I help you?", "Hi {}, nice to meet you.")
        ).format(fact.value)
    return draw.pick(_NOTED).format(fact.stated) if draw.chance(0.6) else draw.pick(_PLAIN_NOTED)


def tell(draw: Draw, chat: Chat, told: recall.Fact) -> None:
    chat.user(told.told + draw.pick(_REMEMBER))
    chat.reply(_noted(draw, told))
    chat.add_keys(told.key)


def ask_again(draw: Draw, chat: Chat, told: recall.Fact) -> None:
    lead = draw.pick(_ASK_LEADS)
    chat.user(lead + told.asked)
    chat.reply(f"{capitalized(told.stated)}.")


def recall_chat(draw: Draw) -> Document:
    """One to three facts told, up to four other turns, then the facts asked in any order."""
    chat = opened(draw)
    told = recall.facts(draw, draw.pick((1, 1, 1, 2, 2, 3)))
    if len(told) > 1 and draw.chance(0.3):
        chat.user(" ".join(fact.told for fact in told))
        chat.reply(draw.pick(_PLAIN_NOTED))
        chat.add_keys(*(fact.key for fact in told))
    else:
        for fact in told:
            tell(draw, chat, fact)
    for _ in range(draw.pick((0, 1, 1, 1, 1, 2, 2, 3, 4))):
        if chat.num_chars < 600:
            chat.exchange(draw.pick(talk.SHORT_TURNS)(draw))
    draw.random.shuffle(told)
    for fact in told:
        ask_again(draw, chat, fact)
    if draw.chance(0.08):
        chat.exchange(talk.Exchange(*_not_told(draw, told)))
    return chat.document("chat.recall")


def _not_told(draw: Draw, told: list[recall.Fact]) -> tuple[str, str]:
    """A question about a kind of fact that nobody told."""
    while True:
        kind = draw.pick(recall.KINDS)
        if all(f"|{kind.name}|" not in fact.key for fact in told):
            return draw.pick(kind.asked), draw.pick(talk.NOT_TOLD)


def recall_prompt(draw: Draw) -> tuple[Document, str]:
    """Told in turn one, one other turn, asked in turn three; the value that the last reply must hold."""
    chat = opened(draw)
    told = recall.fact(draw, draw.pick(recall.KINDS))
    tell(draw, chat, told)
    chat.exchange(draw.pick(talk.SHORT_TURNS)(draw))
    ask_again(draw, chat, told)
    return chat.document("chat.recall"), told.value


# --- reasoning ------------------------------------------------------------------------------------------------------

_THINK = (
    "Think step by step.",
    "Think step by step.",
    "Please think step by step.",
    "Think step by step before you answer.",
)


def _thought(draw: Draw) -> tuple[str, str, str, tuple[str, ...]]:
    """Question, reasoning, reply and keys."""
    if draw.chance(0.65):
        if draw.chance(0.5):
            asked, item = arithmetic.story_problem(draw)
            reasoning = f"I have to work out {item.expression}.\n{capitalized(item.steps)}.\n{item.equation}."
        else:
            item = arithmetic.exercise(draw)
            asked = f"What is {item.spoken if draw.chance(0.5) else item.expression}?"
            reasoning = f"{capitalized(item.steps)}.\n{item.equation}."
        return asked, reasoning, f"The answer is {item.result}.", item.keys
    one = facts.ask(draw)
    lead = draw.pick(("The question is", "I am asked", "The user asks", "I have to answer"))
    return (
        one.question,
        f'{lead}: "{one.question}"\nI know this: {one.sentence}',
        f"The answer is {one.answer}.",
        one.keys,
    )


def thinking_chat(draw: Draw) -> Document:
    """A thought before the reply, opened by the model where it is asked to, or by the generation prompt."""
    chat = Chat()
    asked, reasoning, reply, keys = _thought(draw)
    way = draw.random.random()
    if way < 0.35:
        chat.system(draw.pick(_THINK) if draw.chance(0.4) else f"{draw.pick(SYSTEMS)} {draw.pick(_THINK)}")
    elif draw.chance(0.3):
        chat.system(draw.pick(SYSTEMS))
    chat.user(f"{asked} {draw.pick(_THINK)}" if 0.35 <= way < 0.7 else asked)
    opening = "<think>\n"
    thought = thought_text(reasoning) + reply
    if way < 0.7:
        chat.reply(thought)
    else:
        chat.reply(thought[len(opening) :], lead=opening)
    chat.add_keys(*keys)
    return chat.document("chat.thinking")


def chat_prompt(draw: Draw) -> tuple[Document, str]:
    """Any chat of this module, and the reply that it ends with."""
    document = draw.pick(_PROMPTS)(draw)
    return document, document.parts[-1].removesuffix(END)


_PROMPTS = (
    *(mixed_chat,) * 6,
    *(recall_chat,) * 3,
    demanding_chat,
    persona_chat,
    text_chat,
    country_chat,
    same_question_chat,
    earlier_chat,
    thinking_chat,
    marker_chat,
)
FAMILIES = (
    (12, mixed_chat),
    (3, demanding_chat),
    (9, recall_chat),
    (2, persona_chat),
    (2, text_chat),
    (2, country_chat),
    (2, same_question_chat),
    (2, earlier_chat),
    (3, thinking_chat),
    (2, marker_chat),
)
