"""Idefics3's tower: SigLIP's patches of each tile, several of which become one token (Laurencon et al. 2024).
SmolVLM has the same one (Marafioti et al. 2025)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ramet.ipc.media import MediaKind
from ramet.runtime.models.towers.base import Arrays, Tower


class Idefics3Tower(Tower):
    text_model = "text_model"

    def features(self, kind: MediaKind, pieces: Sequence[Arrays]) -> list[Tensor]:
        pixels, mask = (
            torch.cat([self.moved(each, name) for each in pieces], dim=1)  # [1, tiles, ...]
            for name in ("pixel_values", "pixel_attention_mask")
        )
        (made,) = self.whole.get_image_features(pixels, mask).pooler_output
        of_tile = len(made) // pixels.shape[1]
        return list(made.split([each["pixel_values"].shape[1] * of_tile for each in pieces]))


TOWER = Idefics3Tower
