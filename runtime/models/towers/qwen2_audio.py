"""Qwen2-Audio's tower: Whisper's encoder with a mean of each two frames (Chu et al. 2024).

Its class has no method of its own for features, so this is what its `forward` does before it merges them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.masking_utils import create_bidirectional_mask

from ramet.ipc.media import MediaKind
from ramet.runtime.models.towers.base import Arrays, Tower


class Qwen2AudioTower(Tower):
    def features(self, kind: MediaKind, pieces: Sequence[Arrays]) -> list[Tensor]:
        mel = torch.cat([self.moved(each, "input_features") for each in pieces])
        lengths = torch.cat([self.moved(each, "feature_attention_mask").sum(-1) for each in pieces])
        tower = self.whole.audio_tower
        seen, made = tower._get_feat_extract_output_lengths(lengths)
        most = (mel.shape[-1] - 2) // 2 + 1
        keeps = torch.arange(most, device=mel.device)[None] < seen[:, None]  # [pieces, most]
        mask = create_bidirectional_mask(tower.config, mel.new_zeros((*keeps.shape, 1)), keeps.long())
        features = self.whole.multi_modal_projector(tower(mel, attention_mask=mask).last_hidden_state)
        return [each[:num] for each, num in zip(features, made.tolist(), strict=True)]


TOWER = Qwen2AudioTower
