"""LLaVA-1.5 (Liu et al. 2023): a picture of one size, cut into patches, each of which becomes a token."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ramet.ipc.media import MediaKind, MediaToken
from ramet.runtime.errors import ConfigError
from ramet.runtime.media.formats.base import Decoded, MediaFormat, Processed
from ramet.runtime.media.formats.received import FEATURES, floats
from ramet.runtime.text.files import read_json

IMAGE_TEXT = "<image>"


class LlavaFormat(MediaFormat):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = read_json(folder / "config.json")
        token = self.config.get("image_token_id", self.config.get("image_token_index", 32000))
        if not isinstance(token, int) or isinstance(token, bool):
            raise ConfigError(f"{folder / 'config.json'}: image_token_id is {token!r}, must be a token id")
        self.tokens = {MediaKind.IMAGE: MediaToken(IMAGE_TEXT, IMAGE_TEXT, token)}

    @property
    def settings(self) -> bytes:
        names = "preprocessor_config.json", "processor_config.json"
        return json.dumps([read_json(self.folder / name) for name in names], sort_keys=True).encode()

    @cached_property
    def _processor(self) -> Any:
        from transformers import AutoImageProcessor

        load: Any = AutoImageProcessor.from_pretrained
        return load(self.folder, backend="pil", local_files_only=True)

    @cached_property
    def _tokens_of_picture(self) -> int:
        vision: dict[str, int] = self.config.get("vision_config", {})
        whole: int = (vision.get("image_size", 336) // vision.get("patch_size", 14)) ** 2
        return whole + int(self.config.get("vision_feature_select_strategy", "default") != "default")

    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        made = self._processor(images=[decoded], return_tensors="np")
        return Processed({"pixel_values": made["pixel_values"]}, (self._tokens_of_picture,))

    def received(self, kind: MediaKind, arrays: Mapping[str, Any], are_features: bool) -> Processed:
        if are_features:
            features = floats(arrays, FEATURES, (None, self.config.get("text_config", {}).get("hidden_size", 4096)))
            return Processed({FEATURES: features}, (len(features),))
        size: int = self.config.get("vision_config", {}).get("image_size", 336)
        return Processed(
            {"pixel_values": floats(arrays, "pixel_values", (1, 3, size, size))}, (self._tokens_of_picture,)
        )


FORMAT = LlavaFormat
