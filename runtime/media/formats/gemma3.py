"""Gemma 3 (Gemma Team 2025): a picture squeezed into a square, whose tokens see each other.

Crops of long pictures (pan and scan) are pictures of their own, where preprocessor_config.json asks for them.
"""

from collections.abc import Mapping
from typing import Any

from ramet.ipc.media import MediaKind, MediaToken
from ramet.runtime.media.formats.base import Decoded, Processed
from ramet.runtime.media.formats.pictures import PictureFormat

BEFORE, BEHIND = "\n\n<start_of_image>", "<end_of_image>\n\n"


class Gemma3Format(PictureFormat):
    image = MediaToken("<start_of_image>", "<image_soft_token>", 262144)
    is_whole = True
    usual_hidden = 2304

    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        made = self.image_processor(images=[decoded], return_tensors="np")
        pixels, picture = made["pixel_values"], (BEFORE, self.config.get("mm_tokens_per_image", 256), BEHIND)
        if len(pixels) == 1:
            return Processed({"pixel_values": pixels}, picture)
        written = ("Here is the original image ", *picture, " and here are some crops to help you see better ")
        crops = [part for number in range(1, len(pixels)) for part in ((" ", *picture) if number > 1 else picture)]
        return Processed({"pixel_values": pixels}, (*written, *crops))


FORMAT = Gemma3Format
