"""Qwen3-VL's tower: the outputs of some of its layers are features, too, for the first layers of the text model, behind
those that take the place of embeddings (DeepStack: Meng et al. 2024)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ramet.ipc.media import MediaKind
from ramet.runtime.models.towers.base import Arrays
from ramet.runtime.models.towers.qwen2_vl import Qwen2VLTower


class Qwen3VLTower(Qwen2VLTower):
    @property
    def width(self) -> int:
        return super().width * (1 + len(self.config.vision_config.deepstack_visual_indexes))

    def features(self, kind: MediaKind, pieces: Sequence[Arrays]) -> list[Tensor]:
        made = self.read(kind, pieces)
        lengths = [len(each) for each in made.pooler_output]
        # transformers 5.17 gives a level as one tensor of all pieces, 5.23 as one tensor for each piece
        deep = [each.split(lengths) if isinstance(each, Tensor) else each for each in made.deepstack_features]
        return [torch.cat(each, dim=1) for each in zip(made.pooler_output, *deep, strict=True)]


TOWER = Qwen3VLTower
