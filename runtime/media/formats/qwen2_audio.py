"""Qwen2-Audio (Chu et al. 2024): up to 30 seconds of sound, 25 tokens of each."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ramet.ipc.media import MediaKind, MediaToken, MediaTokens
from ramet.runtime.errors import ClientError
from ramet.runtime.media.formats.base import Decoded, Processed
from ramet.runtime.media.formats.pictures import PictureFormat
from ramet.runtime.media.formats.received import FEATURES, check_corners, floats, shaped

TEXT = "<|AUDIO|>"
MEL, MASK = "input_features", "feature_attention_mask"


class Qwen2AudioFormat(PictureFormat):
    needs_torch = True  # Whisper's features: transformers' own of numpy are others in their last digits

    def _read_tokens(self) -> MediaTokens:
        return {MediaKind.AUDIO: self._token(MediaToken(TEXT, TEXT, 151646), "audio")}

    @cached_property
    def extractor(self) -> Any:
        from transformers import AutoFeatureExtractor

        load: Any = AutoFeatureExtractor.from_pretrained
        return load(self.folder, local_files_only=True)

    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        import numpy as np

        seconds, most = len(decoded.samples) / decoded.rate, self.extractor.chunk_length
        if seconds > most:
            raise ClientError("", f"is {seconds:.1f} s long, this model takes at most {most} s", "send parts of it")
        made = self.extractor(
            decoded.samples, sampling_rate=decoded.rate, padding="max_length", return_attention_mask=True,
            return_tensors="np",
        )  # fmt: skip
        num = num_tokens(int(made["attention_mask"].sum()))
        if num < 1:
            raise ClientError("", f"is {seconds:.3f} s long, too short for this model")
        if not np.isfinite(made["input_features"]).all():
            raise ClientError("", f"has samples up to {abs(decoded.samples).max():.3g}, must be in [-1, 1]")
        return Processed({MEL: made["input_features"], MASK: made["attention_mask"]}, (num,))

    def received(self, kind: MediaKind, arrays: Mapping[str, Any], are_features: bool) -> Processed:
        if are_features:
            features = self.received_features(arrays)
            return Processed({FEATURES: features}, (len(features),))
        tower = self.config.get("audio_config") or {}
        bins, frames = int(tower.get("num_mel_bins", 128)), 2 * int(tower.get("max_source_positions", 1500))
        mel, mask = floats(arrays, MEL, (1, bins, frames)), shaped(arrays, MASK, (1, frames))
        check_corners(MASK, mask[:, None])
        seen = int(mask.sum())
        if (num := num_tokens(seen)) < 1:
            raise ClientError("", f"has {MASK} of {seen} frames, too few for this model")
        return Processed({MEL: mel, MASK: mask.astype("int64")}, (num,))


def num_tokens(frames: int) -> int:
    """Behind a convolution of stride 2 and a mean of two."""
    return ((frames - 1) // 2 + 1 - 2) // 2 + 1


FORMAT = Qwen2AudioFormat
