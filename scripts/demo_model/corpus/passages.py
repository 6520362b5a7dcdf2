"""Passages about invented records with questions that a span of the text answers.

Decides which records a passage tells and what is asked. Its families also hold those of `extraction.py` and `lists.py`.
"""

from typing import NamedTuple

from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.extraction import json_extraction, json_invented, json_prompt, json_records, json_task
from scripts.demo_model.corpus.lists import knowledge_list, list_task, passage_list
from scripts.demo_model.corpus.passage_words import UNKNOWN
from scripts.demo_model.corpus.telling import ATTRIBUTES, about, all_keys, answer_text, distinct_records, question_text

__all__ = ["FAMILIES", "json_prompt", "json_task", "list_task", "passage", "passage_questions"]


class Passage(NamedTuple):
    """A passage and questions about it with their answers."""

    text: str
    questions: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]


def passage(draw: Draw, num_questions: int) -> Passage:
    """One to three records told; each question asks one told attribute, or rarely one that is not told."""
    kind = "person" if draw.chance(0.65) else "product" if draw.chance(0.5) else "event"
    records = distinct_records(draw, draw.number(1, 3), kind)
    told = [draw.sample(ATTRIBUTES[kind], draw.number(2, 5) if len(records) == 1 else 2) for _ in records]
    text = " ".join(about(draw, one, list(attributes)) for one, attributes in zip(records, told, strict=True))
    asked = [(one, attribute) for one, attributes in zip(records, told, strict=True) for attribute in attributes]
    draw.random.shuffle(asked)
    questions = []
    for subject, attribute in asked[:num_questions]:
        if draw.chance(0.12):
            others = [name for name in ATTRIBUTES[kind] if name not in told[records.index(subject)]]
            questions.append((question_text(draw, subject, draw.pick(others)), UNKNOWN))
        else:
            questions.append((question_text(draw, subject, attribute), answer_text(subject, attribute)))
    return Passage(text, tuple(questions), all_keys(records))


_PASSAGE_FRAMES = (
    ("Passage: {}\n", "Question: {}\nAnswer:"),
    ("Text: {}\n", "Q: {}\nA:"),
    ("Read the text and answer.\n\n{}\n\n", "Question: {}\nAnswer:"),
    ("{}\n\n", "Question: {}\nAnswer:"),
    ("{}\n\n", "Q: {}\nA:"),
    ("Context: {}\n", "Question: {}\nAnswer:"),
    ("Context:\n{}\n\n", "Question: {}\nShort answer:"),
    ("Passage:\n{}\n\n", "Q: {}\nA:"),
    ("Answer from the passage. Say unknown if it does not tell.\n\nPassage: {}\n\n", "Question: {}\nAnswer:"),
)


def passage_questions(draw: Draw) -> Document:
    one = passage(draw, draw.number(1, 4))
    head, frame = draw.pick(_PASSAGE_FRAMES)
    parts = []
    for index, (question, answer) in enumerate(one.questions):
        asked = frame.format(question)
        parts.append(head.format(one.text) + asked if index == 0 else f"\n{asked}")
        parts.append(f" {answer}")
    return Document("passage", tuple(parts), one.keys)


FAMILIES = (
    (10, passage_questions),
    (10, json_extraction),
    (1, json_records),
    (1, json_invented),
    (3, knowledge_list),
    (2, passage_list),
)
