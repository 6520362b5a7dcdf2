"""Models that turn by time, height and width on a GPU that is none: what is replayed, and that it gives what plain
steps do.

Features are given, so no tower runs. transformers could not load one there.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from bench_top import BenchTop
from test_recorded_schedules import ALL_GRAPHS, Bench, one_thread
from tiny_media import FAMILIES, FIRST_TOKEN

from ramet.ipc.media import ArrayAt, Grid, MediaKind, PlacedMedia, Prepared
from ramet.runtime.engine import towers
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.extras import FeatureRows, PositionOffsets

__all__ = ["one_thread"]
IMAGE_ID = FIRST_TOKEN + 2
GRIDS = Grid((0,), 2, 3), Grid((0,), 4, 2)
NUM_NEW = 8
LEVELS = {"qwen2-vl": 1, "qwen3-vl": 3}  # embeddings of each token, and what is added in further layers


class NoTower(NamedTuple):
    width: int
    dtype: torch.dtype = torch.float32


class Launch(NamedTuple):
    batch: Batch
    is_replayed: bool


@pytest.fixture(scope="module", params=LEVELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FAMILIES[request.param](tmp_path_factory.mktemp("models") / request.param)


def pieces_of(folder: Path, width: int) -> list[Prepared]:
    found = []
    for number, grid in enumerate(GRIDS):
        values = np.random.default_rng(number).normal(size=(grid.num_tokens, width)).astype(np.float32)
        file = folder / f"features {number}"
        file.write_bytes(values.tobytes())
        array, key = ArrayAt("feature", "float32", values.shape, 0), bytes([number]) * 32
        expansion: Any = (grid.num_tokens,)
        found.append(Prepared(MediaKind.IMAGE, key, expansion, (array,), str(file), grids=(grid,), are_features=True))
    return found


def add(top: BenchTop, uid: int, *parts: int | Prepared) -> None:
    ids, placed = list[int](), list[PlacedMedia]()
    for part in parts:
        if isinstance(part, int):
            ids.append(part)
        else:
            placed.append(PlacedMedia(part, ((len(ids), part.num_tokens),)))
            ids += [IMAGE_ID] * part.num_tokens
    top.add(uid, ids, NUM_NEW, media=tuple(placed), temperature=0.0, ignore_eos=True)


def played(bench: Bench, pieces: list[Prepared], overlap: str, **way: Any) -> tuple[dict[int, list[int]], list[Launch]]:
    """Tokens of each request, and the steps."""
    one, other = pieces
    launches = list[Launch]()
    with pytest.MonkeyPatch.context() as monkeypatch, bench.device(monkeypatch) as device:
        monkeypatch.setattr(towers, "tower_for", lambda *_: NoTower(one.arrays[0].shape[1]))
        top = bench.top(overlap, dict(total=512, rows=4, context=128), **way)
        launch = top.runner.launch

        def noted(batch: Batch) -> Any:
            before = device.num_replays
            pending = launch(batch)
            launches.append(Launch(batch, device.num_replays > before))
            return pending

        top.runner.launch = noted
        add(top, 1, 5, 6, one, 7, 8)
        add(top, 2, 9, 10, 11)
        add(top, 3, 5, one, 12, other, 13)
        top.run()
        add(top, 4, 5, 6, one, 7, 9, 14, 15)  # what is new of it is text
        top.run()
        return dict(top.tokens), launches


def test_steps_without_new_features_are_replayed_and_give_what_plain_ones_do(folder: Path) -> None:
    bench = Bench(folder, oracles=True)
    pieces = pieces_of(folder, 64 * LEVELS[folder.name])
    plain, launched = played(bench, pieces, "off", disable_cuda_graph=True)
    replayed, launches = played(bench, pieces, "on", **ALL_GRAPHS)
    assert replayed == plain and [len(tokens) for tokens in plain.values()] == [NUM_NEW] * 4
    assert not any(each.is_replayed for each in launched)
    for batch, is_replayed in launches:
        assert is_replayed == (batch.input(FeatureRows) is None), batch
    decoding = [batch for batch, _ in launches if batch.only_decodes]
    assert sum(batch.input(PositionOffsets) is not None for batch in decoding) >= NUM_NEW
    assert [batch.num_decode for batch, _ in launches if not (batch.only_decodes or batch.input(FeatureRows))]
