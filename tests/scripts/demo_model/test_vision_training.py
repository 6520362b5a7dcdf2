"""The training of the model of pictures, small: what is drawn and asked, and that transformers reads the result."""

import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from scripts.demo_model.corpus.draw import Draw, is_held_out
from scripts.demo_model.network import Shape
from scripts.demo_model.pictures.batches import (
    CHAT,
    IMAGE,
    LONG_CHAT,
    PLAIN,
    Packer,
    as_numbers,
    make_batch,
    written,
)
from scripts.demo_model.pictures.cases import ROWS, picture_cases, prompt_of
from scripts.demo_model.pictures.drawing import owners, paint, small
from scripts.demo_model.pictures.network import PictureShape, Tower
from scripts.demo_model.pictures.questions import FORMS, KINDS, SHARES, Asked, ask, questions
from scripts.demo_model.pictures.scenes import COLOURS, SHAPES, Background, Scene, Thing, draw_scene
from scripts.demo_model.pictures.train import PicturePlan, PictureRun

SMALL = PictureShape(
    Shape(vocab=512, hidden=64, layers=2, heads=2, kv_heads=2, intermediate=96, context=512),
    Tower(image=32, hidden=32, layers=2, heads=2, intermediate=64),
)
FEW = PicturePlan(
    first_steps=4, first_rows=4, second_steps=4, second_rows=4, length=128, warm_up=2, tokenizer_pictures=150,
    whitening_pictures=20, log_every=2, measure_every=8, measure_rows=16, save_every=3,
)  # fmt: skip


class CutOff(Exception):
    pass


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[PictureRun, Path]:
    base = tmp_path_factory.mktemp("vision")
    run = PictureRun(FEW, SMALL, base / "work", "cpu")
    run.train(compiled=False)
    run.write(base / "model")
    return run, base / "model"


def scene(*things: tuple[str, str, float, float, float]) -> Scene:
    """Of (shape, colour, x, y, radius), 100 pixels wide and high, on white."""
    made = [
        Thing(shape, colour, COLOURS[colour][0], x, y, radius, 0.0, False) for shape, colour, x, y, radius in things
    ]
    return Scene(100, 100, Background((255, 255, 255), (255, 255, 255), 0.0), tuple(made), smooth=True)


TWO = scene(("circle", "red", 20, 50, 10), ("star", "blue", 70, 50, 20))


@pytest.mark.parametrize(
    ("kind", "answers"),
    [
        ("shape", {"circle", "star"}),
        ("colour", {"red", "blue"}),
        ("count", {"0", "1", "2"}),
        ("exists", {"yes", "no"}),
        ("where", {"left"}),  # the star is near the line between two parts
        ("beside", {"a red circle", "a blue star", "nothing"}),
        ("is_beside", {"yes", "no"}),
        ("size", {"the red circle", "the blue star"}),
        ("background", {"light"}),
        ("describe", {"a red circle and a blue star"}),
    ],
)
def test_questions_have_the_scene_s_answers(kind: str, answers: set[str]) -> None:
    asked = [ask(Draw(seed), TWO, kind) for seed in range(150)]
    assert {each.answer for each in asked if each} == answers


def test_the_answer_names_the_thing_that_is_asked_for() -> None:
    for seed in range(200):
        asked = ask(Draw(seed), TWO, "colour")
        assert asked and asked.answer == ("red" if "circle" in asked.question else "blue")
        asked = ask(Draw(seed), TWO, "is_beside")
        left = re.search(r"(circle|red shape|star|blue shape) .*?(left|right)", asked.question) if asked else None
        if asked and left:
            assert asked.answer == ("yes" if (left[1] in ("circle", "red shape")) == (left[2] == "left") else "no")


def test_what_has_no_single_answer_is_not_asked() -> None:
    same = scene(("circle", "red", 20, 20, 10), ("circle", "red", 80, 80, 11))
    assert not any(ask(Draw(seed), same, kind) for seed in range(30) for kind in ("shape", "colour", "where", "size"))
    assert not ask(Draw(0), same, "shape.only") and not ask(Draw(0), same, "colour.only")


def test_training_and_evaluation_share_no_thing_at_its_place_and_no_wording() -> None:
    draw = Draw("1/5")
    for _ in range(300):
        made = draw_scene(draw)
        assert not any(map(is_held_out, made.keys))
        assert not any(is_held_out(key) for asked in islice(questions(draw, made), 5) for key in asked.keys)
    for case in picture_cases()[::5]:
        assert len(case.keys) >= 2 and all(map(is_held_out, case.keys))


def test_every_row_asks_as_often_as_it_says_and_every_kind_is_asked() -> None:
    cases = picture_cases()
    assert {row: sum(case.row == row for case in cases) for row in ROWS} == {row: num for row, (_, num) in ROWS.items()}
    assert {kind for kinds, _ in ROWS.values() for kind in kinds} == set(SHARES) and set(KINDS) == set(FORMS)
    assert all(case.image.startswith("data:image/png;base64,") and case.prompt.count(IMAGE) == 1 for case in cases)


def test_a_patch_shows_the_thing_that_is_drawn_there() -> None:
    for seed in range(20):
        made = draw_scene(Draw(seed))
        shown = owners(made, 8).reshape(8, 8)
        pixels = np.asarray(small(paint(made, Draw(0)), 64), dtype=float).reshape(8, 8, 8, 8, 3).mean((1, 3))
        for number, thing in enumerate(made.things, 1):
            column, line = int(thing.x / made.width * 8), int(thing.y / made.height * 8)
            assert shown[line, column] == number
            if thing.shape == "square" and thing.radius > min(made.width, made.height) / 4:
                assert np.abs(pixels[line, column] - thing.paint).max() < 30
        assert (shown == 0).any()


def test_questions_of_a_row_see_the_picture_and_not_each_other(trained: tuple[PictureRun, Path]) -> None:
    """An answer's logits are those of the question alone, wherever it stands in a row."""
    run, _ = trained
    packer = Packer(run.tokenizer, SMALL.tower, 1, 128)
    packer.add(0, Draw(3))
    batch = packer.batch()
    seen = run.network.patches(as_numbers(batch.pixels))
    whole = run.network.logits(run.network.hidden(seen, *batch.given))[0]
    places = [place for place in packer.places if place.kind != "blind"]
    assert len(places) >= 2
    number = batch.documents[0, places[1].first]
    if number != batch.documents[0, places[0].first]:
        alone = (batch.documents[0] == 0) | (batch.documents[0] == number)
        single = run.network.logits(run.network.hidden(seen, *(each[:, alone] for each in batch.given)))[0]
        torch.testing.assert_close(single[-5:], whole[places[1].end - 5 : places[1].end], atol=1e-4, rtol=1e-4)


def test_a_step_always_sees_the_same_batch(trained: tuple[PictureRun, Path]) -> None:
    first, again, other = (
        make_batch(trained[0].tokenizer, SMALL.tower, Draw(f"1/{step}"), 2, 128) for step in (5, 5, 6)
    )
    assert torch.equal(first.tokens, again.tokens) and torch.equal(first.pixels, again.pixels)
    assert not torch.equal(first.pixels, other.pixels)


def test_the_log_has_both_losses_and_the_weights_digest(trained: tuple[PictureRun, Path]) -> None:
    log = (trained[0].work / "training.log").read_text()
    assert len(re.findall(r"patches [0-9.]+ rate", log)) == 2 and len(re.findall(r"answers [0-9.]+ rate", log)) == 2
    assert "held out:" in log and re.search(r"^wrote model\.safetensors, SHA-256 \w{64}$", log, re.MULTILINE)


def test_a_run_that_was_cut_off_goes_on_exactly(
    trained: tuple[PictureRun, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = PictureRun(FEW, SMALL, tmp_path, "cpu")
    one_step = cut._one_step

    def fail_at_five(forward):  # type: ignore[no-untyped-def]
        if cut.step == 5:
            raise CutOff
        return one_step(forward)

    monkeypatch.setattr(cut, "_one_step", fail_at_five)
    with pytest.raises(CutOff):
        cut.train(compiled=False)
    again = PictureRun(FEW, SMALL, tmp_path, "cpu")
    assert again.step == 3
    again.train(compiled=False)
    for name, value in trained[0].network.state_dict().items():
        torch.testing.assert_close(again.network.state_dict()[name], value, atol=1e-6, rtol=1e-5, msg=name)


def test_transformers_reads_the_folder_and_computes_the_same(trained: tuple[PictureRun, Path]) -> None:
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    run, folder = trained
    model = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(folder, backend="pil")
    picture = paint(draw_scene(Draw(4)), Draw(4))
    asked = Asked("colour", "What colour is it?", "red", ())
    turn = [{"role": "user", "content": [{"type": "text", "text": asked.question}, {"type": "image"}]}]
    prompt = processor.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    assert prompt == prompt_of(asked, CHAT)  # the picture stands before the text
    given = processor(text=prompt, images=picture, return_tensors="pt")
    pixels = as_numbers(torch.from_numpy(np.asarray(small(picture, 32)).copy())[None])
    torch.testing.assert_close(given["pixel_values"].float(), pixels, atol=1e-5, rtol=0)
    network = run.network  # the folder holds bfloat16: compare with the same rounding
    network.load_state_dict({name: value.bfloat16().float() for name, value in network.state_dict().items()})
    ids = given["input_ids"]
    assert (ids == network.image_token).sum() == SMALL.tower.patches
    positions, documents = torch.arange(ids.shape[1])[None], torch.ones_like(ids)
    with torch.no_grad():
        ours = network.logits(network.hidden(network.patches(pixels), ids, positions, documents))
        torch.testing.assert_close(ours, model(**given).logits, atol=2e-4, rtol=2e-4)


def test_chats_are_written_as_the_template_writes_them(trained: tuple[PictureRun, Path]) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(trained[1])
    first, second = Asked("colour", "A?", "red", ()), Asked("shape", "B?", "star", ())
    talk = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "A?"}]},
        {"role": "assistant", "content": "red"},
        {"role": "user", "content": "B?"},
    ]
    whole = prompt_of(first, LONG_CHAT) + "red<|im_end|>" + written(second, LONG_CHAT, first=False).parts[0]
    assert tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True) == whole
    assert prompt_of(first, PLAIN) == "<image>\nQuestion: A?\nAnswer:"


def test_pictures_of_every_shape_and_colour_are_drawn() -> None:
    draw = Draw("all")
    things = [thing for _ in range(200) for thing in draw_scene(draw).things]
    assert {thing.shape for thing in things} == set(SHAPES) and {thing.colour for thing in things} == set(COLOURS)
    wide = Image.new("RGB", (640, 20), "red")
    assert small(wide, 64).size == (64, 64)
