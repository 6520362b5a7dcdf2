"""What formats of picture models share: the folder's files, ids of tokens, and transformers' Pillow processors."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ramet.ipc.media import MediaKind, MediaToken, MediaTokens
from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.media.formats.base import Frames, MediaFormat
from ramet.runtime.media.formats.received import FEATURES, floats
from ramet.runtime.text.files import read_json

PICTURES, FILMS, ALL = "preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"
OF_FRAMES = (  # keys of a film's processor that are those of a picture's
    "do_resize", "size", "resample", "do_center_crop", "crop_size", "do_rescale", "rescale_factor", "do_normalize",
    "image_mean", "image_std", "do_convert_rgb",
)  # fmt: skip


class PictureFormat(MediaFormat):
    """`config`: config.json. A family says which tokens it has, and what `prepare` makes."""

    image = MediaToken("<image>", "<image>", 32000)  # id: where config.json says none
    film: MediaToken | None = None
    usual_hidden = 4096  # size of the text model's states, likewise

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, read_json(folder / "config.json")
        self.tokens = self._read_tokens()

    def _read_tokens(self) -> MediaTokens:
        tokens = {MediaKind.IMAGE: self._token(self.image, "image")}
        if self.film is not None:
            tokens[MediaKind.VIDEO] = self._token(self.film, "video")
        return tokens

    def _token(self, usual: MediaToken, kind: str) -> MediaToken:
        """Its id in config.json goes before the usual one."""
        names = f"{kind}_token_id", f"{kind}_token_index"
        name = next((name for name in names if self.config.get(name) is not None), names[0])
        found = self.config.get(name, usual.id)
        if not isinstance(found, int) or isinstance(found, bool):
            raise ConfigError(f"{self.folder / 'config.json'}: {name} is {found!r}, must be a token id")
        return MediaToken(usual.placeholder, usual.text, found)

    @property
    def settings(self) -> bytes:
        return json.dumps([read_json(self.folder / name) for name in (PICTURES, FILMS, ALL)], sort_keys=True).encode()

    def received_features(self, arrays: Mapping[str, Any], unit: int = 1) -> Any:
        """[n, N] of a client, n a multiple of `unit`. Raises ClientError without a place."""
        text = self.config.get("text_config") or {}
        features = floats(arrays, FEATURES, (None, int(text.get("hidden_size", self.usual_hidden))))
        if len(features) % unit:
            raise ClientError("", f"has {FEATURES} of {len(features)} tokens, must be a multiple of {unit}")
        return features

    @property
    def vision(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.config.get("vision_config") or {}
        return found

    def pixels(self, name: str, usual: int) -> int:
        """Of the tower's config: an edge of a square."""
        found = self.vision.get(name, usual)
        return int(found[0] if isinstance(found, list) else found)

    def side(self, image: int, patch: int) -> int:
        """Patches of a tile's edge, where config.json does not say these sizes."""
        return self.pixels("image_size", image) // self.pixels("patch_size", patch)

    @cached_property
    def image_processor(self) -> Any:
        """Of pictures."""
        from transformers import AutoImageProcessor

        load: Any = AutoImageProcessor.from_pretrained
        return load(self.folder, backend="pil", local_files_only=True)

    @cached_property
    def _frame_processor(self) -> Any:
        """transformers' classes for films need torchvision; these do the same to each frame as this one does."""
        from transformers import SiglipImageProcessorPil

        whole = read_json(self.folder / ALL).get("video_processor")
        found = read_json(self.folder / FILMS) or whole or self.image_processor.to_dict()
        return SiglipImageProcessorPil(**{name: found[name] for name in OF_FRAMES if found.get(name) is not None})

    def frames(self, film: Frames) -> Any:
        """[frames, 3, height, width]"""
        return self._frame_processor(images=film.images, return_tensors="np")["pixel_values"]
