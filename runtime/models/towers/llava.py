"""LLaVA-1.5's tower: CLIP's patches of one layer before its last, and a projector of two layers (Liu et al. 2023)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ramet.ipc.media import MediaKind
from ramet.runtime.models.towers.base import Arrays, Tower


class LlavaTower(Tower):
    def features(self, kind: MediaKind, pieces: Sequence[Arrays]) -> list[Tensor]:
        pixels = torch.cat([self.moved(each, "pixel_values") for each in pieces])
        made = self.whole.get_image_features(
            pixel_values=pixels,
            vision_feature_layer=self.config.vision_feature_layer,
            vision_feature_select_strategy=self.config.vision_feature_select_strategy,
        )
        return list(made.pooler_output)


TOWER = LlavaTower
