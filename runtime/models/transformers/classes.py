"""From config.json to a class of transformers and its config, and what is refused by its name alone.

Decides which classes can be asked at all. Code of a checkpoint (`auto_map`) is never executed. Knows no tensor.
"""

import logging
from typing import Any

from ramet.runtime.errors import ConfigError, describe

log = logging.getLogger("ramet")

ATTENDED = ("full_attention", "sliding_attention")  # `layer_types` whose masks the cache has
STRETCHED = ("dynamic", "longrope")  # ropes that turn every key anew once a sequence is longer than what was trained
COUNTS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
NOT_INSTALLED = "needs the package transformers, which is not installed: pip install 'ramet[serve]'"


class NotServed(ConfigError):
    """A model that transformers' modules cannot serve here; the message says what of it."""


def made_of(values: dict[str, Any], place: str) -> tuple[Any, Any]:
    """The class of `architectures` and its config, an object of its own. Raises NotServed."""
    try:
        import transformers
        from transformers.models.auto import modeling_auto
    except ImportError:
        raise NotServed(f"{place}: serving it through transformers {NOT_INSTALLED}") from None
    name = values["architectures"][0]
    model_class = getattr(transformers, name, None)
    if model_class is None:
        own = "; its code is in the checkpoint (auto_map), and such code is never run" if "auto_map" in values else ""
        raise NotServed(f"{place}: architecture {name} is unknown to transformers {transformers.__version__}{own}")
    if name not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        raise NotServed(f"{place}: architecture {name} is not a causal language model of transformers")
    config = _config_of(model_class, values, place)
    _check(config, name, place)
    return model_class, config


def _config_of(model_class: Any, values: dict[str, Any], place: str) -> Any:
    own = {key: value for key, value in values.items() if key not in ("auto_map", "attn_implementation")}
    own = {key: value for key, value in own.items() if not key.startswith("_")}
    try:
        return model_class.config_class.from_dict(own)
    except Exception as error:  # of many kinds, by which transformers says that a value is wrong
        what = describe(error).replace("\n", " ")
        raise NotServed(f"{place}: transformers reads no {model_class.config_class.__name__} in it: {what}") from error


def _check(config: Any, name: str, place: str) -> None:
    """What a config says of itself. Raises NotServed."""
    for key in COUNTS:
        if (count := getattr(config, key, None)) is not None and (not isinstance(count, int) or count < 1):
            raise NotServed(f"{place}: {key} is {count!r}, must be an integer >= 1")
    if getattr(config, "is_encoder_decoder", False):
        raise NotServed(f"{place}: is_encoder_decoder is true, and {name} reads prompts with an encoder")
    if getattr(config, "quantization_config", None) is not None:
        raise NotServed(
            f"{place}: quantization_config is set, and quantised weights are read for families of our own alone"
        )
    if getattr(config, "attn_temperature_tuning", False):
        raise NotServed(f"{place}: attn_temperature_tuning is set, by which {name} counts the tokens of one sequence")
    others = sorted({str(each) for each in getattr(config, "layer_types", None) or ()} - set(ATTENDED))
    if others:
        raise NotServed(f"{place}: layer_types has {', '.join(others)}, must be {' or '.join(ATTENDED)}: {name}")


def ropes_of(config: Any) -> list[dict[str, Any]]:
    """The objects that say how positions turn queries and keys: one, or one for each type of layers."""
    given = getattr(config, "rope_parameters", None)
    if not isinstance(given, dict):
        return []
    inner = [each for each in given.values() if isinstance(each, dict) and "rope_type" in each]
    return inner or [given]


def context_of(config: Any, place: str) -> int:
    """Tokens of a sequence at most: no rope is stretched within them. Raises NotServed."""
    length = getattr(config, "max_position_embeddings", None)
    if not isinstance(length, int) or length < 2:
        raise NotServed(f"{place}: max_position_embeddings is {length!r}, must be an integer >= 2: the context")
    for rope in ropes_of(config):
        kind, trained = rope.get("rope_type"), rope.get("original_max_position_embeddings")
        if kind in STRETCHED and isinstance(trained, int) and trained < length:
            log.warning(
                "the context is %d tokens instead of %d: beyond it rope_type %s turns every key anew, of all rows of "
                "a step", trained, length, kind,
            )  # fmt: skip
            length = trained
    return length
