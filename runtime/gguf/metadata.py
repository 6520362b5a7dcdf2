"""Metadata of a GGUF file, read key by key; a key of its architecture that nobody reads is refused by name.

llama.cpp leaves out what is usual and adds a key where a model differs: an unread key may change what is computed,
unless its value is neutral.
"""

import json
from typing import Any

from ramet.runtime.errors import ConfigError
from ramet.runtime.gguf.file import GgufHeader
from ramet.runtime.gguf.neutral import is_neutral

MAX_COUNT = 2**31 - 1
HARMLESS = ("vocab_size", "attention.causal", "pooling_type", "attention.value_length", "rope.scaling.finetuned",
            "rope.scaling.yarn_log_multiplier", "interleave_moe_layer_step", "tensor_data_layout")  # fmt: skip


class Metadata:
    """Every reader raises ConfigError. Names are those behind the architecture's."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self._read: set[str] = set()
        name = header.metadata.get("general.architecture")
        if not isinstance(name, str):
            raise ConfigError(f"{header.path}: general.architecture is {name!r}, must be a text")
        self.architecture = name

    def error(self, name: str, must: str) -> ConfigError:
        key = self._key(name)
        shown = repr(self.header.metadata.get(key))
        return ConfigError(f"{self.header.path}: {key} is {shown if len(shown) <= 80 else shown[:77] + '...'}, {must}")

    def _key(self, name: str) -> str:
        return name if name.startswith(("general.", "tokenizer.")) else f"{self.architecture}.{name}"

    def get(self, name: str) -> Any:
        """None if it is not there."""
        self._read.add(self._key(name))
        return self.header.metadata.get(self._key(name))

    def is_neutral(self, name: str) -> bool:
        """Whether the key is there with a value that says nothing."""
        return self.get(name) is not None and is_neutral(name, self.get(name))

    def count(self, name: str, default: int | None = None) -> int:
        value = self.get(name)
        value = default if value is None else value
        if isinstance(value, list) and len(set(value)) == 1:  # one for each layer
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
            raise self.error(name, "must be an integer >= 1, the same for each layer")
        return value

    def optional_count(self, name: str) -> int | None:
        return self.count(name) if self.get(name) is not None else None

    def count_above_zero(self, name: str) -> int | None:
        """None also where the file says 0, which llama.cpp takes as none."""
        return None if self.get(name) == 0 else self.optional_count(name)

    def number(self, name: str, default: float | None = None) -> float:
        value = self.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, "must be a number")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        return self.number(name) if self.get(name) is not None else None

    def texts(self, name: str) -> list[str]:
        value = self.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.error(name, "must be a list of texts")
        return value

    def unknown(self, name: str) -> ConfigError:
        instead = json.dumps({self._key(name): None})
        return self.error(
            name,
            "a key that ramet does not know and that may change what the model computes; if it does not, leave it out "
            f"with --json-model-override-args '{instead}'",
        )

    def refuse_unread(self) -> None:
        """The architecture's keys must have been read, be harmless or have a neutral value."""
        for key, value in self.header.metadata.items():
            name = key.removeprefix(f"{self.architecture}.")
            if name != key and key not in self._read and name not in HARMLESS and not is_neutral(name, value):
                raise self.unknown(name)
