"""LLaVA-NeXT (Liu et al. 2024): a picture as a whole, and tiles of it in the grid that fits its shape best.

Padding of the tiles has no tokens, and each row of patches ends with one more.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ramet.ipc.media import MediaKind
from ramet.runtime.errors import ClientError
from ramet.runtime.media.formats.base import Decoded, Processed
from ramet.runtime.media.formats.pictures import PictureFormat
from ramet.runtime.media.formats.received import FEATURES, floats, integers

USUAL_GRIDS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]  # pixels
MAX_SIDE = 1 << 20  # pixels of a client's picture


class LlavaNextFormat(PictureFormat):
    usual_edge = 336  # pixels of a tile

    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        made = self.image_processor(images=[decoded], return_tensors="np")
        return self.tiled(made["pixel_values"], made["image_sizes"])

    def received(self, kind: MediaKind, arrays: Mapping[str, Any], are_features: bool) -> Processed:
        if are_features:
            features = self.received_features(arrays)
            return Processed({FEATURES: features}, (len(features),))
        pixels = floats(arrays, "pixel_values", (1, None, 3, self.edge, self.edge))
        sizes = integers(arrays, "image_sizes", (1, 2), 1, MAX_SIDE)
        rows, columns = self.grid_of(*sizes[0].tolist())
        if pixels.shape[1] < (num := 1 + rows * columns):
            fact = f"has {pixels.shape[1]} tiles of pixel_values, must have the {num} of its image_sizes"
            raise ClientError("", fact)
        return self.tiled(pixels[:, :num], sizes)  # those behind are padding to the model's class, too

    def tiled(self, pixel_values: Any, image_sizes: Any) -> Processed:
        """[1, tiles, 3, height, width], and [1, 2]: the picture's own height and width."""
        height, width = (int(size) for size in image_sizes[0])
        return Processed({"pixel_values": pixel_values, "image_sizes": image_sizes}, (self.num_tokens(height, width),))

    @cached_property
    def grids(self) -> list[tuple[int, int]]:
        return [(int(height), int(width)) for height, width in self.config.get("image_grid_pinpoints") or USUAL_GRIDS]

    @property
    def edge(self) -> int:
        """Pixels of a tile."""
        return self.pixels("image_size", self.usual_edge)

    @property
    def patches(self) -> int:
        """Of a tile's edge."""
        return self.side(self.usual_edge, 14)

    def num_tokens(self, height: int, width: int) -> int:
        """Of a picture of so many pixels."""
        rows, columns = self.unpadded(height, width)
        return self.patches**2 + rows * (columns + 1)

    def grid_of(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tiles."""
        from transformers.image_processing_utils import select_best_resolution

        rows, columns = (edge // self.edge for edge in select_best_resolution((height, width), self.grids))
        return rows, columns

    def unpadded(self, height: int, width: int) -> tuple[int, int]:
        """Patches of the tiles that are not padding, as the tower leaves them."""
        rows, columns = (self.patches * num for num in self.grid_of(height, width))
        if width / height > columns / rows:
            rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
        else:
            columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
        return rows, columns


FORMAT = LlavaNextFormat
