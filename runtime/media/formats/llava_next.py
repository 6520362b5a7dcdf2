"""LLaVA-NeXT (Liu et al. 2024): a picture as a whole, and tiles of it in the grid that fits its shape best.

Padding of the tiles has no tokens, and each row of patches ends with one more.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ramet.ipc.media import MediaKind
from ramet.runtime.media.formats.base import Decoded, Processed
from ramet.runtime.media.formats.pictures import PictureFormat

USUAL_GRIDS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]  # pixels


class LlavaNextFormat(PictureFormat):
    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        made = self.image_processor(images=[decoded], return_tensors="np")
        return self.tiled(made["pixel_values"], made["image_sizes"])

    def tiled(self, pixel_values: Any, image_sizes: Any) -> Processed:
        """[1, tiles, 3, height, width], and [1, 2]: the picture's own height and width."""
        height, width = (int(size) for size in image_sizes[0])
        return Processed({"pixel_values": pixel_values, "image_sizes": image_sizes}, (self.num_tokens(height, width),))

    @cached_property
    def grids(self) -> list[tuple[int, int]]:
        return [(int(height), int(width)) for height, width in self.config.get("image_grid_pinpoints") or USUAL_GRIDS]

    @property
    def patches(self) -> int:
        """Of a tile's edge."""
        return self.side(336, 14)

    def num_tokens(self, height: int, width: int) -> int:
        """Of a picture of so many pixels."""
        rows, columns = self.unpadded(height, width)
        return self.patches**2 + rows * (columns + 1)

    def unpadded(self, height: int, width: int) -> tuple[int, int]:
        """Patches of the tiles that are not padding, as the tower leaves them."""
        from transformers.image_processing_utils import select_best_resolution

        tile = self.pixels("image_size", 336)
        best = select_best_resolution((height, width), self.grids)
        rows, columns = (self.patches * (edge // tile) for edge in best)
        if width / height > columns / rows:
            rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
        else:
            columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
        return rows, columns


FORMAT = LlavaNextFormat
