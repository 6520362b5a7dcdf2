"""Documents of hundreds to thousands of tokens: long chats, many records, needles among other sentences, many shots.

Decides what a long document holds and keeps it below a length, at 3.6 characters a token. Facts stand far from where
they are asked.
"""

from collections.abc import Callable

from scripts.demo_model.corpus import prose, recall, talk
from scripts.demo_model.corpus.chat_turns import opened
from scripts.demo_model.corpus.chats import ask_again, tell
from scripts.demo_model.corpus.draw import Document, Draw, combination_key
from scripts.demo_model.corpus.labels import few_shot
from scripts.demo_model.corpus.people import COLOURS, FIRST_NAMES, Record, invented_word, person
from scripts.demo_model.corpus.telling import about, answer_text, question_text

CHARACTERS_PER_TOKEN = 3.6
_END_ROOM = 120  # characters kept for each question at the end


def _room(tokens: int) -> int:
    return int(tokens * CHARACTERS_PER_TOKEN)


def long_chat(draw: Draw, tokens: int) -> Document:
    """Facts told early, then other turns, with a fact asked now and then, and the rest at the end."""
    chat = opened(draw)
    room = _room(tokens)
    told = recall.facts(draw, draw.number(2, 5))
    for fact in told:
        tell(draw, chat, fact)
    waiting = list(told)
    draw.random.shuffle(waiting)
    while chat.num_chars < room - 600 - _END_ROOM * len(waiting):
        if len(waiting) > 1 and draw.chance(0.05):
            ask_again(draw, chat, waiting.pop())
        elif draw.chance(0.06):
            ask_again(draw, chat, draw.pick(told))
        else:
            chat.exchange(draw.pick(talk.SHORT_TURNS)(draw))
    for fact in waiting:
        ask_again(draw, chat, fact)
    return chat.document("long.chat")


_PLAIN = (
    "age",
    "city",
    "job",
    "company",
    "pet",
    "pet_name",
    "colour",
    "food",
    "instrument",
    "language",
    "phone",
    "birth_month",
)


def record_list(draw: Draw, tokens: int) -> Document:
    """Many people as sentences, or as rows under their full names, and questions about some of them."""
    room = _room(tokens) - 6 * _END_ROOM
    as_rows = draw.chance(0.5)
    attributes = draw.sample(_PLAIN, 5 if as_rows and tokens > 1500 else 3)
    records: dict[str, Record] = {}
    lines = [" | ".join(("name", *(name.replace("_", " ") for name in attributes)))] if as_rows else []
    while room > 0 and len(records) < 150:
        one = person(draw)
        if (as_rows and one.name in records) or (not as_rows and one.short in records):
            continue
        records[one.name if as_rows else one.short] = one
        row = (one.name, *(one.values[name].text for name in attributes))
        lines.append(" | ".join(row) if as_rows else about(draw, one, draw.sample(attributes, len(attributes))))
        room -= len(lines[-1]) + 1
    given = "\n".join(lines) + "\n\n"
    known = list(records.values())
    parts: list[str] = []
    for _ in range(draw.number(3, 6)):
        one, asked = draw.pick(known), draw.pick(attributes)
        named = one._replace(short=one.name) if as_rows else one
        parts += (f"{given}Question: {question_text(draw, named, asked)}\nAnswer:", f" {answer_text(one, asked)}")
        given = "\n"
    return Document("long.records", tuple(parts), tuple(key for one in known for key in one.keys))


_NEEDLES: tuple[tuple[str, str, str], ...] = (
    ("The secret number of {who} is {value}.", "What is the secret number of {who}?", "number"),
    ("The secret word of {who} is {value}.", "What is the secret word of {who}?", "word"),
    ("The key of {who} lies in box {value}.", "In which box lies the key of {who}?", "number"),
    ("The special colour of {who} is {value}.", "What is the special colour of {who}?", "colour"),
    ("The magic number for {who} is {value}.", "What is the magic number for {who}?", "number"),
    ("The code name of {who} is {value}.", "What is the code name of {who}?", "word"),
)
_NEEDLE_HEADS = (
    "Read the text. A question follows.\n\n",
    "There is something hidden in this text. Remember it.\n\n",
    "",
    "Text:\n",
    "Find the answer in this text.\n\n",
)


def _needles(draw: Draw, number: int) -> list[tuple[str, str, str, str]]:
    """Sentences, their questions, answers and keys, each about another name."""
    needles = []
    for name in draw.sample(FIRST_NAMES, number):
        sentence, question, kind = draw.pick(_NEEDLES)
        while True:
            value = _needle_value(draw, kind)
            key = combination_key("needle", name, value)
            if draw.allows(key):
                break
        needles.append((sentence.format(who=name, value=value), question.format(who=name), value, key))
    return needles


def _needle_value(draw: Draw, kind: str) -> str:
    match kind:
        case "number":
            return str(draw.number(100, 9999))
        case "colour":
            return f"{draw.pick(('dark', 'light', 'pale', 'deep'))} {draw.pick(COLOURS)}"
        case _:
            return invented_word(draw)


def needles(draw: Draw, tokens: int) -> Document:
    """Unrelated sentences with one to four needles anywhere among them, asked at the end in any order."""
    return _needle_document(draw, tokens, draw.pick((1, 1, 2, 3, 4)), 5)


def needle_prompt(draw: Draw, tokens: int) -> tuple[Document, str]:
    """One needle among unrelated sentences; the value that the answer must be."""
    document = _needle_document(draw, tokens, 1, 1)
    return document, document.parts[-1].strip()


def _needle_document(draw: Draw, tokens: int, number: int, most_asked: int) -> Document:
    hidden = _needles(draw, number)
    head = draw.pick(_NEEDLE_HEADS)
    room = _room(tokens) - len(head) - sum(len(one[0]) + 1 for one in hidden) - min(number, most_asked) * _END_ROOM
    sentences: list[str] = []
    while (text := prose.sentence(draw)) and room > len(text):
        sentences.append(text)
        room -= len(text) + 1
    for one in hidden:
        sentences.insert(draw.number(0, len(sentences)), one[0])
    draw.random.shuffle(hidden)
    given = f"{head}{' '.join(sentences)}\n\n"
    parts: list[str] = []
    frame = draw.pick(("Question: {}\nAnswer:", "Q: {}\nA:"))
    for _, question, value, _ in hidden[:most_asked]:
        parts += (given + frame.format(question), f" {value}")
        given = "\n"
    return Document("long.needle", tuple(parts), tuple(one[3] for one in hidden))


def many_passages(draw: Draw, tokens: int) -> Document:
    """Passages about many records under numbers, each with its questions right after it; the last asks back."""
    room = _room(tokens) - 2 * _END_ROOM
    parts: list[str] = []
    keys: list[str] = []
    records: list[tuple[Record, list[str]]] = []
    length = 0
    given = ""
    while length < room - 500:
        one = person(draw)
        if any(one.short == other.short for other, _ in records):
            continue
        told = draw.sample(_PLAIN, 3)
        records.append((one, told))
        keys += one.keys
        asked = draw.pick(told)
        given += (
            f"Text {len(records)}: {about(draw, one, list(told))}\nQuestion: {question_text(draw, one, asked)}\nAnswer:"
        )
        parts += (given, f" {answer_text(one, asked)}")
        length += len(given) + len(parts[-1])
        given = "\n\n"
    for one, told in draw.sample(records, min(2, len(records))):
        asked = draw.pick(told)
        parts += (f"\n\nQuestion: {question_text(draw, one, asked)}\nAnswer:", f" {answer_text(one, asked)}")
    return Document("long.passages", tuple(parts), tuple(keys))


def many_shots(draw: Draw, tokens: int) -> Document:
    """Labels with as many shots as fit, or several runs of them, each with its own words."""
    room = _room(tokens)
    parts: list[str] = []
    keys: list[str] = []
    length = 0
    while True:
        more = few_shot(draw, draw.number(6, 8))
        added = len(more.text) + 2
        if length + added > room and parts:
            return Document("long.shots", tuple(parts), tuple(keys))
        given, *rest = more.parts
        parts += (f"\n\n{given}" if parts else given, *rest)
        keys += more.keys
        length += added


_KINDS: tuple[Callable[[Draw, int], Document], ...] = (
    *(long_chat,) * 5,
    *(needles,) * 4,
    *(record_list,) * 3,
    *(many_passages,) * 2,
    many_shots,
)


def long_document(draw: Draw, tokens: int) -> Document:
    """A document of about `tokens` tokens and never more, at 3.6 characters a token; ask for 300 at least."""
    return draw.pick(_KINDS)(draw, tokens)


def _mixed_length(draw: Draw) -> Document:
    return long_document(draw, draw.number(800, 3500))


FAMILIES = ((1, _mixed_length),)
