"""Places of a prompt's tokens equal those of transformers, for pictures and films in any order, with texts between."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ramet.ipc.media import Grid, MediaKind, PlacedMedia, Prepared
from ramet.runtime.scheduler.features.turns import turns_of

MERGE, TOKENS_PER_SECOND = 2, 2
SIDES = st.integers(1, 6)
PIECES = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.integers(1, 9)),
        st.tuples(st.just("image"), SIDES, SIDES),
        st.tuples(st.just("video"), SIDES, SIDES, st.integers(1, 8), st.sampled_from([0.1, 0.5, 1.0, 1.4, 3.0])),
    ),
    min_size=1,
    max_size=8,
)
CLASSES = {
    "qwen2_vl": "Qwen2VLModel",
    "qwen2_5_vl": "Qwen2_5_VLModel",
    "qwen3_vl": "Qwen3VLModel",
}


def placed(first: int, kind: MediaKind, grids: list[Grid], gap: int = 0) -> tuple[PlacedMedia, int]:
    """From token `first` on, with so many tokens of text before each grid; the token behind it."""
    spans = []
    for grid in grids:
        spans.append((first + gap, grid.num_tokens))
        first += gap + grid.num_tokens
    expansion = tuple(num for _, num in spans)
    item = Prepared(kind, b"", expansion, (), "", grids=tuple(grids))
    return PlacedMedia(item, tuple(spans)), first


def theirs(name: str, types: list[int], images: list[list[int]], films: list[list[int]], seconds: list[float]) -> Any:
    import importlib

    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    made = getattr(module, CLASSES[name])
    vision = SimpleNamespace(spatial_merge_size=MERGE, tokens_per_second=TOKENS_PER_SECOND)
    model = SimpleNamespace(config=SimpleNamespace(vision_config=vision))
    model.get_vision_position_ids = made.get_vision_position_ids.__get__(model)
    given = {"second_per_grid_ts": seconds} if name == "qwen2_5_vl" else {}
    grids = [torch.tensor(each) if each else None for each in (images, films)]
    ids = torch.zeros(1, len(types), dtype=torch.long)
    return made.get_rope_index(model, ids, torch.tensor([types]), *grids, **given)


@pytest.mark.parametrize("name", CLASSES)
@given(pieces=PIECES)
def test_places_equal_transformers(name: str, pieces: list[tuple[Any, ...]]) -> None:
    at, types, media, images, films, seconds = 0, list[int](), list[PlacedMedia](), [], [], list[float]()
    for kind, *sizes in pieces:
        if kind != "text":
            types.append(0)  # which stands before each
            at += 1
        if kind == "text":
            types += [0] * sizes[0]
            at += sizes[0]
        elif kind == "image":
            one, at = placed(at, MediaKind.IMAGE, [Grid((0,), *sizes)])
            media.append(one)
            types += [1] * (sizes[0] * sizes[1])
            images.append([1, *(MERGE * side for side in sizes)])
        else:
            height, width, frames, interval = sizes
            films.append([frames, MERGE * height, MERGE * width])
            seconds.append(interval)
            if name == "qwen3_vl":  # each frame has its time as a text before it
                one, at = placed(at, MediaKind.VIDEO, [Grid((0,), height, width)] * frames, gap=1)
                types += ([0] + [2] * (height * width)) * frames
            else:
                step = TOKENS_PER_SECOND * interval if name == "qwen2_5_vl" else 1
                grid = Grid(tuple(int(i * np.float32(step)) for i in range(frames)), height, width)
                one, at = placed(at, MediaKind.VIDEO, [grid])
                types += [2] * (frames * height * width)
            media.append(one)
    types.append(0)
    want, _ = theirs(name, types, images, films, seconds)
    got = turns_of(len(types), media)
    if got is None:
        assert not media
        return
    assert (got.places == want[:, 0].numpy()).all()
    assert len(types) - got.shift == int(want[0, 0, -1]) + 1


def test_a_text_alone_has_the_places_of_its_indices() -> None:
    assert turns_of(9, ()) is None
    item = Prepared(MediaKind.IMAGE, b"", (4,), (), "")  # of a model that turns by one place alone
    assert turns_of(9, (PlacedMedia(item, ((2, 4),)),)) is None


def test_what_is_drawn_follows_the_prompts_last_text() -> None:
    film, end = placed(1, MediaKind.VIDEO, [Grid(tuple(range(0, 40, 4)), 2, 2)])
    short, long = turns_of(end + 3, (film,)), turns_of(end + 60, (film,))
    assert short is not None and short.places[:, -1].tolist() == [5, 5, 5] and end + 3 - short.shift == 6
    assert long is not None and (long.places[:, : end + 3] == short.places).all() and long.shift == short.shift
    assert long.end == end and (long.places[:, end:] == np.arange(end, end + 60) - long.shift).all()
