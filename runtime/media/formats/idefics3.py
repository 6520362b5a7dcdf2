"""Idefics3 and SmolVLM (Laurencon et al. 2024, Marafioti et al. 2025): a picture as a whole behind tiles of it, each
of which its row and column are written before.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ramet.ipc.media import MediaKind, MediaToken
from ramet.runtime.media.formats.base import Decoded, Processed
from ramet.runtime.media.formats.pictures import PictureFormat

BESIDE, WHOLE = "<fake_token_around_image>", "<global-img>"


class Idefics3Format(PictureFormat):
    image = MediaToken("<image>", "<image>", 128257)

    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        splits = {"do_image_splitting": False} if options.get("detail") == "low" else {}
        made = self.image_processor(images=[[decoded]], return_tensors="np", return_row_col_info=True, **splits)
        arrays = {name: made[name] for name in ("pixel_values", "pixel_attention_mask")}  # [1, tiles, ...]
        return Processed(arrays, tuple(self._written(int(made["rows"][0][0]), int(made["cols"][0][0]))))

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
