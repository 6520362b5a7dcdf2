"""Embeddings and scores: which prompts the engine gets, and the arithmetic on what comes back.

A vector is float32, so that every spelling of a reply shows the same numbers. A score is the model's own probability,
at temperature 1 and without penalties, whatever defaults the model or the server has.
"""

import math
import sys
from array import array
from base64 import b64encode
from operator import mul
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from ramet.ipc.messages import Limits
from ramet.ipc.params import SamplingParams, about, shown
from ramet.ipc.spec import HiddenMode, LogprobSpec, RequestSpec
from ramet.runtime.engine_client.submission import Prompt
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.intake.fields import Ids, PromptId, Prompts, Some, Text
from ramet.runtime.intake.limits import MAX_IDS, MAX_INPUTS
from ramet.runtime.intake.prompts import check_prompts, pack_checked, read_contents
from ramet.runtime.logprobs import HiddenLists, LogprobLists
from ramet.runtime.text.pooling import Kind, Pooling

PREFILL_ONLY = SamplingParams(max_new_tokens=0)
# Greedy: its log-probabilities are those of T = 1, and nothing but the model's logits goes into them.
NEXT_TOKEN = SamplingParams(max_new_tokens=1, temperature=0.0)
OTHER_VOCABULARY = (
    "are they ids of another model's tokenizer? LangChain's OpenAIEmbeddings sends such, unless "
    "check_embedding_ctx_length=False"
)
Vector: TypeAlias = "array[float]"


class EmbedFields(Struct, frozen=True, kw_only=True):
    """What is embedded, and how; by default as the model's folder says."""

    input: Annotated[Prompts, about(f"a text, token ids, or a list of either: at most {MAX_INPUTS} of them")]
    dimensions: Annotated[
        Annotated[int, Meta(ge=1)] | None, about("only the first numbers of each vector, in [1, hidden size]")
    ] = None
    pooling: Annotated[
        Kind | None,
        about('"mean" over all tokens, or "last": the last token\'s; by default what the model\'s folder says'),
    ] = None
    normalize: Annotated[bool | None, about("vectors of length 1; by default what the model's folder says")] = None


def read_inputs(rid: str, fields: EmbedFields, default: Pooling, limits: Limits) -> tuple[list[Prompt], Pooling]:
    """One prompt for each input, in order. `default`: what counts where a client says nothing. Raises ClientError."""
    hidden_size = limits.hidden_size
    if not hidden_size:
        raise ClientError("model", "has no hidden states, so there are no embeddings")
    if fields.dimensions is not None and fields.dimensions > hidden_size:
        raise ClientError("dimensions", f"is {shown(fields.dimensions)}, must be in [1, {hidden_size}]")
    normalize = default.normalize if fields.normalize is None else fields.normalize
    pooling = Pooling(fields.pooling or default.kind, normalize)
    contents, _ = read_contents("input", fields.input, limits, OTHER_VOCABULARY)
    return [prompt_to_embed(rid, place, pooling, **content) for place, content in contents], pooling


def prompt_to_embed(rid: str, place: str, pooling: Pooling, **content: Any) -> Prompt:
    return Prompt(rid, RequestSpec(PREFILL_ONLY, hidden=HiddenMode(pooling.kind)), place=place, **content)


def vector_of(hidden: HiddenLists | None, pooling: Pooling, dimensions: int | None = None) -> Vector:
    """`hidden`: of an ended prompt that `prompt_to_embed` made. Raises ServerError for NaN and infinities."""
    assert hidden is not None, "a prompt to embed asks for hidden states"
    kept = hidden.pooled[:dimensions]
    length = math.sqrt(math.fsum(map(mul, kept, kept)))
    if not math.isfinite(length):
        raise ServerError("The model produced hidden states that are not finite.")
    divisor = length if pooling.normalize and length > 0 else 1.0
    return array("f", [value / divisor for value in kept])


def cosine(one: Vector, other: Vector) -> float:
    """Of vectors of length 1."""
    return math.fsum(map(mul, one, other))


def in_base64(vector: Vector) -> str:
    """Little-endian float32, whatever this machine's order."""
    if sys.byteorder == "big":
        vector = array("f", vector)
        vector.byteswap()
    return b64encode(vector.tobytes()).decode()


# -- scores ------------------------------------------------------------------------------------------------------------


class ScoreFields(Struct, frozen=True, kw_only=True):
    """Which of a few tokens follows."""

    query: Annotated[Text | Ids, about("what all prompts begin with: a text, or token ids")]
    items: Annotated[Text | Some[Text | Ids], about("what follows it in each prompt: texts, or token ids as query is")]
    label_token_ids: Annotated[
        Annotated[list[PromptId], Meta(min_length=1, max_length=MAX_IDS)],
        about("the tokens whose probability is asked for"),
    ]
    apply_softmax: Annotated[bool | None, about("scores of an item add up to 1")] = None
    item_first: Annotated[bool | None, about("the query follows the item")] = None


def read_pairs(rid: str, fields: ScoreFields, limits: Limits) -> list[Prompt]:
    """One prompt for each item. Texts are joined as texts and ids as ids: tokens may span the seam of texts."""
    check_prompts("items", fields.items)
    labels = fields.label_token_ids
    pack_checked("label_token_ids", labels, limits.vocab_size)
    spec = RequestSpec(NEXT_TOKEN, LogprobSpec(ids=tuple(labels)))
    [(_, query)], _ = read_contents("query", fields.query, limits)
    items, several = read_contents("items", fields.items, limits)
    pairs = []
    for (place, item), given in zip(items, fields.items if several else [fields.items], strict=True):
        if item.keys() != query.keys():
            wanted = "a string" if "text" in query else "a list of token ids"
            raise ClientError(place, f"is {shown(given)}, must be {wanted}, as query is")
        first, second = (item, query) if fields.item_first else (query, item)
        pairs.append(Prompt(rid, spec, place=place, **{name: first[name] + second[name] for name in first}))
    return pairs


def label_scores(logprobs: LogprobLists | None, softmax: bool | None) -> list[float]:
    """Of the tokens that one prompt asked about, in their order. With `softmax` they add up to 1."""
    assert logprobs is not None, "a prompt to score asks for log-probabilities"
    (place,) = logprobs.output
    assert place.chosen is not None
    values = [-math.inf if value is None else value for value, _, _ in place.chosen]
    best = max(values) if softmax else 0.0
    weights = [math.exp(value - best) for value in values]
    total = sum(weights) if softmax else 1.0
    return [weight / total for weight in weights]
