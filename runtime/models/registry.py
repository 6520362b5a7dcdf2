"""From a model folder to its family. A family is imported when a model asks for it."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ramet.runtime.errors import ConfigError
from ramet.runtime.models.composite import COMPOSITES, HARMLESS, beside_towers, text_of
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.family import Family
from ramet.runtime.models.heads import has_second_head, head_of, headed_weights, is_bare, with_head, without_head
from ramet.runtime.models.quantization_config import read_quantization
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.weight_map import WeightMap

MAX_SIZE, MAX_LAYERS = (1 << 31) - 1, 1000  # of whole numbers of a config.json
LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")
FAMILIES = {  # architecture as Hugging Face names it -> the module of this folder with its FAMILY
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma4ForCausalLM": "gemma4",
    "Glm4ForCausalLM": "glm4",
    "Glm4MoeForCausalLM": "glm4_moe",
    "GlmForCausalLM": "glm",
    "GptOssForCausalLM": "gpt_oss",
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Phi3ForCausalLM": "phi3",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen2VLForConditionalGeneration": "qwen2_vl",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_vl",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3NextForCausalLM": "qwen3_next",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
    "Qwen3_5ForCausalLM": "qwen3_5",
    "Qwen3_5MoeForCausalLM": "qwen3_5_moe",
}
SUPPORTED = (*FAMILIES, *COMPOSITES)


def family_of(architecture: str) -> Family:
    if architecture not in FAMILIES:
        raise ConfigError(
            f"config.json: architecture {architecture} is not supported; supported: {', '.join(SUPPORTED)}"
        )
    family: Family = import_module(f"ramet.runtime.models.{FAMILIES[architecture]}").FAMILY
    return family


def weights_of(shape: ModelShape) -> WeightMap:
    """Which tensors of its checkpoint make up the model's parameters."""
    weights = family_of(shape.architecture).weights(shape)
    return headed_weights(COMPOSITES[shape.composite].around(weights) if shape.composite else weights, shape)


def read_shape(folder: Path, overrides: str = "") -> ModelShape:
    """Of the model in `folder`, by its family. Raises ConfigError that names the file and the key."""
    return as_named(parse_shape(read_config(folder, overrides), str(folder / "config.json")), folder)


def as_named(shape: ModelShape, folder: Path) -> ModelShape:
    """With the head that the names of the checkpoint's tensors leave it."""
    if not shape.generates:
        return shape
    if shape.composite and shape.tied_head and has_second_head(folder):  # some say that it is tied though it is another
        return replace(shape, tied_head=False)
    return without_head(shape) if not shape.tied_head and is_bare(folder) else shape


def read_config(folder: Path, overrides: str = "") -> dict[str, Any]:
    """config.json of `folder`, with what --json-model-override-args says in the place of its own keys.

    Raises ConfigError.
    """
    path = folder / "config.json"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    changes = _object(overrides, "--json-model-override-args") if overrides else {}
    values = {**_object(text, str(path)), **changes}
    _check_sizes(values, str(path))
    return values


def _check_sizes(values: dict[str, Any], place: str) -> None:
    """Of what is built before anything else could find it wrong. Raises ConfigError."""
    for key, value in values.items():
        if isinstance(value, dict):
            _check_sizes(value, f"{place}: {key}")
        elif isinstance(value, int):
            most = MAX_LAYERS if key in LAYER_COUNTS else MAX_SIZE
            if abs(value) > most:
                shown = value if abs(value) < 10**20 else f"an integer of {value.bit_length()} bits"
                raise ConfigError(f"{place}: {key} is {shown}, must be at most {most}")


def _object(text: str, place: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place} is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{place} holds {type(values).__name__}, must hold an object")
    return values


def architecture_of(values: dict[str, Any], place: str) -> str:
    """Raises ConfigError, also for a model that says of itself that it is not causal."""
    if values.get("is_causal") is False:
        raise ConfigError(f"{place}: is_causal is False, must be true: only causal attention is served")
    names = values.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise ConfigError(f"{place}: architectures is {names!r}, must be a list with the name of the model class")
    return names[0]


def parse_shape(values: dict[str, Any], place: str = "config.json") -> ModelShape:
    architecture, head = head_of(architecture_of(values, place), SUPPORTED)
    config = ConfigObject(values, architecture, place)
    shape, harmless = _read_decoder(config)
    shape = replace(shape, quantization=read_quantization(config))
    config.flag("is_causal", True)
    shape = with_head(shape, head, config)
    config.refuse_unread(harmless)
    return shape


def _read_decoder(config: ConfigObject) -> tuple[ModelShape, tuple[str, ...]]:
    """With the keys that change nothing."""
    if config.architecture not in COMPOSITES:
        family = family_of(config.architecture)
        return family.read_shape(config), (*family.harmless,)
    text, inner = text_of(config)
    family = family_of(text)
    shape = replace(family.read_shape(inner), architecture=text)
    return beside_towers(shape, config, inner), (*family.harmless, *HARMLESS)
