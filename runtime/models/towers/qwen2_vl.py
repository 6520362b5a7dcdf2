"""Qwen2-VL's tower: patches of a picture's own size, and of two frames of a film at once (Wang et al. 2024). Most
layers of Qwen2.5-VL's attend inside windows (Bai et al. 2025)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ramet.ipc.media import MediaKind
from ramet.runtime.models.towers.base import Arrays, Tower

NAMES = {
    MediaKind.IMAGE: ("pixel_values", "image_grid_thw"),
    MediaKind.VIDEO: ("pixel_values_videos", "video_grid_thw"),
}


class Qwen2VLTower(Tower):
    def features(self, kind: MediaKind, pieces: Sequence[Arrays]) -> list[Tensor]:
        return list(self.read(kind, pieces).pooler_output)

    def read(self, kind: MediaKind, pieces: Sequence[Arrays]) -> Any:
        """What the class returns, for films as for pictures."""
        pixels, grids = (torch.cat([self.moved(each, name) for each in pieces]) for name in NAMES[kind])
        return self.whole.get_image_features(pixels, grids)


TOWER = Qwen2VLTower
