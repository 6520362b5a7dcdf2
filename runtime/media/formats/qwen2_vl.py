"""Qwen2-VL and Qwen2.5-VL (Wang et al. 2024, Bai et al. 2025): a picture keeps its shape, and has as many tokens as it
is large; a film has those of each two frames.

A film's arrays are made here, as transformers' class for them needs torchvision: frames are resized and normalised by
Pillow and numpy, as pictures are. P patches of a piece, each of `merge_size` squared of which become a token.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ramet.ipc.media import Grid, MediaKind, MediaToken
from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.media.formats.base import Decoded, Frames, Processed
from ramet.runtime.media.formats.pictures import ALL, FILMS, PICTURES, PictureFormat
from ramet.runtime.media.formats.received import FEATURES, floats, shaped
from ramet.runtime.text.files import read_json

ARRAYS = {  # names of a piece's patches and of its grid of them
    MediaKind.IMAGE: ("pixel_values", "image_grid_thw"),
    MediaKind.VIDEO: ("pixel_values_videos", "video_grid_thw"),
}
SECONDS = "second_per_grid_ts"
MAX_SIDE, MAX_SECONDS = 1 << 14, 3600.0
LOW_DETAIL = 512 * 512  # pixels
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


class FilmSettings(NamedTuple):
    """Of its processor."""

    size: dict[str, int]  # fewest and most pixels, as shortest_edge and longest_edge
    patch_size: int
    temporal_patch_size: int
    merge_size: int
    image_mean: list[float]
    image_std: list[float]
    rescale_factor: float = 1 / 255

    @property
    def factor(self) -> int:
        """Pixels of a token's edge."""
        return self.patch_size * self.merge_size


class Qwen2VLFormat(PictureFormat):
    image = MediaToken("<|image_pad|>", "<|image_pad|>", 151655)
    film = MediaToken("<|video_pad|>", "<|video_pad|>", 151656)
    picture_options = film_options = "detail", "min_pixels", "max_pixels"
    usual = FilmSettings({"shortest_edge": 128 * 28 * 28, "longest_edge": 768 * 28 * 28}, 14, 2, 2, CLIP_MEAN, CLIP_STD)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        found = self._film_config
        self.fps, self.max_frames = float(found.get("fps") or 2.0), int(found.get("max_frames") or 768)
        self._min_frames = int(found.get("min_frames") or 4)

    @property
    def settings(self) -> bytes:
        return super().settings + json.dumps(self.vision, sort_keys=True).encode()

    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        return self._picture(decoded, options) if kind is MediaKind.IMAGE else self._film_arrays(decoded, options)

    def received(self, kind: MediaKind, arrays: Mapping[str, Any], are_features: bool) -> Processed:
        pixels, thw = ARRAYS[kind]
        given = shaped(arrays, thw, (1, 3))
        if given.dtype.kind not in "iu":
            raise ClientError("", f"has {thw} of {given.dtype}, must be integers")
        frames, rows, columns = given[0].tolist()
        settings = self._film_settings if kind is MediaKind.VIDEO else self.image_processor
        merged, max_frames = settings.merge_size, MAX_SIDE if kind is MediaKind.VIDEO else 1
        if not 1 <= frames <= max_frames or not all(
            1 <= side <= MAX_SIDE and side % merged == 0 for side in (rows, columns)
        ):
            fact = f"must be 1 to {max_frames}, and two multiples of {merged} up to {MAX_SIDE}"
            raise ClientError("", f"has {thw} {[frames, rows, columns]}, {fact}")
        height, width = rows // merged, columns // merged
        if are_features:
            own = {FEATURES: floats(arrays, FEATURES, (frames * height * width, self._width))}
        else:
            size = 3 * settings.temporal_patch_size * settings.patch_size**2
            own = {pixels: floats(arrays, pixels, (frames * rows * columns, size)), thw: given.astype("int64")}
        seconds = float(shaped(arrays, SECONDS, (1,))[0]) if SECONDS in arrays else 1.0
        if not 0 <= seconds <= MAX_SECONDS:
            raise ClientError("", f"has {SECONDS} {seconds}, must be at most {MAX_SECONDS}")
        return self._placed(own, self._steps(frames, seconds), height, width)

    @property
    def _width(self) -> int:
        """Numbers of a token's features."""
        return int((self.config.get("text_config") or self.config).get("hidden_size", 8192))

    def _placed(self, arrays: Mapping[str, Any], times: tuple[int, ...], height: int, width: int) -> Processed:
        """Arrays that have so many tokens."""
        grid = Grid(times, height, width)
        return Processed(arrays, (grid.num_tokens,), (grid,))

    # -- pictures -----------------------------------------------------------------------------------------------------

    def _picture(self, image: Any, options: Mapping[str, Any]) -> Processed:
        own = self.image_processor
        least, most = pixels_of(options, own.size["shortest_edge"], own.size["longest_edge"])
        check_shape(image)
        made = own(images=[image], size={"shortest_edge": least, "longest_edge": most}, return_tensors="np")
        _, rows, columns = (int(each) for each in made["image_grid_thw"][0])
        arrays = {name: made[name] for name in ARRAYS[MediaKind.IMAGE]}
        return self._placed(arrays, (0,), rows // own.merge_size, columns // own.merge_size)

    # -- films --------------------------------------------------------------------------------------------------------

    @cached_property
    def _film_config(self) -> dict[str, Any]:
        """As transformers finds it: the older files have none of their own for films."""
        nested = read_json(self.folder / ALL).get("video_processor")
        return nested or read_json(self.folder / FILMS) or read_json(self.folder / PICTURES)

    @cached_property
    def _film_settings(self) -> FilmSettings:
        given = self._film_config
        found = {name: given[name] for name in FilmSettings._fields if given.get(name) is not None}
        size, usual = found.get("size", {}), self.usual.size
        names = (("shortest_edge", "min_pixels"), ("longest_edge", "max_pixels"))
        found["size"] = {edge: given.get(name) or size.get(edge) or usual[edge] for edge, name in names}
        return self.usual._replace(**found)

    def frames_of(self, total: int, rate: float, fps: float | None, most: int) -> list[int]:
        """A whole number of times that are joined, each frame as far from the next one."""
        joined = self._film_settings.temporal_patch_size
        wanted = most if fps is None else max(total / rate * fps, self._min_frames)
        num = max(int(min(wanted, most, total) / joined) * joined, min(joined, total))
        return [i * total // num for i in range(num)]

    def _film_arrays(self, film: Frames, options: Mapping[str, Any]) -> Processed:
        import numpy as np

        settings = self._film_settings
        check_shape(film.images[0])
        height, width = self._film_size(film, *pixels_of(options, *settings.size.values()))
        frames = -(-len(film.images) // settings.temporal_patch_size)
        rows, columns = height // settings.patch_size, width // settings.patch_size
        names, grid = ARRAYS[MediaKind.VIDEO], np.array([[frames, rows, columns]])
        arrays = dict(zip(names, (patches_of(film, height, width, settings), grid), strict=True))
        apart_s = (film.times[-1] - film.times[0]) / max(len(film.times) - 1, 1) * settings.temporal_patch_size
        times = self._steps(frames, apart_s)
        return self._placed(arrays, times, rows // settings.merge_size, columns // settings.merge_size)

    def _film_size(self, film: Frames, least: int, most: int) -> tuple[int, int]:
        """Height and width of each frame, which have pixels in that range."""
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        width, height = film.images[0].size
        found: tuple[int, int] = smart_resize(height, width, self._film_settings.factor, least, most)
        return found

    def _steps(self, num: int, apart_s: float) -> tuple[int, ...]:
        """Places of what is joined of a film, which are so many seconds apart. Only Qwen2.5-VL counts seconds."""
        import numpy as np

        per_second = self.vision.get("tokens_per_second", 4)
        step = per_second * apart_s if self.config["architectures"][0].startswith("Qwen2_5") else 1
        return tuple(int(i * np.float32(step)) for i in range(num))


def pixels_of(options: Mapping[str, Any], least: int, most: int) -> tuple[int, int]:
    """Fewest and most of a picture or frame, within the processor's own. Raises ClientError."""
    if options.get("detail") == "low":
        most = min(most, max(LOW_DETAIL, least))
    asked_least, asked_most = options.get("min_pixels") or least, options.get("max_pixels") or most
    for name, asked in (("min_pixels", asked_least), ("max_pixels", asked_most)):
        if not isinstance(asked, int) or isinstance(asked, bool) or not 1 <= asked <= most:
            raise ClientError("", f"has {name} {shown(asked)}, must be an integer from 1 to {most}")
    return min(asked_least, asked_most), asked_most


def check_shape(image: Any) -> None:
    """Raises ClientError for what the processor refuses."""
    width, height = image.size
    if max(width, height) > 200 * min(width, height):
        raise ClientError("", f"has {width} x {height} pixels, must be at most 200 times as long as wide")


def patches_of(film: Frames, height: int, width: int, settings: FilmSettings) -> Any:
    """[P, 3 * temporal_patch_size * patch_size**2] float32, joined squares behind each other."""
    import numpy as np
    from PIL import Image

    size, joined, merged = settings.patch_size, settings.temporal_patch_size, settings.merge_size
    images = [*film.images, *film.images[-1:] * (-len(film.images) % joined)]
    mean, std = (np.array(each, np.float32)[:, None, None] for each in (settings.image_mean, settings.image_std))
    pixels = np.empty((len(images), 3, height, width), np.float32)
    for at, image in enumerate(images):
        resized = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC)).transpose(2, 0, 1)
        pixels[at] = ((resized * settings.rescale_factor).astype(np.float32) - mean) / std
    apart = (
        len(images) // joined,
        joined,
        3,
        height // size // merged,
        merged,
        size,
        width // size // merged,
        merged,
        size,
    )
    ordered = pixels.reshape(apart).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
    return ordered.reshape(-1, 3 * joined * size**2)


FORMAT = Qwen2VLFormat
