"""Texts to vectors: which prompts the engine gets, and the arithmetic on the hidden states that come back.

Decides what an input may look like, mean or last token, how many numbers are kept, and length 1. A vector is float32,
so that every spelling of a reply shows the same numbers.
"""

import math
import sys
from array import array
from base64 import b64encode
from operator import mul
from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta, Struct

from ramet.ipc.params import SamplingParams, about, shown
from ramet.ipc.spec import HiddenMode, RequestSpec
from ramet.runtime.engine_client.submission import Prompt
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.intake.fields import Prompts
from ramet.runtime.intake.limits import MAX_INPUTS
from ramet.runtime.intake.prompts import read_contents
from ramet.runtime.logprobs import HiddenLists
from ramet.runtime.text.pooling import Kind, Pooling

PREFILL_ONLY = SamplingParams(max_new_tokens=0)
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


class Recipe(NamedTuple):
    """`dimensions`: the first numbers alone; None: all."""

    kind: Kind
    normalize: bool
    dimensions: int | None = None


def read_recipe(fields: EmbedFields, default: Pooling, hidden_size: int) -> Recipe:
    """`default`: what counts where a client says nothing. Raises ClientError."""
    if not hidden_size:
        raise ClientError("model", "has no hidden states, so there are no embeddings")
    if fields.dimensions is not None and fields.dimensions > hidden_size:
        raise ClientError("dimensions", f"is {shown(fields.dimensions)}, must be in [1, {hidden_size}]")
    normalize = default.normalize if fields.normalize is None else fields.normalize
    return Recipe(fields.pooling or default.kind, normalize, fields.dimensions)


def read_inputs(rid: str, fields: EmbedFields, kind: Kind, vocab_size: int) -> list[Prompt]:
    """One prompt for each input, in order."""
    contents, _ = read_contents("input", fields.input, vocab_size, OTHER_VOCABULARY)
    return [prompt_to_embed(rid, place, kind, content) for place, content in contents]


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
