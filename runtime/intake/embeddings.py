"""Embeddings: which prompts the engine gets, and the arithmetic on what comes back.

A vector is float32, so that every spelling of a reply shows the same numbers.
"""

import math
import sys
from array import array
from base64 import b64encode
from operator import mul
from typing import Annotated, TypeAlias

from msgspec import Meta

from ramet.ipc.content import Content
from ramet.ipc.messages import Limits
from ramet.ipc.params import SamplingParams, about, shown
from ramet.ipc.spec import HiddenMode, PoolingTask, RequestSpec
from ramet.runtime.engine_client.places import FieldPlaces
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.intake.fields import Prompts
from ramet.runtime.intake.limits import MAX_INPUTS
from ramet.runtime.intake.other_servers import EmbeddingNames
from ramet.runtime.intake.prompts import read_contents
from ramet.runtime.text.pooling import DOCUMENT, QUERY, Kind, Pooling

PREFILL_ONLY = SamplingParams(max_new_tokens=0)
OTHER_VOCABULARY = (
    "are they ids of another model's tokenizer? LangChain's OpenAIEmbeddings sends such, unless "
    "check_embedding_ctx_length=False"
)
Vector: TypeAlias = "array[float]"
Dimensions = Annotated[
    Annotated[int, Meta(ge=1)] | None, about("only the first numbers of each vector, in [1, those of a whole one]")
]


class EmbedFields(EmbeddingNames, frozen=True, kw_only=True):
    """What is embedded, and how; by default as the model's folder says."""

    input: Annotated[Prompts, about(f"a text, token ids, or a list of either: at most {MAX_INPUTS} of them")]
    dimensions: Dimensions = None
    pooling: Annotated[
        Kind | None,
        about(
            '"mean" over all tokens, "last": the last token\'s, or "cls": the first one\'s; by default what the '
            "model's folder says"
        ),
    ] = None
    normalize: Annotated[bool | None, about("vectors of length 1; by default what the model's folder says")] = None
    prompt_name: Annotated[
        str | None, about("which of the folder's prompts stands before each text; by default the one that it names")
    ] = None


def read_inputs(
    rid: str, fields: EmbedFields, default: Pooling, limits: Limits, place: str = "input"
) -> tuple[list[Prompt], Pooling]:
    """One prompt for each input, in order. `default`: what counts where a client says nothing. Raises ClientError.

    `place`: the field that the inputs came in.
    """
    size = embedding_size(limits)
    if fields.dimensions is not None and fields.dimensions > size:
        raise ClientError("dimensions", f"is {shown(fields.dimensions)}, must be in [1, {size}]")
    pooling = chosen(default, fields.pooling, fields.normalize)
    contents, _ = read_contents(place, fields.input, limits, OTHER_VOCABULARY, new=0)
    before = _prompt_before(fields.prompt_name, pooling, contents[0][1])
    if before:
        contents = [(at, Content(before + (content.text or ""))) for at, content in contents]
    return [prompt_to_embed(rid, at, pooling, limits, content) for at, content in contents], pooling


def embedding_size(limits: Limits) -> int:
    """Numbers of a whole vector. Raises ClientError where there are none."""
    if not limits.hidden_size:
        raise ClientError("model", "has no hidden states, so there are no embeddings")
    return limits.dense_size or limits.hidden_size


def chosen(default: Pooling, kind: Kind | None = None, normalize: bool | None = None) -> Pooling:
    """What a client has named goes before what the folder says. Raises ClientError for a folder that is not served."""
    if default.unbuilt and kind is None:
        fact = f"is absent, but what this model's folder says is not built: {default.unbuilt}"
        raise ClientError("pooling", fact, 'send "mean", "last" or "cls"')
    return default._replace(kind=kind or default.kind, normalize=default.normalize if normalize is None else normalize)


def _prompt_before(name: str | None, pooling: Pooling, content: Content) -> str:
    """What stands before every text. Raises ClientError."""
    if name is not None and name not in pooling.prompts:
        known = ", ".join(sorted(pooling.prompts)) or "none: this model's folder names no prompts"
        raise ClientError("prompt_name", f"is {shown(name)}, must be one of {known}")
    if content.text is None:
        if name is not None:
            raise ClientError("prompt_name", f"is {shown(name)}, but token ids get no prompt", "put it into them")
        return ""
    return with_prompt(pooling, () if name is None else (name,))


def with_prompt(pooling: Pooling, names: tuple[str, ...]) -> str:
    """The folder's prompt of the first of these names that it has. Raises ClientError where the mean leaves it out."""
    before = pooling.prompt_of(names)
    if before and not pooling.pools_prompt and pooling.kind == "mean":
        fact = "is one that this model's folder leaves out of the mean, which is not built"
        raise ClientError("prompt_name", fact, "send token ids, or another pooling")
    return before


def prompt_to_embed(rid: str, place: str, pooling: Pooling, limits: Limits, content: Content) -> Prompt:
    task = PoolingTask.EMBED if limits.dense_size else None
    return prompt_to_pool(rid, place, pooling.kind, task, content)


def prompt_to_pool(
    rid: str, place: str, kind: Kind, task: PoolingTask | None, content: Content, padding_id: int | None = None
) -> Prompt:
    """One that asks for one state, or for what a head makes of it; of a prompt without the padding at its end."""
    spec = RequestSpec(PREFILL_ONLY, hidden=HiddenMode(kind), pooling_task=task, padding_id=padding_id)
    return Prompt(rid, spec, content, places=FieldPlaces(place))


def search_prompts(
    rid: str, queries: list[tuple[str, str]], documents: list[tuple[str, str]], pooling: Pooling, limits: Limits
) -> list[Prompt]:
    """Places and texts of a search, each with the folder's prompt for its side; first the queries."""
    sides = ((QUERY, queries), (DOCUMENT, documents))
    return [
        prompt_to_embed(rid, place, pooling, limits, Content(with_prompt(pooling, names) + text))
        for names, texts in sides
        for place, text in texts
    ]


def vector_of(pooled: list[float], pooling: Pooling, dimensions: int | None = None) -> Vector:
    """`pooled`: of an ended prompt that `prompt_to_embed` made. Raises ServerError for NaN and infinities."""
    kept = finite(pooled)[:dimensions]
    length = math.sqrt(math.fsum(map(mul, kept, kept)))
    divisor = length if pooling.normalize and length > 0 else 1.0
    return array("f", [value / divisor for value in kept])


def finite(pooled: list[float]) -> list[float]:
    """The same numbers. Raises ServerError for NaN and infinities."""
    if not math.isfinite(math.fsum(map(abs, pooled))):
        raise ServerError("The model produced hidden states that are not finite.")
    return pooled


def cosine(one: Vector, other: Vector) -> float:
    """Of vectors of length 1."""
    return math.fsum(map(mul, one, other))


def in_base64(vector: Vector) -> str:
    """Little-endian float32, whatever this machine's order."""
    if sys.byteorder == "big":
        vector = array("f", vector)
        vector.byteswap()
    return b64encode(vector.tobytes()).decode()
