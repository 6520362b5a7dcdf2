"""Questions about a scene with their answers, in several wordings.

Decides what may be asked of which scene, so that each question has one right answer. A wording is a combination of an
opening and a form of the question; some of them are held out of training (corpus/draw.py). Knows no pixel.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scripts.demo_model.corpus.draw import Draw
from scripts.demo_model.pictures.scenes import COLOURS, SHAPES, Scene, Thing, part_of

FAR = 0.15  # of the picture: so much further left is to the left of
CLEARLY_IN = 0.12  # from the middle of a part, of the picture
LARGER = 1.3  # times the radius
DARK, LIGHT = 80, 175  # brightness of backgrounds
NO_PICTURE = "Please show me a picture."

OPENINGS = (
    "", "", "Tell me: ", "Please answer: ", "Look at the picture. ", "Here is a picture. ", "Can you tell me: ",
    "Please tell me: ", "Question: ", "In this picture, ", "In the image, ", "Look at this image. ", "Hi! ",
    "I wonder: ",
)  # fmt: skip
FORMS: dict[str, tuple[str, ...]] = {
    "shape.only": (
        "what shape is this?", "what shape is it?", "what shape is shown?", "which shape is in the picture?",
        "what shape do you see?", "what is the shape?", "which shape is this?", "which shape can you see?",
        "what shape is in the image?", "what kind of shape is this?", "name the shape.", "what shape is there?",
    ),
    "shape": (
        "what shape is the {colour} object?", "what shape is {colour}?", "which shape is {colour}?",
        "what is the shape of the {colour} thing?", "the {colour} object is what shape?", "what is the {colour} shape?",
        "what shape does the {colour} object have?", "name the {colour} shape.", "what shape is the {colour} one?",
        "what is the shape of the {colour} object?", "which shape is the {colour} one?",
        "what shape is the {colour} thing?",
    ),
    "colour.only": (
        "what colour is this?", "what colour is it?", "what colour is the shape?", "which colour do you see?",
        "what is the colour of the shape?", "which colour is it?", "what colour does the shape have?",
        "name the colour.", "what colour is shown?", "what is the colour?", "which colour is the shape?",
        "what colour is the object?",
    ),
    "colour": (
        "what colour is the {shape}?", "which colour is the {shape}?", "what is the colour of the {shape}?",
        "what colour does the {shape} have?", "which colour does the {shape} have?", "the {shape} is what colour?",
        "the {shape} has which colour?", "name the colour of the {shape}.", "tell me the colour of the {shape}.",
        "what's the colour of the {shape}?", "what colour is that {shape}?", "of what colour is the {shape}?",
    ),
    "count": (
        "how many {noun} are there?", "how many {noun} do you see?", "how many {noun} are in the picture?",
        "count the {noun}.", "what is the number of {noun}?", "how many {noun} can you see?",
        "how many {noun} does the picture have?", "how many {noun} are shown?", "how many {noun} are in the image?",
    ),
    "exists": (
        "is there {noun}?", "do you see {noun}?", "is there {noun} in the picture?", "can you see {noun}?",
        "does the picture have {noun}?", "does the picture show {noun}?", "is there {noun} in the image?",
        "do you see {noun} in the picture?",
    ),
    "where": (
        "where is the {noun}?", "in which part of the picture is the {noun}?", "where do you see the {noun}?",
        "in what part of the image is the {noun}?", "where in the picture is the {noun}?",
        "what is the place of the {noun}?", "where can you see the {noun}?",
    ),
    "beside": (
        "what is {side} the {noun}?", "which shape is {side} the {noun}?", "what do you see {side} the {noun}?",
        "what shape is {side} the {noun}?", "which object is {side} the {noun}?", "what thing is {side} the {noun}?",
    ),
    "is_beside": (
        "is the {noun} {side} the {other}?", "do you see the {noun} {side} the {other}?",
        "can you see the {noun} {side} the {other}?", "do you find the {noun} {side} the {other}?",
    ),
    "size": (
        "which shape is the {most}?", "what is the {most} shape?", "what is the {most} object?",
        "which object is the {most}?", "which is the {most} shape?", "name the {most} shape.",
        "which thing is the {most}?",
    ),
    "background": (
        "is the background dark or light?", "is the background light or dark?", "what is the background like?",
        "how is the background, dark or light?",
    ),
    "describe": (
        "describe the picture.", "what is in the picture?", "what do you see?", "what is in this picture?",
        "what's in this image?", "describe this image.", "what is this?", "what can you see?", "describe what you see.",
        "which shapes do you see?", "what does the picture show?", "what is in the image?",
    ),
    "greeting": (
        "hello", "hi", "hello!", "hi there", "how are you?", "who are you?", "what can you do?", "good morning",
    ),
}  # fmt: skip
SIDES = {
    "left": ("to the left of", "left of"),
    "right": ("to the right of", "right of"),
    "above": ("above",),
    "below": ("below", "under"),
}
LARGEST, SMALLEST = ("largest", "biggest"), ("smallest",)


@dataclass(frozen=True)
class Asked:
    kind: str
    question: str
    answer: str
    keys: tuple[str, ...]  # of its wording


Given = tuple[dict[str, str], str]  # what a form's braces stand for, and the answer


def ask(draw: Draw, scene: Scene, kind: str) -> Asked | None:
    """None: the scene does not answer that kind of question, or the draw found none."""
    given = KINDS[kind](draw, scene)
    if given is None:
        return None
    values, answer = given
    opening, form, key = _wording(draw, kind)
    question = form.format_map(values)
    if opening == "" or opening.endswith((". ", "! ")):
        question = question[0].upper() + question[1:]
    return Asked(kind, _spelled(draw, opening + question), answer, (key,))


def _wording(draw: Draw, kind: str) -> tuple[str, str, str]:
    (opening, form), key = draw.combine(f"wording {kind}", OPENINGS, FORMS[kind])
    return opening, form, key


def _spelled(draw: Draw, question: str) -> str:
    """As one or another person writes it."""
    if draw.chance(0.5):
        question = question.replace("colour", "color")
    if draw.chance(0.1):
        question = question.lower()
    return question.removesuffix("?") if draw.chance(0.1) else question


def with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def described(scene: Scene) -> str:
    """From left to right."""
    names = [with_article(thing.name) for thing in sorted(scene.things, key=lambda thing: thing.x)]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _only_shape(draw: Draw, scene: Scene) -> Given | None:
    return ({}, scene.things[0].shape) if len(scene.things) == 1 else None


def _only_colour(draw: Draw, scene: Scene) -> Given | None:
    return ({}, scene.things[0].colour) if len(scene.things) == 1 else None


def _shape(draw: Draw, scene: Scene) -> Given | None:
    alone = _alone(scene.things, lambda thing: thing.colour)
    if not alone:
        return None
    thing = draw.pick(alone)
    return {"colour": thing.colour}, thing.shape


def _colour(draw: Draw, scene: Scene) -> Given | None:
    alone = _alone(scene.things, lambda thing: thing.shape)
    if not alone:
        return None
    thing = draw.pick(alone)
    return {"shape": thing.shape}, thing.colour


def _count(draw: Draw, scene: Scene) -> Given | None:
    shape = draw.pick(scene.things).shape if draw.chance(0.7) else draw.pick(SHAPES)
    colour = draw.pick(scene.things).colour if draw.chance(0.7) else draw.pick(tuple(COLOURS))
    plural = shape + ("es" if shape.endswith("s") else "s")
    match draw.number(0, 4):
        case 0 | 1:
            return {"noun": draw.pick(("shapes", "objects", "things"))}, str(len(scene.things))
        case 2:
            return {"noun": plural}, str(sum(thing.shape == shape for thing in scene.things))
        case 3:
            return {"noun": f"{colour} shapes"}, str(sum(thing.colour == colour for thing in scene.things))
        case _:
            same = sum((thing.shape, thing.colour) == (shape, colour) for thing in scene.things)
            return {"noun": f"{colour} {plural}"}, str(same)


def _exists(draw: Draw, scene: Scene) -> Given | None:
    thing = draw.pick(scene.things)
    shape, colour = thing.shape, thing.colour
    if draw.chance(0.6):  # most of these are not there
        if draw.chance(0.5):
            shape = draw.pick(SHAPES)
        else:
            colour = draw.pick(tuple(COLOURS))
    match draw.number(0, 3):
        case 0:
            noun, there = shape, any(each.shape == shape for each in scene.things)
        case 1:
            noun, there = f"{colour} shape", any(each.colour == colour for each in scene.things)
        case _:
            noun, there = f"{colour} {shape}", any(each.name == f"{colour} {shape}" for each in scene.things)
    return {"noun": with_article(noun)}, "yes" if there else "no"


def _where(draw: Draw, scene: Scene) -> Given | None:
    named = [(thing, noun) for thing, noun in _named(draw, scene) if _is_clearly_placed(scene, thing)]
    if not named:
        return None
    thing, noun = draw.pick(named)
    return {"noun": noun}, scene.part(thing)


def _beside(draw: Draw, scene: Scene) -> Given | None:
    """Of a thing with one other on that side, or none, and no doubt of the rest."""
    found = []
    for thing, noun in _named(draw, scene):
        for side in SIDES:
            distances = [(_distance(scene, other, thing, side), other) for other in scene.things if other is not thing]
            there = [other for distance, other in distances if distance > FAR]
            if len(there) <= 1 and all(abs(distance) > FAR for distance, _ in distances):
                found.append((noun, side, with_article(there[0].name) if there else "nothing"))
    if not found or len(scene.things) == 1:
        return None
    some = [each for each in found if each[2] != "nothing"]
    noun, side, answer = draw.pick(some if some and draw.chance(0.8) else found)
    return {"noun": noun, "side": draw.pick(SIDES[side])}, answer


def _is_beside(draw: Draw, scene: Scene) -> Given | None:
    found = [
        (noun, other_noun, side, distance > 0)
        for thing, noun in _named(draw, scene)
        for other, other_noun in _named(draw, scene)
        for side in SIDES
        if other is not thing and abs(distance := _distance(scene, thing, other, side)) > FAR
    ]
    if not found:
        return None
    noun, other_noun, side, so = draw.pick(found)
    return {"noun": noun, "other": other_noun, "side": draw.pick(SIDES[side])}, "yes" if so else "no"


def _size(draw: Draw, scene: Scene) -> Given | None:
    if len(scene.things) == 1:
        return None
    by_size = sorted(scene.things, key=lambda thing: thing.radius)
    if draw.chance(0.5):
        most, (second, first) = draw.pick(LARGEST), by_size[-2:]
    else:
        most, (first, second) = draw.pick(SMALLEST), by_size[:2]
    larger, smaller = max(first.radius, second.radius), min(first.radius, second.radius)
    return ({"most": most}, f"the {first.name}") if larger > LARGER * smaller else None


def _background(draw: Draw, scene: Scene) -> Given | None:
    brightness = scene.background.brightness
    if DARK < brightness < LIGHT:
        return None
    return {}, "dark" if brightness <= DARK else "light"


def _describe(draw: Draw, scene: Scene) -> Given | None:
    return {}, described(scene)


def _greeting(draw: Draw, scene: Scene) -> Given | None:
    return {}, NO_PICTURE


KINDS: dict[str, Callable[[Draw, Scene], Given | None]] = {
    "shape.only": _only_shape,
    "shape": _shape,
    "colour.only": _only_colour,
    "colour": _colour,
    "count": _count,
    "exists": _exists,
    "where": _where,
    "beside": _beside,
    "is_beside": _is_beside,
    "size": _size,
    "background": _background,
    "describe": _describe,
    "greeting": _greeting,
}
SHARES = {  # how often training asks each
    "shape.only": 6, "shape": 6, "colour.only": 3, "colour": 5, "count": 4, "exists": 4, "where": 2, "beside": 3,
    "is_beside": 2, "size": 2, "background": 1, "describe": 3,
}  # fmt: skip
_IN_SHARES = tuple(kind for kind, share in SHARES.items() for _ in range(share))


def questions(draw: Draw, scene: Scene) -> Iterator[Asked]:
    """Without end, in training's shares."""
    while True:
        asked = ask(draw, scene, draw.pick(_IN_SHARES))
        if asked is not None:
            yield asked


def _alone(things: tuple[Thing, ...], feature: Callable[[Thing], str]) -> list[Thing]:
    """Those that no other shares this with."""
    features = [feature(thing) for thing in things]
    return [thing for thing in things if features.count(feature(thing)) == 1]


def _named(draw: Draw, scene: Scene) -> list[tuple[Thing, str]]:
    """Each thing that a name is enough for, with one that is."""
    names = []
    for thing in _alone(scene.things, lambda thing: thing.name):
        fit = [thing.name]
        if thing in _alone(scene.things, lambda thing: thing.shape):
            fit.append(thing.shape)
        if thing in _alone(scene.things, lambda thing: thing.colour):
            fit.append(f"{thing.colour} shape")
        names.append((thing, draw.pick(fit)))
    return names


def _is_clearly_placed(scene: Scene, thing: Thing) -> bool:
    x, y = thing.x / scene.width, thing.y / scene.height
    moved = (-1 / 6 + CLEARLY_IN, 1 / 6 - CLEARLY_IN)
    return all(part_of(x + across, y + down) == scene.part(thing) for across in moved for down in moved)


def _distance(scene: Scene, one: Thing, other: Thing, side: str) -> float:
    """How far one is to that side of the other, of the picture."""
    across, down = (one.x - other.x) / scene.width, (one.y - other.y) / scene.height
    return {"left": -across, "right": across, "above": -down, "below": down}[side]
