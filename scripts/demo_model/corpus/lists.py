"""Lists in many forms, of things that everybody knows or of what a passage names.

Decides how many are asked and in which form; the things come from `passage_words.py`.
"""

import json
from typing import NamedTuple

from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.grammar import joined
from scripts.demo_model.corpus.passage_words import LISTS, NUMBER_WORDS, ORDERED, SEASONS
from scripts.demo_model.corpus.telling import ATTRIBUTES, MAKERS, about, all_keys, distinct_records


class ListTask(NamedTuple):
    prompt: str
    answer: str


_LIST_NAMES = tuple(LISTS)
_ORDERED_NAMES = tuple(ORDERED)


def _write_list(draw: Draw, items: list[str]) -> tuple[str, str]:
    """A form of list: what the request adds, and the items in that form."""
    match draw.number(0, 7):
        case 0:
            return draw.pick((" Use bullets.", " Write a bullet list.", " Use dashes.")), "\n".join(
                f"- {one}" for one in items
            )
        case 1:
            numbered = "\n".join(f"{index}. {one}" for index, one in enumerate(items, 1))
            return draw.pick((" Number them.", " Use numbers.", " Write a numbered list.")), numbered
        case 2:
            added = draw.pick((" Separate them with commas.", " Put commas between them.", " Use commas."))
            return added, ", ".join(items)
        case 3:
            added = draw.pick((" Answer with a JSON array.", " Return a JSON array.", " Give a JSON list of strings."))
            return added, json.dumps(items)
        case 4:
            return draw.pick((" Put each on its own line.", " One per line.")), "\n".join(items)
        case 5:
            return draw.pick((" Answer in a sentence.", " Use the word and.")), f"{items[0].capitalize()}" + (
                f"{joined(items)}."[len(items[0]) :]
            )
        case _:
            return "", ", ".join(items)


def _list_request(draw: Draw, counted: str) -> str:
    return draw.pick(
        (
            f"List {counted}.",
            f"List {counted}.",
            f"Name {counted}.",
            f"Give me {counted}.",
            f"Write down {counted}.",
            f"Tell me {counted}.",
            f"I need {counted}.",
            f"Please list {counted}.",
            f"Can you name {counted}?",
        )
    )


def _number_word(draw: Draw, number: int) -> str:
    return NUMBER_WORDS[number] if draw.chance(0.75) else str(number)


def list_task(draw: Draw) -> ListTask:
    """A list from knowledge: some of a kind in any order, or the first of a series in its order."""
    if draw.chance(0.2):
        what = draw.pick(_ORDERED_NAMES)
        items = list(ORDERED[what][: draw.number(2, 6)])
        counted = f"the first {_number_word(draw, len(items))} {what}"
    elif draw.chance(0.04):
        items, counted = list(SEASONS), "the four seasons"
    else:
        what = draw.pick(_LIST_NAMES)
        items = draw.sample(LISTS[what], draw.number(2, min(6, len(LISTS[what]))))
        counted = f"{_number_word(draw, len(items))} {what}"
    added, answer = _write_list(draw, items)
    return ListTask(_list_request(draw, counted) + added, answer)


_LIST_FRAMES = (
    ("Question: {}\nAnswer:", " "),
    ("Q: {}\nA:", " "),
    ("{}\n", ""),
    ("{}\n\n", ""),
    ("Task: {}\nAnswer:\n", ""),
)


def _list_document(draw: Draw, family: str, task: ListTask, keys: tuple[str, ...] = ()) -> Document:
    frame, space = draw.pick(_LIST_FRAMES)
    if space and "\n" in task.answer:
        space = "\n"
    return Document(family, (frame.format(task.prompt), space + task.answer), keys)


def knowledge_list(draw: Draw) -> Document:
    return _list_document(draw, "list", list_task(draw))


def passage_list(draw: Draw) -> Document:
    """Everybody in a passage, or all of one record's hobbies or colours, as a list."""
    if draw.chance(0.6):
        kind = draw.pick(("person", "person", "product"))
        records = distinct_records(draw, draw.number(2, 4), kind)
        items = [one.name for one in records]
        what = draw.pick(
            ("the people in the text", "all people", "the names") if kind == "person" else ("the products", "all items")
        )
        text = " ".join(about(draw, one, draw.sample(ATTRIBUTES[kind], 1)) for one in records)
    else:
        kind, attribute = draw.pick((("person", "hobbies"), ("product", "colours")))
        records = [MAKERS[kind](draw)]
        items = list(records[0].values[attribute].plain)  # type: ignore[call-overload]
        what = f"the hobbies of {records[0].short}" if kind == "person" else f"the colours of the {records[0].short}"
        others = [name for name in ATTRIBUTES[kind] if name != attribute]
        told = [attribute, *draw.sample(others, draw.number(1, 3))]
        draw.random.shuffle(told)
        text = about(draw, records[0], told)
    added, answer = _write_list(draw, items)
    task = ListTask(f"{text}\n\n{_list_request(draw, what)}{added}", answer)
    return _list_document(draw, "list", task, all_keys(records))
