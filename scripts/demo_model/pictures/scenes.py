"""What is in a picture: up to four things of different places on a background, drawn by seed.

Decides shapes, colours, places and which things training never sees: a shape of a colour in one of nine parts of a
picture is a combination of the split (corpus/draw.py). Knows no pixel and no question.
"""

from dataclasses import dataclass

from scripts.demo_model.corpus.draw import Draw, combination_key

SHAPES = ("circle", "square", "triangle", "star", "cross", "heart")
COLOURS = {  # name: some of what people call so, red, green and blue
    "red": ((255, 0, 0), (220, 20, 60), (200, 30, 30), (230, 57, 70)),
    "orange": ((255, 165, 0), (255, 140, 0), (255, 127, 14)),
    "yellow": ((255, 255, 0), (255, 215, 0), (250, 225, 70)),
    "green": ((0, 128, 0), (0, 200, 0), (50, 205, 50), (44, 160, 44), (0, 255, 0)),
    "cyan": ((0, 255, 255), (0, 206, 209), (72, 219, 230)),
    "blue": ((0, 0, 255), (30, 80, 220), (65, 105, 225), (31, 100, 190)),
    "purple": ((128, 0, 128), (148, 70, 189), (138, 43, 226)),
    "pink": ((255, 105, 180), (255, 182, 193), (255, 140, 190)),
}
COLUMNS, LINES = ("left", "", "right"), ("top", "", "bottom")
MAX_THINGS = 4
MIN_GAP = 0.02  # between two things, of the short side
MIN_CONTRAST = 80.0  # between a thing and the background, a distance of colours

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Thing:
    """x, y: its middle, radius: of a circle around it; in pixels."""

    shape: str
    colour: str
    paint: Colour
    x: float
    y: float
    radius: float
    turn: float  # degrees
    outline: bool

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True)
class Background:
    """From one colour at the top to another at the bottom, with noise of this standard deviation."""

    top: Colour
    bottom: Colour
    noise: float

    @property
    def brightness(self) -> float:
        return sum(self.top + self.bottom) / 6


@dataclass(frozen=True)
class Scene:
    width: int  # pixels
    height: int
    background: Background
    things: tuple[Thing, ...]
    smooth: bool  # antialiased

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key_of(thing.shape, thing.colour, self.part(thing)) for thing in self.things)

    def part(self, thing: Thing) -> str:
        return part_of(thing.x / self.width, thing.y / self.height)


def part_of(x: float, y: float) -> str:
    """Of the nine of a picture: the name of the one with this point, x and y from 0 to 1."""
    column, line = COLUMNS[min(int(x * 3), 2)], LINES[min(int(y * 3), 2)]
    return f"{line} {column}".strip() or "middle"


def key_of(shape: str, colour: str, part: str) -> str:
    return combination_key("thing", shape, colour, part)


def draw_scene(draw: Draw, most: int = MAX_THINGS) -> Scene:
    """Of things that are all on the draw's side of the split."""
    short = int(64 * 8 ** (draw.random.random() ** 2))
    long = int(short * (1 if draw.chance(0.4) else 1 + 0.6 * draw.random.random()))
    width, height = (long, short) if draw.chance(0.5) else (short, long)
    background = draw_background(draw)
    asked = 1 + int(draw.random.random() * most)
    things: list[Thing] = []
    while len(things) < asked:
        for _ in range(400):
            thing = draw_thing(draw, width, height, crowd=asked)
            if fits(thing, things, short) and contrasts(thing, background) and is_allowed(draw, thing, width, height):
                things.append(thing)
                break
        else:  # no room is left: begin again
            things, background = [], draw_background(draw)
    return Scene(width, height, background, tuple(things), draw.chance(0.7))


def draw_thing(draw: Draw, width: int, height: int, crowd: int) -> Thing:
    colour = draw.pick(tuple(COLOURS))
    largest = (0.45, 0.32, 0.26, 0.24)[crowd - 1]
    radius = min(width, height) * (0.12 + (largest - 0.12) * draw.random.random())
    return Thing(
        draw.pick(SHAPES),
        colour,
        near(draw, draw.pick(COLOURS[colour]), 12),
        radius + (width - 2 * radius) * draw.random.random(),
        radius + (height - 2 * radius) * draw.random.random(),
        radius,
        draw.random.uniform(-12, 12) if draw.chance(0.4) else 0.0,
        draw.chance(0.15),
    )


def draw_background(draw: Draw) -> Background:
    """Light or dark, grey or with a touch of a colour."""
    level = draw.pick((255, 0, draw.number(200, 255), draw.number(0, 60), draw.number(0, 255)))
    top = near(draw, (level, level, level), draw.pick((0, 20)))
    bottom = near(draw, top, 50) if draw.chance(0.25) else top
    return Background(top, bottom, draw.random.uniform(2, 22) if draw.chance(0.3) else 0.0)


def near(draw: Draw, colour: Colour, most: int) -> Colour:
    red, green, blue = (max(0, min(255, each + draw.number(-most, most))) for each in colour)
    return red, green, blue


def fits(thing: Thing, things: list[Thing], short: int) -> bool:
    """Whether it touches no other."""
    return all(
        ((thing.x - other.x) ** 2 + (thing.y - other.y) ** 2) ** 0.5 > thing.radius + other.radius + MIN_GAP * short
        for other in things
    )


def contrasts(thing: Thing, background: Background) -> bool:
    return all(
        sum((one - two) ** 2 for one, two in zip(thing.paint, behind)) > MIN_CONTRAST**2
        for behind in (background.top, background.bottom)
    )


def is_allowed(draw: Draw, thing: Thing, width: int, height: int) -> bool:
    return draw.allows(key_of(thing.shape, thing.colour, part_of(thing.x / width, thing.y / height)))
