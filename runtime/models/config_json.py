"""config.json as a family reads it: each key is checked where it is read, and an unread key is refused by name.

A key that a family reads is understood. Any other must be on a list of harmless keys, have a neutral value (null,
false, empty) or start with an underscore; if not, it may change what the model computes, so it is a ConfigError.
"""

from collections.abc import Collection
from typing import Any

from ramet.runtime.errors import ConfigError

MAX_COUNT, MAX_NUMBER = 2**31 - 1, 3e38  # what int32 and float32 hold

# What a forward pass does not need.
HARMLESS = frozenset({
    # files and classes
    "architectures", "auto_map", "model_name", "model_type", "name_or_path", "tokenizer_class",
    "tokenizer_model_max_length", "transformers_version", "unsloth_fixed", "unsloth_version",
    # what is made of a head's numbers
    "classifier_from_token", "is_original_qwen3_reranker", "sbert_ce_default_activation_function",
    "sentence_transformers",
    # tokens
    "bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id", "prefix", "sep_token_id", "unk_token_id",
    # training
    "attention_dropout", "attn_pdrop", "embd_pdrop", "finetuning_task", "gradient_checkpointing", "hidden_dropout",
    "hidden_dropout_prob", "id2label", "initializer_range", "label2id", "neftune_noise_alpha", "num_labels",
    "problem_type", "resid_pdrop", "task_specific_params",
    # how a library runs it
    "attn_implementation", "cache_implementation", "chunk_size_feed_forward", "cross_attention_hidden_size",
    "keys_to_ignore_at_inference", "output_attentions", "output_hidden_states", "output_past", "output_scores",
    "pretraining_tp", "return_dict", "return_dict_in_generate", "tie_encoder_decoder", "torchscript", "use_cache",
    # lengths that are said elsewhere
    "max_sequence_length", "model_max_length", "seq_length",
    # generation
    "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id",
    "length_penalty", "max_length", "max_new_tokens", "min_length", "no_repeat_ngram_size", "num_beam_groups",
    "num_beams", "num_return_sequences", "repetition_penalty", "suppress_tokens", "temperature", "top_k", "top_p",
    "typical_p",
})  # fmt: skip

# Multipliers and their like, which some configs write though they change nothing at these values.
NEUTRAL: dict[str, float] = {
    "embedding_multiplier": 1.0, "logit_scale": 1.0, "logits_scaling": 1.0, "partial_rotary_factor": 1.0,
    "residual_multiplier": 1.0, "rotary_pct": 1.0,
}  # fmt: skip


HINTS = {
    "use_bidirectional_attention": "must be false: only causal attention is served",
    "attn_logit_softcapping": "must be null: the layers of this family have no cap",
}


class ConfigObject:
    """One object of the file, and which of its keys were read. Every reader raises ConfigError that names the key.

    A key that is absent has the default that is given, which is the one of the model's own class; null is a value.
    """

    def __init__(self, values: dict[str, Any], architecture: str, place: str = "config.json", prefix: str = "") -> None:
        self.architecture = architecture
        self._values, self._place, self._prefix = values, place, prefix
        self._read: set[str] = set()
        self._objects: list[ConfigObject] = []

    @property
    def is_empty(self) -> bool:
        return not self._values

    @property
    def understood(self) -> frozenset[str]:
        """The keys that were read or looked for."""
        return frozenset(self._read)

    def names(self) -> tuple[str, ...]:
        return tuple(self._values)

    def error(self, name: str, must: str) -> ConfigError:
        return ConfigError(f"{self._place}: {self._prefix}{name} is {_shown(self.get(name))}, {must}")

    def get(self, name: str) -> Any:
        """The value as it stands in the file, None if it is not there."""
        self._read.add(name)
        return self._values.get(name)

    def has(self, name: str) -> bool:
        self._read.add(name)
        return name in self._values

    def count(self, name: str, default: int | None = None, least: int = 1) -> int:
        value = self.get(name) if self.has(name) else default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
            raise self.error(name, f"must be an integer >= {least}")
        return value

    def optional_count(self, name: str, default: int | None) -> int | None:
        """None where the file says null."""
        if self.has(name) and self.get(name) is None:
            return None
        return default if not self.has(name) else self.count(name)

    def positive(self, name: str, default: float | None = None) -> float:
        value = self.get(name) if self.has(name) else default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_NUMBER:
            raise self.error(name, "must be a number above 0")
        return float(value)

    def optional_positive(self, name: str, default: float | None) -> float | None:
        """None where the file says null."""
        if self.has(name) and self.get(name) is None:
            return None
        return default if not self.has(name) else self.positive(name)

    def positives(self, name: str, num: int) -> tuple[float, ...]:
        values = self.get(name)
        fit = isinstance(values, list) and len(values) == num
        if not fit or not all(type(value) in (int, float) and 0 < value <= MAX_NUMBER for value in values):
            raise self.error(name, f"must be a list of {num} numbers above 0")
        return tuple(map(float, values))

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name) if self.has(name) else default
        if not isinstance(value, bool):
            raise self.error(name, "must be true or false")
        return value

    def choice(self, names: tuple[str, ...], valid: Collection[str], default: str) -> str:
        """The first of `names` that the file sets, as one of them may be an older spelling of another."""
        found = [name for name in names if self.get(name) is not None]
        if not found:
            return default
        value = self.get(found[0])
        if value not in valid:
            raise self.error(found[0], f"must be one of {', '.join(valid)}")
        return str(value)

    def object(self, name: str, default: dict[str, Any] | None = None) -> "ConfigObject":
        """An empty one, or the default, where the key is absent or null."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            raise self.error(name, "must be an object or null")
        inner = ConfigObject(
            (default or {}) if value is None else value, self.architecture, self._place, f"{self._prefix}{name}."
        )
        self._objects.append(inner)
        return inner

    def refuse_unread(self, harmless: Collection[str]) -> None:
        """Every key must have been read, be harmless or have a neutral value."""
        for name, value in self._values.items():
            known = name in self._read or name in HARMLESS or name in harmless or name.startswith("_")
            if not known and not _is_neutral(name, value):
                raise self.error(name, HINTS.get(name) or self._unknown(name))
        for inner in self._objects:
            inner.refuse_unread(harmless)

    def _unknown(self, name: str) -> str:
        top = f"{self._prefix}{name}".split(".")[0]
        instead = "null" if top == name else "{...}"
        return (
            f"a key that ramet does not know for {self.architecture} and that may change what the model computes; "
            f"if it does not, leave it out with --json-model-override-args '{{\"{top}\": {instead}}}'"
        )


def _is_neutral(name: str, value: Any) -> bool:
    return value is None or value is False or value in ("", [], {}) or (name in NEUTRAL and value == NEUTRAL[name])


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
