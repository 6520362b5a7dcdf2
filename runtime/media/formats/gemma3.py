"""Gemma 3 (Gemma Team 2025): a picture squeezed into a square, whose tokens see each other.

Crops of long pictures (pan and scan) are pictures of their own, where preprocessor_config.json asks for them.
"""

from collections.abc import Mapping
from typing import Any

from ramet.ipc.media import MediaKind, MediaToken
from ramet.runtime.media.formats.base import Decoded, Processed
from ramet.runtime.media.formats.pictures import PictureFormat
from ramet.runtime.media.formats.received import FEATURES, check_number, floats

BEFORE, BEHIND = "\n\n<start_of_image>", "<end_of_image>\n\n"


class Gemma3Format(PictureFormat):
    image = MediaToken("<start_of_image>", "<image_soft_token>", 262144)
    is_whole = True
    usual_hidden = 2304

    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        pixels = self.image_processor(images=[decoded], return_tensors="np")["pixel_values"]
        return Processed({"pixel_values": pixels}, self._written(len(pixels)))

    def received(self, kind: MediaKind, arrays: Mapping[str, Any], are_features: bool) -> Processed:
        if are_features:
            features = self.received_features(arrays, self._tokens_of_one)
            return Processed({FEATURES: features}, self._written(len(features) // self._tokens_of_one))
        edge = self.pixels("image_size", 896)
        pixels = floats(arrays, "pixel_values", (None, 3, edge, edge))
        check_number(arrays, "num_crops", len(pixels) - 1, "pixel_values")
        return Processed({"pixel_values": pixels}, self._written(len(pixels)))

    @property
    def _tokens_of_one(self) -> int:
        return int(self.config.get("mm_tokens_per_image", 256))

    def _written(self, num: int) -> tuple[str | int, ...]:
        """A picture and its crops, so many in all."""
        picture = (BEFORE, self._tokens_of_one, BEHIND)
        if num == 1:
            return picture
        written = ("Here is the original image ", *picture, " and here are some crops to help you see better ")
        crops = [part for number in range(1, num) for part in ((" ", *picture) if number > 1 else picture)]
        return (*written, *crops)


FORMAT = Gemma3Format
