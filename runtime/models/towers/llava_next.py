"""LLaVA-NeXT's tower: CLIP reads the tiles of all pictures at once, which are then put together (Liu et al. 2024)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ramet.ipc.media import MediaKind
from ramet.runtime.models.towers.base import Arrays, Tower


class LlavaNextTower(Tower):
    def features(self, kind: MediaKind, pieces: Sequence[Arrays]) -> list[Tensor]:
        tiles = torch.cat([self.moved(each, "pixel_values")[0] for each in pieces])
        sizes = torch.cat([each["image_sizes"] for each in pieces])
        return list(self.whole.get_image_features(tiles, sizes).pooler_output)


TOWER = LlavaNextTower
