"""A scene as pixels, drawn by Pillow.

Decides how shapes, backgrounds and noise look, and which thing a patch of the small picture shows. Knows no question.
"""

import math
from base64 import b64encode
from io import BytesIO

import numpy as np
from PIL import Image, ImageDraw

from scripts.demo_model.corpus.draw import Draw
from scripts.demo_model.pictures.scenes import Scene, Thing

SMOOTHING = 2  # pixels drawn for each one of a smooth picture, in a line
LABEL_SAMPLES = 3  # points of a patch that are looked at, in a line
Point = tuple[float, float]


def paint(scene: Scene, draw: Draw) -> Image.Image:
    """RGB. The draw gives the noise."""
    scale = SMOOTHING if scene.smooth else 1
    picture = _background(scene, scale)
    pen = ImageDraw.Draw(picture)
    for thing in scene.things:
        dark = tuple(each // 2 for each in thing.paint) if thing.outline else None
        _outline(pen, thing, scale, scale, fill=thing.paint, outline=dark, width=max(1, int(thing.radius * scale / 12)))
    if scale > 1:
        picture = picture.reduce(scale)
    return _with_noise(picture, scene.background.noise, draw)


def small(picture: Image.Image, size: int) -> Image.Image:
    """As the model's processor makes it of any picture: all of it, in a square."""
    return picture.resize((size, size), Image.Resampling.BICUBIC)


def owners(scene: Scene, side: int) -> "np.ndarray":
    """Which thing each patch of a square of side x side shows, from 1; 0: none. [side * side] uint8"""
    size = side * LABEL_SAMPLES
    canvas = Image.new("L", (size, size))
    pen = ImageDraw.Draw(canvas)
    for number, thing in enumerate(scene.things, 1):
        _outline(pen, thing, size / scene.width, size / scene.height, fill=number)
    samples = np.asarray(canvas).reshape(side, LABEL_SAMPLES, side, LABEL_SAMPLES).transpose(0, 2, 1, 3)
    counts = (samples.reshape(side * side, -1, 1) == np.arange(1, len(scene.things) + 1)).sum(1)
    return np.where(counts.max(1) >= 2, counts.argmax(1) + 1, 0).astype(np.uint8)


def data_uri(picture: Image.Image) -> str:
    held = BytesIO()
    picture.save(held, "PNG")
    return "data:image/png;base64," + b64encode(held.getvalue()).decode()


def _background(scene: Scene, scale: int) -> Image.Image:
    size = scene.width * scale, scene.height * scale
    top, bottom = scene.background.top, scene.background.bottom
    if top == bottom:
        return Image.new("RGB", size, top)
    ramp = Image.new("RGB", (1, 2))
    ramp.putdata([top, bottom])
    return ramp.resize(size, Image.Resampling.BILINEAR)


def _with_noise(picture: Image.Image, deviation: float, draw: Draw) -> Image.Image:
    if not deviation:
        return picture
    generator = np.random.default_rng(draw.number(0, 2**32))
    pixels = np.asarray(picture, dtype=np.float32)
    noisy = pixels + generator.standard_normal(pixels.shape, dtype=np.float32) * deviation
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _outline(pen: ImageDraw.ImageDraw, thing: Thing, across: float, down: float, **look: object) -> None:
    """Draw it, `across` and `down` pixels for each of the scene."""
    if thing.shape == "circle":
        left, right = (thing.x - thing.radius) * across, (thing.x + thing.radius) * across
        top, bottom = (thing.y - thing.radius) * down, (thing.y + thing.radius) * down
        pen.ellipse((left, top, right, bottom), **look)  # type: ignore[arg-type]
        return
    angle = math.radians(thing.turn)
    cos, sin = math.cos(angle) * thing.radius, math.sin(angle) * thing.radius
    corners = [
        ((thing.x + x * cos - y * sin) * across, (thing.y + x * sin + y * cos) * down) for x, y in CORNERS[thing.shape]
    ]
    pen.polygon(corners, **look)  # type: ignore[arg-type]


def _on_circle(turns: float, radius: float = 1.0) -> Point:
    """From the top, to the right."""
    angle = 2 * math.pi * turns
    return radius * math.sin(angle), -radius * math.cos(angle)


def _heart() -> tuple[Point, ...]:
    """The usual curve of sixteenths."""
    points = []
    for step in range(40):
        t = 2 * math.pi * step / 40
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((16 * math.sin(t) ** 3 / 17, -(y + 2) / 17))
    return tuple(points)


ARM = 0.32  # half the width of a cross's arm
CORNERS: dict[str, tuple[Point, ...]] = {  # inside a circle of radius 1
    "square": ((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)),
    "triangle": tuple((x, y + 0.12) for x, y in (_on_circle(0), _on_circle(1 / 3), _on_circle(2 / 3))),
    "star": tuple(_on_circle(step / 10, 0.42 if step % 2 else 1.0) for step in range(10)),
    "cross": (
        (-ARM, -0.95), (ARM, -0.95), (ARM, -ARM), (0.95, -ARM), (0.95, ARM), (ARM, ARM),
        (ARM, 0.95), (-ARM, 0.95), (-ARM, ARM), (-0.95, ARM), (-0.95, -ARM), (-ARM, -ARM),
    ),
    "heart": _heart(),
}  # fmt: skip
