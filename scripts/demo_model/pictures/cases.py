"""What the evaluation asks of pictures, and when an answer counts as right: exactly, at temperature 0.

Decides the rows of the table and their targets. Each picture holds things that training never saw there, and each
question is in a wording that it never saw. Knows no server.
"""

from collections.abc import Iterator
from functools import partial
from itertools import count, islice

from scripts.demo_model.cases import Case, Reply
from scripts.demo_model.corpus.draw import Draw
from scripts.demo_model.pictures.batches import CHAT, IMAGE, PLAIN, TURN, written
from scripts.demo_model.pictures.drawing import data_uri, paint
from scripts.demo_model.pictures.questions import Asked, ask
from scripts.demo_model.pictures.scenes import draw_scene

SEED = "evaluation"
MAX_TOKENS = 32
ROWS = {  # row: its kinds of questions, how many
    "shapes": (("shape.only", "shape"), 125),
    "colours": (("colour.only", "colour"), 125),
    "counts": (("count",), 50),
    "yes or no: is it there?": (("exists",), 50),
    "yes or no: is it beside?": (("is_beside",), 30),
    "what is beside it": (("beside",), 30),
    "where it is": (("where",), 30),
    "largest and smallest": (("size",), 30),
    "backgrounds": (("background",), 20),
    "descriptions": (("describe",), 30),
}
PICTURE_TARGETS = {"shapes": 0.95, "colours": 0.95}


def picture_cases() -> list[Case]:
    """All of them; the same at every call. Every fifth prompt is plain text, the others are chats."""
    return [case for row, (kinds, number) in ROWS.items() for case in islice(_cases(row, kinds), number)]


def _cases(row: str, kinds: tuple[str, ...]) -> Iterator[Case]:
    for number in count():
        draw = Draw(f"{SEED}/{row}/{number}", held_out=True)
        kind, scene = draw.pick(kinds), draw_scene(draw)
        asked = ask(draw, scene, kind)
        if asked is not None:
            form = CHAT if number % 5 else PLAIN
            keys = (*scene.keys, *asked.keys)
            image = data_uri(paint(scene, draw))
            yield Case(row, prompt_of(asked, form), partial(_is, asked.answer), MAX_TOKENS, keys, image)


def prompt_of(asked: Asked, form: str) -> str:
    lead = IMAGE if form == PLAIN else TURN + IMAGE
    return lead + written(asked, form, first=True).parts[0]


def _is(answer: str, reply: Reply) -> bool:
    return reply.text.strip() == answer
