"""What config.json says of a classifier: its labels, what makes probabilities of its numbers, where a prompt ends.

Decides as transformers does: softmax over several labels, a sigmoid for one or for labels that exclude nothing, and
the number itself for a regression; a cross-encoder's own word for it goes first. Knows no weights and no request.
Also which model answers yes or no about a document (Qwen3-Reranker).
"""

import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from ramet.runtime.config import Args
from ramet.runtime.errors import ConfigError
from ramet.runtime.text.files import read_json
from ramet.runtime.text.template_files import read_templates

OF_PROBLEM = {"regression": "none", "multi_label_classification": "sigmoid"}
OF_MODULE = {"Identity": "none", "Sigmoid": "sigmoid"}  # what sentence-transformers names
RERANKER_SENTENCE = "Judge whether the Document meets the requirements"  # of the template that SGLang and vLLM ship
RERANKER_LABELS = ["no", "yes"]


class Activation(Enum):
    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"
    NONE = "none"


class Labels(NamedTuple):
    """`names`: of the classifier's numbers, in their order; where config.json has none they are LABEL_i."""

    names: Mapping[int, str] = {}
    activation: Activation | None = None  # None: softmax over several, sigmoid for one
    padding_id: int | None = None  # what is at a prompt's end of it is no part of it
    is_reranker: bool = False  # a causal model that answers yes or no in Qwen3-Reranker's form

    def name_of(self, index: int) -> str:
        return self.names.get(index, f"LABEL_{index}")

    def activation_of(self, num_labels: int) -> Activation:
        return self.activation or (Activation.SOFTMAX if num_labels > 1 else Activation.SIGMOID)


def read_labels(args: Args) -> Labels:
    """Raises ConfigError that names the key."""
    path = args.model_folder / "config.json"
    changes = args.model.json_model_override_args
    config = {**read_json(path), **(json.loads(changes) if changes else {})}
    padding = config.get("pad_token_id")
    padding_id = padding if isinstance(padding, int) and padding >= 0 else None
    return Labels(_names(config, path), _activation(config, path), padding_id, _is_reranker(config, path, args))


def _names(config: dict[str, Any], path: Path) -> dict[int, str]:
    given = config.get("id2label") or {}
    try:
        return {int(index): str(name) for index, name in given.items()}
    except (ValueError, AttributeError):
        raise ConfigError(f"{path}: id2label must be an object of names by numbers") from None


def _activation(config: dict[str, Any], path: Path) -> Activation | None:
    inner = config.get("sentence_transformers")
    of_encoder = inner.get("activation_fn") if isinstance(inner, dict) else None
    module = of_encoder or config.get("sbert_ce_default_activation_function")
    if module is not None:
        name = str(module).rpartition(".")[2]
        if name not in OF_MODULE:
            raise ConfigError(f"{path}: the activation of a cross-encoder is {module}, must be Identity or Sigmoid")
        return Activation(OF_MODULE[name])
    problem = config.get("problem_type")
    return Activation(OF_PROBLEM[problem]) if problem in OF_PROBLEM else None


def _is_reranker(config: dict[str, Any], path: Path, args: Args) -> bool:
    """vLLM's keys say it, or a chat template with its sentence."""
    tokens, original = config.get("classifier_from_token"), config.get("is_original_qwen3_reranker")
    if tokens is not None or original:
        if tokens != RERANKER_LABELS or not original:
            fact = f"classifier_from_token is {tokens!r} and is_original_qwen3_reranker {original!r}"
            raise ConfigError(f"{path}: {fact}, must be {RERANKER_LABELS!r} and true: other such heads are not built")
        return True
    template = read_templates(args.tokenizer_folder, args.model.chat_template).of(False)
    return template is not None and RERANKER_SENTENCE in template
