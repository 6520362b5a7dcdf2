"""adapter_config.json as PEFT writes it: the rank and the scale of each module, and what is refused.

A key that this file does not know is refused by name if it asks for something. Reads no tensor.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ramet.runtime.errors import ConfigError

FILE = "adapter_config.json"
READ = frozenset({"peft_type", "r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern"})
# what the tensors' names say as well, how it was trained, and where it comes from
HARMLESS = frozenset({
    "arrow_config", "auto_mapping", "base_model_name_or_path", "corda_config", "eva_config", "exclude_modules",
    "inference_mode", "layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout", "lora_ga_config",
    "megatron_core", "modules_to_save", "peft_version", "qalora_group_size", "revision", "runtime_config",
    "target_modules", "task_type",
})  # fmt: skip
PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")  # that leave the model's weights as they are
REFUSED = {  # key -> the values that ask for nothing, beside null, false and what is empty
    "bias": ("none",), "fan_in_fan_out": (), "lora_bias": (), "target_parameters": (), "trainable_token_indices": (),
}  # fmt: skip
LARGEST = 1 << 31
MAX_PATTERN, MAX_REPEATS = 4096, 3
REPEATS, REPEATED_GROUP = re.compile(r"(?<!\\)[*+{]"), re.compile(r"(?<!\\)\)[*+{]")


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    rank: int
    alpha: float
    rslora: bool  # scales by alpha / sqrt(rank)
    dora: bool
    ranks: dict[str, int]  # pattern of a module's name -> its rank; the first match counts
    alphas: dict[str, float]

    def rank_of(self, module: str) -> int:
        return self.ranks.get(_matching(self.ranks, module), self.rank)

    def scale_of(self, module: str) -> float:
        rank, alpha = self.rank_of(module), self.alphas.get(_matching(self.alphas, module), self.alpha)
        return alpha / (math.sqrt(rank) if self.rslora else rank)


def _matching(patterns: dict[str, Any], module: str) -> str:
    """Patterns are regular expressions of a name's end."""
    return next((pattern for pattern in patterns if re.match(rf"(.*\.)?({pattern})$", module)), "")


def read_config(folder: Path) -> AdapterConfig:
    """Raises ConfigError that names the file and the key."""
    path = folder / FILE
    if not path.is_file():
        raise ConfigError(f"{path} cannot be read: it is not a file")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds {type(values).__name__}, must hold an object")
    _check(values, path)
    return AdapterConfig(
        values["r"],
        float(values["lora_alpha"]),
        bool(values.get("use_rslora")),
        bool(values.get("use_dora")),
        _pattern(values, "rank_pattern", path),
        _pattern(values, "alpha_pattern", path),
    )


def _check(values: dict[str, Any], path: Path) -> None:
    for key in ("peft_type", "r", "lora_alpha"):
        if key not in values:
            raise ConfigError(f"{path}: {key} is missing")
    if values["peft_type"] != "LORA":
        raise ConfigError(f"{path}: peft_type is {values['peft_type']!r}, must be 'LORA': no other adapters are built")
    if not _is_rank(values["r"]):
        raise ConfigError(f"{path}: r is {values['r']!r}, must be an integer >= 1")
    if not _is_number(values["lora_alpha"]):
        raise ConfigError(f"{path}: lora_alpha is {values['lora_alpha']!r}, must be a number")
    for key in ("use_rslora", "use_dora"):
        if not isinstance(values.get(key), bool | None):
            raise ConfigError(f"{path}: {key} is {values[key]!r}, must be true or false")
    start = values.get("init_lora_weights")
    if not isinstance(start, str | bool | None) or start not in PLAIN_STARTS:
        raise ConfigError(
            f"{path}: init_lora_weights is {start!r}, which changes the model's own weights: save the adapter anew "
            "with path_initial_model_for_weight_conversion"
        )
    for key in values.keys() - READ - HARMLESS - {"init_lora_weights"}:
        value = values[key]
        if value and value not in REFUSED.get(key, ()):
            raise ConfigError(f"{path}: {key} is {value!r}, which is not built")


def _pattern(values: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    found = values.get(key) or {}
    is_valid = _is_rank if key == "rank_pattern" else _is_number
    if not isinstance(found, dict) or not all(map(is_valid, found.values())):
        raise ConfigError(f"{path}: {key} is {found!r}, must be an object of numbers")
    for pattern in found:
        if fact := _wrong_pattern(pattern):
            raise ConfigError(f"{path}: {key} has {pattern[:100]!r}, which {fact}")
    return found


def _wrong_pattern(pattern: str) -> str:
    """Empty: it is matched within a moment. Trying out what a repeated group repeats may take for ever."""
    if len(pattern) > MAX_PATTERN or len(REPEATS.findall(pattern)) > MAX_REPEATS or REPEATED_GROUP.search(pattern):
        return f"repeats a group, or has more than {MAX_REPEATS} repetitions or {MAX_PATTERN} characters"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}"
    return ""


def _is_rank(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < LARGEST


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST
