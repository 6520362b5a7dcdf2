"""Records told in sentences, and the questions about them with their answers.

Decides how a record becomes a text and which questions fit an attribute. The words come from `passage_words.py`.
"""

from scripts.demo_model.corpus.draw import Draw
from scripts.demo_model.corpus.grammar import with_article
from scripts.demo_model.corpus.passage_words import CHOICES, FILLERS, OPENERS, WORDINGS
from scripts.demo_model.corpus.people import Record, event, person, product

ATTRIBUTES = {kind: (*WORDINGS[kind], *CHOICES[kind]) for kind in WORDINGS}
MAKERS = {"person": person, "product": product, "event": event}


def _sentence(draw: Draw, subject: Record, attribute: str, name: str) -> str:
    """One attribute said of a subject that is called `name` at the start of the sentence."""
    value = subject.values[attribute]
    choice = CHOICES[subject.kind].get(attribute)
    if choice is None:
        frame = draw.pick(WORDINGS[subject.kind][attribute].sentences)
    else:
        frame = draw.pick(choice.yes if value.plain else choice.no)
    if subject.kind == "person":
        inner, owner = ("she", "her") if subject.pronoun == "She" else ("he", "his")
    else:
        inner, owner = "it", "its"
    possessive = owner.capitalize() if name == subject.pronoun else f"{name}'s"
    said = with_article(value.text) if "{a}" in frame else value.text
    return frame.format(S=name, P=possessive, s=inner, p=owner, n=subject.short, v=said, a=said)


def about(draw: Draw, subject: Record, attributes: list[str]) -> str:
    """Sentences that tell these attributes in this order, the subject's full name first."""
    the = "" if subject.kind == "person" else "The "
    sentences = []
    if draw.chance(0.6):
        sentences.append(draw.pick(OPENERS[subject.kind]).format(N=subject.name))
    else:
        first = _sentence(draw, subject, attributes[0], the + subject.name)
        if subject.name in first:
            sentences.append(first)
            attributes = attributes[1:]
        else:
            sentences.append(draw.pick(OPENERS[subject.kind]).format(N=subject.name))
    for attribute in attributes:
        name = subject.pronoun if draw.chance(0.55) else the + subject.short
        sentences.append(_sentence(draw, subject, attribute, name))
    if draw.chance(0.15):
        sentences.insert(draw.number(0, len(sentences)), draw.pick(FILLERS))
    return " ".join(sentences)


def distinct_records(draw: Draw, number: int, kind: str) -> list[Record]:
    """Records of one kind whose short names differ."""
    records: list[Record] = []
    while len(records) < number:
        one = MAKERS[kind](draw)
        if all(one.short != other.short for other in records):
            records.append(one)
    return records


def all_keys(records: list[Record]) -> tuple[str, ...]:
    return tuple(key for one in records for key in one.keys)


def answer_text(subject: Record, attribute: str) -> str:
    value = subject.values[attribute]
    return value.text or ("yes" if value.plain else "no")


def question_text(draw: Draw, subject: Record, attribute: str) -> str:
    wording = WORDINGS[subject.kind].get(attribute) or CHOICES[subject.kind][attribute]
    name = subject.name if subject.kind == "person" and draw.chance(0.3) else subject.short
    return draw.pick(wording.questions).format(n=name)
