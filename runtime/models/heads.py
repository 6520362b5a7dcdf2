"""What stands on a model's decoder: a head that predicts tokens, layers that make labels or a reward, or nothing.

The class that config.json names says it; a checkpoint of a bare decoder may also be named as the class that generates
(Qwen3-Embedding is), so the names of its tensors count as well. Knows no tensor. A tied head is the embedding, which a
bare decoder has too.
"""

import json
from collections.abc import Collection
from dataclasses import replace
from enum import Enum
from pathlib import Path

from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.weight_map import WeightMap

GENERATING = ("ForCausalLM", "ForConditionalGeneration")  # ends of the names of classes that families have
USUAL_LABELS = 2  # of a config that names none
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEADER = 100_000_000  # bytes of a safetensors file's own list, as its library bounds it


class HeadKind(Enum):
    TOKENS = "tokens"
    LABELS = "labels"  # score.weight, no bias: transformers' sequence classification
    REWARD = "reward"  # score.0 and score.2 with a ReLU between them: Qwen's reward models
    NONE = "none"


OTHER_ENDS = {
    "TextForSequenceClassification": HeadKind.LABELS,
    "ForSequenceClassification": HeadKind.LABELS,
    "ForRewardModel": HeadKind.REWARD,
    "TextModel": HeadKind.NONE,
    "Model": HeadKind.NONE,
}


def head_of(architecture: str, families: Collection[str]) -> tuple[str, HeadKind]:
    """The class of the same family that generates, and the head. What is not known stays as it is."""
    if architecture not in families:
        for end, head in OTHER_ENDS.items():
            stem = architecture.removesuffix(end)
            # a composite's class for labels has its config too, that for text alone has the decoder's
            for generating in GENERATING if end.startswith("Text") or head is not HeadKind.LABELS else GENERATING[::-1]:
                if stem != architecture and stem + generating in families:
                    return stem + generating, head
    return architecture, HeadKind.TOKENS


def with_head(shape: ModelShape, head: HeadKind, config: ConfigObject) -> ModelShape:
    if head is HeadKind.TOKENS or config.get("classifier_from_token"):  # its numbers are two of the tokens' own
        return shape
    if head is HeadKind.NONE:
        return without_head(shape)
    num = _num_labels(config, 1 if head is HeadKind.REWARD else USUAL_LABELS)
    return replace(shape, tied_head=True, generates=False, num_labels=num)


def without_head(shape: ModelShape) -> ModelShape:
    """Of a bare decoder, which generates by its embedding where the two are tied."""
    return replace(shape, tied_head=True, generates=shape.tied_head)


def _num_labels(config: ConfigObject, usual: int) -> int:
    """As transformers counts: the names of labels go before their number."""
    names = config.get("id2label")
    if names is None:
        return config.count("num_labels", usual)
    if not isinstance(names, dict) or not names:
        raise config.error("id2label", "must be an object with a name for each label")
    return len(names)


def is_bare(folder: Path) -> bool:
    """Whether a checkpoint has the names of a decoder alone: no `model.` before them, and no head."""
    names = _names(folder)
    return bool(names) and not any(name.startswith(("model.", "lm_head.", "language_model.")) for name in names)


def has_second_head(folder: Path) -> bool:
    """Whether a checkpoint has a head beside its embedding."""
    names = _names(folder)
    return all(any(name.endswith(end) for name in names) for end in ("lm_head.weight", "embed_tokens.weight"))


def _names(folder: Path) -> Collection[str]:
    """Of its tensors; none where there is no file that can be read, which is an error of loading it."""
    try:
        if (folder / INDEX).is_file():
            names: Collection[str] = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].keys()
            return names
        with (folder / SINGLE).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size)) if size <= MAX_HEADER else {}
            return header.keys() - {"__metadata__"} if isinstance(header, dict) else ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()


def headed_weights(weights: WeightMap, shape: ModelShape) -> WeightMap:
    """Names of a bare decoder are those of one inside a model; heads that this model does not have are left out."""
    inside = {source.removeprefix("model."): source for source in weights.top.values() if source.startswith("model.")}
    renamed = (*weights.renamed, *((f"{bare}.", f"{source}.") for bare, source in inside.items()))
    others = [] if shape.generates else [f"{weights.top['head']}."]
    if shape.num_labels:
        others.append("score.")
    return replace(weights, renamed=(*renamed, ("layers.", "model.layers.")), ignored=(*weights.ignored, *others))
