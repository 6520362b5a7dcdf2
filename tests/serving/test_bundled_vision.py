"""The bundled model of pictures answers through a running server: held-out shapes and colours, in held-out wordings."""

from collections.abc import Iterator

import pytest
import requests
from live import Live
from PIL import Image, ImageDraw

from ramet import Endpoint, function, gen, image, select
from ramet.runtime.config import BUNDLED_VISION
from scripts.demo_model.cases import Case
from scripts.demo_model.corpus.draw import Draw
from scripts.demo_model.evaluate import ask, shares
from scripts.demo_model.pictures.cases import PICTURE_TARGETS, picture_cases
from scripts.demo_model.pictures.drawing import data_uri, paint
from scripts.demo_model.pictures.questions import NO_PICTURE
from scripts.demo_model.pictures.scenes import draw_scene

EVERY = 4  # of the cases that have a target, in `make test`


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(model_path=BUNDLED_VISION) as live:
        yield live


def missed(server: Live, cases: list[Case]) -> dict[str, tuple[int, int]]:
    found = shares(cases, ask(server.url, cases))
    return {row: found[row] for row, target in PICTURE_TARGETS.items() if found[row][0] < target * found[row][1]}


def test_a_share_of_the_shapes_and_colours_is_right(server: Live) -> None:
    cases = [case for case in picture_cases() if case.row in PICTURE_TARGETS][::EVERY]
    assert len(cases) >= 60 and not missed(server, cases)


@pytest.mark.slow
def test_the_whole_evaluation_reaches_its_targets(server: Live) -> None:
    cases = picture_cases()
    assert len(cases) >= 500 and not missed(server, cases)


def chat(server: Live, *parts: dict) -> str:
    body = {"messages": [{"role": "user", "content": list(parts)}], "temperature": 0, "max_tokens": 32}
    reply = requests.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
    assert reply["model"] == "ramet-bundled-vision"
    return reply["choices"][0]["message"]["content"]


def test_a_chat_about_a_picture_is_answered(server: Live) -> None:
    """Text first, as clients write it: the model's template puts the picture before it."""
    for seed in range(8):
        draw = Draw(f"chat/{seed}")
        scene = draw_scene(draw, most=1)
        picture = {"type": "image_url", "image_url": {"url": data_uri(paint(scene, draw))}}
        asked = {"type": "text", "text": "What color is it?"}
        assert chat(server, asked, picture) == scene.things[0].colour


def test_without_a_picture_it_asks_for_one(server: Live) -> None:
    assert chat(server, {"type": "text", "text": "What shape is this?"}) == NO_PICTURE


@function
def look(s, picture):
    """Forks behind a picture, each with a question of its own, and a choice of several behind all that was said."""
    s += image(picture) + "\nQuestion: "
    shape, colour, chosen = s.fork(3)
    shape += "What shape is this?\nAnswer:" + gen("said", max_tokens=8, temperature=0)
    colour += "What color is it?\nAnswer:" + gen("said", max_tokens=8, temperature=0)
    chosen += "What color is it?\nAnswer:" + select("said", [" red", " blue", " green"])
    s["seen"] = [fork["said"].strip() for fork in (shape, colour, chosen)]


def test_forks_of_a_program_see_its_picture_whose_tower_runs_once(server: Live) -> None:
    before = server.state()["tower_tokens"]
    for colour in ("red", "green"):
        picture = Image.new("RGB", (200, 200), "white")
        ImageDraw.Draw(picture).rectangle((50, 50, 150, 150), fill=colour)
        state = look.run(picture, backend=Endpoint(server.url))
        assert state["seen"] == ["square", colour, colour]
    assert server.state()["tower_tokens"] == before + 2 * 64
