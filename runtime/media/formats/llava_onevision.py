"""LLaVA-OneVision (Li et al. 2024): tiles as in LLaVA-NeXT, fewer tokens of the largest pictures, and films.

A picture that is one of several in a prompt, or asked for in low detail, is padded to one square tile.
"""

import math
from collections.abc import Mapping
from typing import Any

from ramet.ipc.media import MediaKind, MediaToken
from ramet.runtime.media.formats.base import Decoded, Processed
from ramet.runtime.media.formats.llava_next import MAX_SIDE, LlavaNextFormat
from ramet.runtime.media.formats.received import floats, integers

USUAL_RATIO = "anyres_max_9"
BESIDE, MAX_BESIDE = "batch_num_images", 1 << 16  # pictures of a client's prompt, this one among them
SLACK = 1.1  # of the edges, before tokens become fewer


class LlavaOnevisionFormat(LlavaNextFormat):
    image = MediaToken("<image>", "<image>", 151646)
    film = MediaToken("<video>", "<video>", 151647)
    picture_options = "detail", "num_pictures"
    fps, max_frames = None, 32
    usual_edge = 384

    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        if kind is MediaKind.VIDEO:
            return self.film_of(self.frames(decoded)[None])
        if options.get("num_pictures", 1) == 1 and options.get("detail") != "low":
            return super().prepare(kind, decoded, options)
        made = self.image_processor(images=[[decoded, decoded]], return_tensors="np")  # as it does with several
        return self._squared(made["pixel_values"][:1], made["image_sizes"][:1])

    def received(self, kind: MediaKind, arrays: Mapping[str, Any], are_features: bool) -> Processed:
        if are_features:
            return super().received(kind, arrays, are_features)
        if kind is MediaKind.VIDEO:
            return self.film_of(floats(arrays, "pixel_values_videos", (1, None, 3, self.edge, self.edge)))
        pixels = floats(arrays, "pixel_values", (1, None, 3, self.edge, self.edge))
        beside = integers(arrays, BESIDE, (1,), 1, MAX_BESIDE)[0] if BESIDE in arrays else 1
        if pixels.shape[1] > 1 and beside == 1:
            return super().received(kind, arrays, are_features)
        return self._squared(pixels[:, :1], integers(arrays, "image_sizes", (1, 2), 1, MAX_SIDE))

    def _squared(self, pixel_values: Any, image_sizes: Any) -> Processed:
        return Processed({"pixel_values": pixel_values, "image_sizes": image_sizes}, (self.patches**2 + 1,))

    def film_of(self, pixel_values: Any) -> Processed:
        """[1, frames, 3, height, width]"""
        return Processed(
            {"pixel_values_videos": pixel_values}, (pixel_values.shape[1] * math.ceil(self.patches / 2) ** 2 + 1,)
        )

    def unpadded(self, height: int, width: int) -> tuple[int, int]:
        rows, columns = super().unpadded(height, width)
        most = int((self.config.get("vision_aspect_ratio") or USUAL_RATIO).removeprefix("anyres_max_"))
        ratio = math.sqrt(rows * columns / (most * self.patches**2))
        return (int(rows // ratio), int(columns // ratio)) if ratio > SLACK else (rows, columns)


FORMAT = LlavaOnevisionFormat
