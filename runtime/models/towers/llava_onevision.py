"""LLaVA-OneVision's tower: SigLIP's patches of pictures in tiles or in one square, and of films (Li et al. 2024)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ramet.ipc.media import MediaKind
from ramet.runtime.models.towers.base import Arrays, Tower

PATCHED, SQUARE = [1], 2  # numbers of pictures of a sample by which its class tells tiles from squares


class LlavaOnevisionTower(Tower):
    def features(self, kind: MediaKind, pieces: Sequence[Arrays]) -> list[Tensor]:
        if kind is MediaKind.VIDEO:
            return [self._film(each) for each in pieces]
        tiles = [self.moved(each, "pixel_values")[0] for each in pieces]
        made: dict[int, Tensor] = {}
        for is_square in (False, True):
            at = [i for i, each in enumerate(tiles) if (len(each) == 1) == is_square]
            if at:
                sizes = torch.cat([pieces[i]["image_sizes"] for i in at])
                samples = [max(len(at), SQUARE)] if is_square else PATCHED * len(at)
                found = self.whole.get_image_features(
                    torch.cat([tiles[i] for i in at]), sizes, batch_num_images=samples
                )
                made |= zip(at, found.pooler_output, strict=True)
        return [made[i] for i in range(len(pieces))]

    def _film(self, arrays: Arrays) -> Tensor:
        found: Tensor = self.whole.get_video_features(self.moved(arrays, "pixel_values_videos")).pooler_output
        return found[0]


TOWER = LlavaOnevisionTower
