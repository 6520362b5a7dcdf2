"""Classes and rewards: which prompts a classifier gets, and what becomes of its numbers."""

import math
from typing import Annotated, Any, TypeAlias

from msgspec import Struct

from ramet.ipc.content import Content
from ramet.ipc.messages import Limits
from ramet.ipc.params import about
from ramet.ipc.spec import PoolingTask
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.embeddings import finite, prompt_to_pool
from ramet.runtime.intake.fields import Prompts
from ramet.runtime.intake.limits import MAX_INPUTS
from ramet.runtime.intake.prompts import read_contents
from ramet.runtime.text.labels import Activation, Labels

UseActivation: TypeAlias = Annotated[
    bool | None, about("probabilities (default), or with false the classifier's own numbers")
]


class ClassifyFields(Struct, frozen=True, kw_only=True):
    """What is classified."""

    input: Annotated[Prompts, about(f"a text, token ids, or a list of either: at most {MAX_INPUTS} of them")]
    use_activation: UseActivation = None


def read_classified(rid: str, place: str, given: Any, labels: Labels, limits: Limits) -> list[Prompt]:
    """One prompt for each input of the field `place`, in order. Raises ClientError."""
    check_labels(limits)
    contents, _ = read_contents(place, given, limits, new=0)
    return [prompt_to_classify(rid, at, labels, content) for at, content in contents]


def check_labels(limits: Limits) -> None:
    if not limits.num_labels:
        fact = "is not a classifier: its architecture is not for sequence classification or rewards"
        raise ClientError("model", fact, "/v1/embeddings and /v1/score need none")


def prompt_to_classify(rid: str, place: str, labels: Labels, content: Content) -> Prompt:
    """The state of the last token that is no padding goes through the classifier."""
    return prompt_to_pool(rid, place, "last", PoolingTask.CLASSIFY, content, labels.padding_id)


def class_numbers(pooled: list[float], labels: Labels, use_activation: bool | None = None) -> list[float]:
    """One for each label: probabilities, or what the classifier says itself. Raises ServerError for NaN.

    `pooled`: of an ended prompt that `prompt_to_classify` made.
    """
    logits = finite(pooled)
    if use_activation is False:
        return logits
    match labels.activation_of(len(logits)):
        case Activation.SOFTMAX:
            best = max(logits)
            weights = [math.exp(value - best) for value in logits]
            total = math.fsum(weights)
            return [weight / total for weight in weights]
        case Activation.SIGMOID:
            return [_sigmoid(value) for value in logits]
        case Activation.NONE:
            return logits


def _sigmoid(value: float) -> float:
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    return math.exp(value) / (1 + math.exp(value))
