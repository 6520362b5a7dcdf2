"""Qwen3-VL (Qwen Team 2025): as Qwen2-VL, but each two frames of a film are a picture of their own in the prompt,
behind the text of the time that they are shown at; and all frames together have as many pixels as the processor says.
"""

from collections.abc import Mapping
from typing import Any

from ramet.ipc.media import Grid, MediaKind
from ramet.runtime.media.formats.base import Frames, Processed
from ramet.runtime.media.formats.qwen2_vl import FilmSettings, Qwen2VLFormat

BEGIN, END = "<|vision_start|>", "<|vision_end|>"
HALF = [0.5, 0.5, 0.5]


class Qwen3VLFormat(Qwen2VLFormat):
    needs_torch = True  # where transformers has `smart_resize` of films
    usual = FilmSettings({"shortest_edge": 128 * 32 * 32, "longest_edge": 768 * 32 * 32}, 16, 2, 2, HALF, HALF)

    def frames_of(self, total: int, rate: float, fps: float | None, most: int) -> list[int]:
        """From the first to the last."""
        import numpy as np

        wanted = most if fps is None else max(int(total / rate * fps), self._min_frames)
        indices: list[int] = np.linspace(0, total - 1, min(wanted, most, total)).round().astype(int).tolist()
        return indices

    def received(self, kind: MediaKind, arrays: Mapping[str, Any], are_features: bool) -> Processed:
        return super().received(kind, arrays, are_features)._replace(is_expanded=kind is MediaKind.VIDEO)

    def _film_arrays(self, film: Frames, options: Mapping[str, Any]) -> Processed:
        made, joined = super()._film_arrays(film, options), self._film_settings.temporal_patch_size
        times = [*film.times, *film.times[-1:] * (-len(film.times) % joined)]
        expansion: list[str | int] = []
        for first, last, num in zip(times[::joined], times[joined - 1 :: joined], made.expansion, strict=True):
            expansion += [f"<{(first + last) / 2:.1f} seconds>{BEGIN}", num, END]
        return made._replace(expansion=tuple(expansion))

    def _placed(self, arrays: Mapping[str, Any], times: tuple[int, ...], height: int, width: int) -> Processed:
        grid = Grid((0,), height, width)
        return Processed(arrays, (grid.num_tokens,) * len(times), (grid,) * len(times))

    @property
    def _width(self) -> int:
        levels = self.vision.get("deepstack_visual_indexes", (8, 16, 24))
        return super()._width * (1 + len(levels))

    def _film_size(self, film: Frames, least: int, most: int) -> tuple[int, int]:
        from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize

        settings, (width, height) = self._film_settings, film.images[0].size
        num = max(len(film.images), settings.temporal_patch_size)
        found: tuple[int, int] = smart_resize(
            num, height, width, settings.temporal_patch_size, settings.factor, least, most
        )
        return found


FORMAT = Qwen3VLFormat
