"""InternVL's tower: patches of each tile, four of which become one token (Chen et al. 2024). Gemma 3's is read alike:
SigLIP's patches, of which squares become one token (Gemma Team 2025)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ramet.ipc.media import MediaKind
from ramet.runtime.models.towers.base import Arrays, Tower


class InternVLTower(Tower):
    def features(self, kind: MediaKind, pieces: Sequence[Arrays]) -> list[Tensor]:
        tiles = [self.moved(each, "pixel_values") for each in pieces]
        made = self.whole.get_image_features(torch.cat(tiles)).pooler_output  # [tiles, n, N]
        return [part.flatten(0, 1) for part in made.split([len(each) for each in tiles])]


TOWER = InternVLTower
