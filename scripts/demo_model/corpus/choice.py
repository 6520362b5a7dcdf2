"""Multiple choice A to D over the facts, with up to four solved questions before the last.

Decides layouts and where the right answer stands; questions and wrong answers come from `facts`. A combination is
(item, relation, right letter).
"""

from dataclasses import dataclass

from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.facts import ask_about, pick_relation, training_side, wrong_answers
from scripts.demo_model.corpus.relations import RELATIONS

KIND = "choice"
LETTERS = "ABCD"


@dataclass(frozen=True)
class Layout:
    """How a question, its options and the call for an answer are written; `head` stands once, before all of them."""

    question: str
    option: str
    call: str
    answer: str = " {letter}"
    head: str = ""


LETTER_HEADS = (
    "",
    "",
    "Choose the right answer.",
    "Answer with one letter.",
    "Answer each question with A, B, C or D.",
    "The following are multiple choice questions. Give the letter of the right answer.",
)
TEXT_HEADS = (
    "Answer with letter and text.",
    "Give the letter and the text of the right answer.",
    "Choose the right answer. Answer with letter and text.",
)
SHAPES = (
    ("Question: {}", "{letter}. {text}", "Answer:"),
    ("Question: {}", "{letter}) {text}", "Answer:"),
    ("Question: {}", "({letter}) {text}", "Answer:"),
    ("Q: {}", "{letter}. {text}", "A:"),
    ("Q: {}", "{letter}) {text}", "A:"),
    ("{}", "{letter}. {text}", "Answer:"),
    ("{}", "({letter}) {text}", "The right answer is"),
    ("Question: {}", "{letter}: {text}", "Right answer:"),
)
LAYOUTS = tuple(Layout(*shape, head=head) for shape in SHAPES for head in LETTER_HEADS)
# With the text, an answer is written like its option.
TEXT_LAYOUTS = tuple(Layout(*shape, answer=f" {shape[1]}", head=head) for shape in SHAPES for head in TEXT_HEADS)


def multiple_choice(draw: Draw) -> Document:
    """Zero to four solved questions, then one to solve; all in one layout."""
    layout = draw.pick(LAYOUTS) if draw.chance(0.8) else draw.pick(TEXT_LAYOUTS)
    num_shots = draw.number(0, 4) if draw.chance(0.6) else 0
    parts: list[str] = []
    keys: list[str] = []
    for place in range(num_shots + 1):
        last = place == num_shots
        given, produced, its_keys = _one(draw if last else training_side(draw), layout)
        parts += [given if not parts else f"\n\n{given}", produced]
        keys += its_keys if last or not draw.held_out else ()
    if layout.head:
        parts[0] = f"{layout.head}\n\n{parts[0]}"
    return Document("choice", tuple(parts), tuple(keys))


def _one(draw: Draw, layout: Layout) -> tuple[str, str, tuple[str, ...]]:
    relation = pick_relation(draw)
    (item, _, letter), key = draw.combine(KIND, RELATIONS[relation.name].items, (relation.name,), LETTERS)
    question = ask_about(draw, relation, item)
    texts = wrong_answers(question, draw, len(LETTERS) - 1)
    texts.insert(LETTERS.index(letter), question.answer)
    lines = [layout.question.format(question.question)]
    lines += [layout.option.format(letter=each, text=text) for each, text in zip(LETTERS, texts, strict=True)]
    given = "\n".join((*lines, layout.call))
    produced = layout.answer.format(letter=letter, text=question.answer)
    return given, produced, (key,) if draw.held_out else (key, *question.keys)


FAMILIES = ((1, multiple_choice),)
