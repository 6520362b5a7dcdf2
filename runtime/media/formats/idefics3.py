"""Idefics3 and SmolVLM (Laurencon et al. 2024, Marafioti et al. 2025): a picture as a whole behind tiles of it, each
of which its row and column are written before.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ramet.ipc.media import MediaKind, MediaToken
from ramet.runtime.errors import ClientError
from ramet.runtime.media.formats.base import Decoded, Processed
from ramet.runtime.media.formats.pictures import PictureFormat
from ramet.runtime.media.formats.received import FEATURES, check_corners, floats, integers, shaped

BESIDE, WHOLE = "<fake_token_around_image>", "<global-img>"
MASK = "pixel_attention_mask"
MAX_TILES = 1 << 14  # in a row or a column


class Idefics3Format(PictureFormat):
    image = MediaToken("<image>", "<image>", 128257)
    picture_options = ("detail",)

    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        splits = {"do_image_splitting": False} if options.get("detail") == "low" else {}
        made = self.image_processor(images=[[decoded]], return_tensors="np", return_row_col_info=True, **splits)
        arrays = {name: made[name] for name in ("pixel_values", MASK)}  # [1, tiles, ...]
        return Processed(arrays, tuple(self._written(int(made["rows"][0][0]), int(made["cols"][0][0]))))

    def received(self, kind: MediaKind, arrays: Mapping[str, Any], are_features: bool) -> Processed:
        if are_features:
            features = self.received_features(arrays, self.tokens_of_tile)
            return self._placed({FEATURES: features}, len(features) // self.tokens_of_tile, arrays)
        edge = self.pixels("image_size", 224)
        pixels = floats(arrays, "pixel_values", (1, None, 3, edge, edge))
        is_tile = pixels.astype("float16").any((0, 2, 3, 4))  # zeros of a tower's dtype are padding to its class, too
        if not is_tile.any():
            raise ClientError("", "has pixel_values of zeros alone, which are padding to this model")
        mask = shaped(arrays, MASK, pixels.shape[:2] + pixels.shape[3:])[:, is_tile]
        check_corners(MASK, mask)
        own = {"pixel_values": pixels[:, is_tile], MASK: mask.astype("int64")}
        return self._placed(own, int(is_tile.sum()), arrays)

    def _placed(self, own: Mapping[str, Any], num: int, arrays: Mapping[str, Any]) -> Processed:
        """So many tiles, whose rows and columns a processor leaves out unless it is asked for them."""
        if num == 1:
            return Processed(own, tuple(self._written(0, 0)))
        if "rows" not in arrays and "cols" not in arrays:
            return Processed(own, (self.tokens_of_tile,) * num, is_expanded=True)
        rows, columns = (int(integers(arrays, name, (1, 1), 0, MAX_TILES)[0, 0]) for name in ("rows", "cols"))
        if (made := rows * columns + 1) != num:
            raise ClientError("", f"has {rows} rows and {columns} cols, which make {made} tiles, not {num}")
        return Processed(own, tuple(self._written(rows, columns)))

    @property
    def tokens_of_tile(self) -> int:
        return int(self.side(224, 32) ** 2 / int(self.config.get("scale_factor", 2)) ** 2)

    def _written(self, rows: int, columns: int) -> Iterator[str | int]:
        for row in range(1, rows + 1):
            for column in range(1, columns + 1):
                yield f"{BESIDE}<row_{row}_col_{column}>"
                yield self.tokens_of_tile
            yield "\n"
        yield ("\n" if rows else "") + BESIDE + WHOLE
        yield self.tokens_of_tile
        yield BESIDE


FORMAT = Idefics3Format
