"""Texts to vectors: which prompts the engine gets, and the arithmetic on the hidden states that come back.

Decides what an input may look like, mean or last token, how many numbers are kept, and length 1. A vector is float32,
so that every spelling of a reply shows the same numbers.
"""

import math
import sys
from array import array
from base64 import b64encode
from collections.abc import Iterator
from operator import mul
from typing import Any, NamedTuple, TypeAlias, get_args

from ramet.ipc.params import SamplingParams, shown
from ramet.ipc.spec import HiddenMode, RequestSpec
from ramet.runtime.engine_client.submission import Prompt
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import one_of
from ramet.runtime.logprobs import HiddenLists
from ramet.runtime.text.pooling import Kind, Pooling

PREFILL_ONLY = SamplingParams(max_new_tokens=0)
KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
OTHER_VOCABULARY = (
    "are they ids of another model's tokenizer? LangChain's OpenAIEmbeddings sends such, unless "
    "check_embedding_ctx_length=False"
)
Vector: TypeAlias = "array[float]"


class Recipe(NamedTuple):
    """`dimensions`: the first numbers alone; None: all."""

    kind: Kind
    normalize: bool
    dimensions: int | None = None


def read_recipe(
    pooling: str | None, normalize: bool | None, dimensions: int | None, default: Pooling, hidden_size: int
) -> Recipe:
    """`default`: what counts where a client says nothing. Raises ClientError."""
    if not hidden_size:
        raise ClientError("model", "has no hidden states, so there are no embeddings")
    if dimensions is not None and not 1 <= dimensions <= hidden_size:
        raise ClientError("dimensions", f"is {shown(dimensions)}, must be in [1, {hidden_size}]")
    kind = KINDS[one_of("pooling", default.kind if pooling is None else pooling, KINDS)]
    return Recipe(kind, default.normalize if normalize is None else normalize, dimensions)


def read_inputs(place: str, value: Any, vocab_size: int) -> Iterator[tuple[str, str | bytes]]:
    """(place, text or packed ids) of each input. The first entry of a list says what the others must be."""
    match value:
        case str() as text:
            yield place, prompts.check_text(place, text)
        case [str(), *_] as texts:
            for i, item in enumerate(texts):
                yield f"{place}[{i}]", prompts.check_text(f"{place}[{i}]", item)
        case [] | [list(), *_] as lists:
            for i, item in enumerate(lists):
                yield f"{place}[{i}]", _pack(f"{place}[{i}]", item, vocab_size)
        case [*ids]:
            yield place, _pack(place, ids, vocab_size)
        case other:
            raise ClientError(place, f"is {shown(other)}, must be a string, a list of strings, or token ids")


def _pack(place: str, ids: Any, vocab_size: int) -> bytes:
    try:
        return prompts.pack_checked(place, ids, vocab_size)
    except ClientError as error:
        strange = isinstance(ids, list) and bool(ids) and all(isinstance(token, int) for token in ids)
        raise ClientError(error.place, error.fact, OTHER_VOCABULARY if strange else "") from None


def prompt_to_embed(rid: str, place: str, kind: Kind, content: str | bytes) -> Prompt:
    """content: a text, or packed token ids."""
    text, ids = (content, None) if isinstance(content, str) else (None, content)
    return Prompt(rid, RequestSpec(PREFILL_ONLY, hidden=HiddenMode(kind)), text=text, ids=ids, place=place)


def vector_of(hidden: HiddenLists | None, recipe: Recipe) -> Vector:
    """`hidden`: of an ended prompt that `prompt_to_embed` made. Raises ServerError for NaN and infinities."""
    assert hidden is not None, "a prompt to embed asks for hidden states"
    kept = hidden.pooled[: recipe.dimensions]
    length = math.sqrt(math.fsum(map(mul, kept, kept)))
    if not math.isfinite(length):
        raise ServerError("The model produced hidden states that are not finite.")
    divisor = length if recipe.normalize and length > 0 else 1.0
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
