"""What the bundled model of pictures answers in transformers: held-out things, in held-out wordings."""

from base64 import b64decode
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image

from ramet.runtime.config import BUNDLED_VISION_MODEL
from scripts.demo_model.cases import Case, Reply
from scripts.demo_model.evaluate import shares
from scripts.demo_model.pictures.cases import PICTURE_TARGETS, picture_cases

EVERY = 6  # of the cases with a target, in `make test`


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    model = LlavaForConditionalGeneration.from_pretrained(BUNDLED_VISION_MODEL, dtype=torch.float32)
    return model, AutoProcessor.from_pretrained(BUNDLED_VISION_MODEL, backend="pil")


def answers(loaded: tuple[Any, Any], cases: Sequence[Case]) -> list[Reply]:
    model, processor = loaded
    replies = []
    for case in cases:
        picture = Image.open(BytesIO(b64decode(case.image.partition(",")[2])))
        given = processor(text=case.prompt, images=picture, return_tensors="pt")
        made = model.generate(**given, max_new_tokens=case.max_new_tokens, do_sample=False)
        replies.append(Reply(processor.decode(made[0, given["input_ids"].shape[1] :], skip_special_tokens=True), None))
    return replies


def test_a_share_of_the_shapes_and_colours_is_right_in_transformers(loaded: tuple[Any, Any]) -> None:
    cases = [case for case in picture_cases() if case.row in PICTURE_TARGETS][::EVERY]
    replies = answers(loaded, cases)
    right = sum(case.is_right(reply) for case, reply in zip(cases, replies, strict=True))
    assert right >= 0.95 * len(cases)


@pytest.mark.slow
def test_all_shapes_and_colours_reach_their_targets_in_transformers(loaded: tuple[Any, Any]) -> None:
    cases = picture_cases()
    found = shares(cases, answers(loaded, cases))
    assert all(found[row][0] >= share * found[row][1] for row, share in PICTURE_TARGETS.items()), found
