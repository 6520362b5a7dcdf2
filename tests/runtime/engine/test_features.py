"""What becomes of pieces that a tower reads: which are computed at once, which are kept, and what failures harm."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ramet.ipc.media import MediaKind, MediaToken, Prepared
from ramet.runtime.engine.extras import Features
from ramet.runtime.engine.features import Media
from ramet.runtime.media.arrays import write_arrays

TOKENS = {MediaKind.IMAGE: MediaToken("<image>", "<image>", 9)}
WIDTH = 4
BYTES = 2 * WIDTH * 4  # of the features of a piece


class DoublingTower:
    """Its features are twice what it reads; it reads no NaN."""

    width, dtype = WIDTH, torch.float32

    def __init__(self) -> None:
        self.calls: list[int] = []  # pieces of each
        self.num_threads: list[int] = []
        self.rounds: list[bool] = []  # whether convolutions of a GPU would round

    def features(self, kind: MediaKind, pieces: Sequence[dict[str, Tensor]]) -> list[Tensor]:
        self.calls.append(len(pieces))
        self.num_threads.append(torch.get_num_threads())
        self.rounds.append(torch.backends.cudnn.allow_tf32)
        if any(bool(torch.isnan(piece["pixels"]).any()) for piece in pieces):
            raise ValueError("NaN is no pixel")
        return [2 * piece["pixels"] for piece in pieces]


def piece(folder: Path, number: float, num_tokens: int = 2, are_features: bool = False) -> Prepared:
    file = str(folder / f"{number} {num_tokens}")
    places, _ = write_arrays(file, {"pixels": np.full((2, WIDTH), number, np.float32)}, 1 << 20)
    key = f"{number} {num_tokens} {are_features}".encode()
    return Prepared(MediaKind.IMAGE, key, (num_tokens,), tuple(places), file, are_features=are_features)


def test_pieces_are_computed_at_once_with_the_threads_of_the_runner(tmp_path: Path) -> None:
    tower = DoublingTower()
    before = torch.get_num_threads()
    made = Media(tower, TOKENS, 1 << 20, num_threads=before + 1).compute([piece(tmp_path, 1), piece(tmp_path, 2)])
    assert [each.values.tolist() for each in made if isinstance(each, Features)] == [[[2.0] * 4] * 2, [[4.0] * 4] * 2]
    assert tower.calls == [2] and tower.num_threads == [before + 1] and torch.get_num_threads() == before


def test_convolutions_of_a_tower_do_not_round_and_those_of_others_do_as_before(tmp_path: Path) -> None:
    tower, before = DoublingTower(), torch.backends.cudnn.allow_tf32
    Media(tower, TOKENS, 1 << 20).compute([piece(tmp_path, 1)])
    assert before and tower.rounds == [False] and torch.backends.cudnn.allow_tf32


def test_one_that_fails_harms_no_other(tmp_path: Path) -> None:
    """Found by computing each alone; one whose file is gone and one of another length are told apart."""
    broken, gone, longer = piece(tmp_path, float("nan")), piece(tmp_path, 3), piece(tmp_path, 4, num_tokens=3)
    Path(gone.file).unlink()
    media = Media(DoublingTower(), TOKENS, 1 << 20)
    first, nan, missing, long, last = media.compute([piece(tmp_path, 1), broken, gone, longer, piece(tmp_path, 2)])
    assert isinstance(first, Features) and isinstance(last, Features)
    assert nan == "could not be computed: NaN is no pixel" and missing == "is gone, because its request has ended"
    assert isinstance(long, str) and "[2, 4], must be [3, 4]" in long
    assert media.find(broken.key) is None and media.find(longer.key) is None and media.num_bytes == 2 * BYTES


def test_given_features_need_no_tower(tmp_path: Path) -> None:
    tower = DoublingTower()
    (made,) = Media(tower, TOKENS, 1 << 20).compute([piece(tmp_path, 5, are_features=True)])
    assert isinstance(made, Features) and made.values.tolist() == [[5.0] * 4] * 2 and tower.calls == []


def test_those_asked_for_longest_ago_go_first(tmp_path: Path) -> None:
    media = Media(DoublingTower(), TOKENS, 2 * BYTES)
    one, two, three = (piece(tmp_path, number) for number in (1, 2, 3))
    media.compute([one, two])
    assert media.find(one.key) is not None
    media.compute([three])
    assert media.find(two.key) is None and media.find(one.key) is not None and media.num_bytes == 2 * BYTES


def test_other_weights_make_other_features(tmp_path: Path) -> None:
    media, one = Media(DoublingTower(), TOKENS, 1 << 20), piece(tmp_path, 1)
    media.compute([one])
    media.take(DoublingTower())
    assert media.find(one.key) is None and media.num_bytes == 0
