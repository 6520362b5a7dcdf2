"""InternVL (Chen et al. 2024): tiles in the grid that fits a picture's shape best, then the whole of it; films frame by
frame.
"""

from collections.abc import Mapping
from typing import Any

from ramet.ipc.media import MediaKind, MediaToken
from ramet.runtime.errors import ClientError
from ramet.runtime.media.formats.base import Decoded, Processed
from ramet.runtime.media.formats.pictures import PictureFormat
from ramet.runtime.media.formats.received import FEATURES, check_number, floats

BEFORE, BEHIND = "<img>", "</img>"
TEXT = "<IMG_CONTEXT>"
FRAMES = "pixel_values_videos"  # of transformers' class for films; the one for all media calls them pixel_values
BOUNDS = {"max_dynamic_patch": "max_patches", "min_dynamic_patch": "min_patches"}  # option -> of the processor


class InternVLFormat(PictureFormat):
    image = MediaToken(TEXT, TEXT, 151667)
    fps, max_frames = None, 8
    picture_options = "detail", *BOUNDS

    def _read_tokens(self) -> dict[MediaKind, MediaToken]:
        image = self._token(self.image, "image")
        return {MediaKind.IMAGE: image, MediaKind.VIDEO: MediaToken("<video>", TEXT, image.id)}

    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        if kind is MediaKind.VIDEO:
            frames = self.frames(decoded)
            return Processed({"pixel_values": frames}, self._written(kind, len(frames)))
        bounds = {name: int(options[option]) for option, name in BOUNDS.items() if options.get(option) is not None}
        fewest, most = (
            bounds.get(name, getattr(self.image_processor, name)) for name in ("min_patches", "max_patches")
        )
        if not 1 <= fewest <= most:
            raise ClientError(
                "", f"asks for {fewest} to {most} tiles, must be 1 or more, and the first at most the second"
            )
        made = self.image_processor(
            images=[decoded], return_tensors="np", crop_to_patches=options.get("detail") != "low", **bounds
        )
        tiles = made["pixel_values"]
        return Processed({"pixel_values": tiles}, self._written(kind, len(tiles)))

    def received(self, kind: MediaKind, arrays: Mapping[str, Any], are_features: bool) -> Processed:
        if are_features:
            features = self.received_features(arrays, self.tokens_of_tile)
            return Processed({FEATURES: features}, self._written(kind, len(features) // self.tokens_of_tile))
        edge = self.pixels("image_size", 448)
        if kind is MediaKind.VIDEO and FRAMES in arrays:
            tiles = floats(arrays, FRAMES, (1, None, 3, edge, edge))[0]
        else:
            tiles = floats(arrays, "pixel_values", (None, 3, edge, edge))
        check_number(arrays, "num_patches", len(tiles), "pixel_values")
        return Processed({"pixel_values": tiles}, self._written(kind, len(tiles)))

    @property
    def tokens_of_tile(self) -> int:
        return int(self.side(448, 14) ** 2 * self.config.get("downsample_ratio", 0.5) ** 2)

    def _written(self, kind: MediaKind, num: int) -> tuple[str | int, ...]:
        """So many tiles or frames."""
        if kind is MediaKind.IMAGE:
            return BEFORE, num * self.tokens_of_tile, BEHIND
        written: list[str | int] = []
        for number in range(1, num + 1):
            behind = f"{BEHIND}\n" if number > 1 else ""
            written += (f"{behind}Frame{number}: {BEFORE}", self.tokens_of_tile)
        return (*written, BEHIND)


FORMAT = InternVLFormat
