"""LLaVA-1.5 (Liu et al. 2023): a picture of one size, cut into patches, each of which becomes a token."""

from collections.abc import Mapping
from typing import Any

from ramet.ipc.media import MediaKind
from ramet.runtime.media.formats.base import Decoded, Processed
from ramet.runtime.media.formats.pictures import PictureFormat
from ramet.runtime.media.formats.received import FEATURES, floats


class LlavaFormat(PictureFormat):
    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        made = self.image_processor(images=[decoded], return_tensors="np")
        return Processed({"pixel_values": made["pixel_values"]}, (self._tokens_of_picture,))

    def received(self, kind: MediaKind, arrays: Mapping[str, Any], are_features: bool) -> Processed:
        if are_features:
            features = self.received_features(arrays)
            return Processed({FEATURES: features}, (len(features),))
        edge = self.pixels("image_size", 336)
        return Processed(
            {"pixel_values": floats(arrays, "pixel_values", (1, 3, edge, edge))}, (self._tokens_of_picture,)
        )

    @property
    def _tokens_of_picture(self) -> int:
        has_class = self.config.get("vision_feature_select_strategy", "default") != "default"
        return self.side(336, 14) ** 2 + int(has_class)


FORMAT = LlavaFormat
