"""The bodies of the endpoints that turn texts into numbers: embeddings, scores, ranks. Only shapes."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ramet.ipc.params import about
from ramet.runtime.intake.embeddings import EmbedFields
from ramet.runtime.intake.fields import Text
from ramet.runtime.intake.scores import ScoreFields

ModelName = Annotated[str | None, about("name of the served model, or absent")]


class EmbeddingsBody(EmbedFields, frozen=True, kw_only=True):
    """/v1/embeddings; `pooling` and `normalize` are what only this server knows."""

    model: ModelName = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None, about('"float" (default), or "base64" of little-endian float32')
    ] = None
    user: Annotated[str | None, about("accepted, changes nothing")] = None


class ScoreBody(ScoreFields, frozen=True, kw_only=True):
    """/v1/score: which of a few tokens follows."""

    model: ModelName = None


class Document(Struct, frozen=True):
    text: Annotated[Text, about("what is judged")]


class RerankBody(Struct, frozen=True, kw_only=True):
    """/v1/rerank, as Cohere's and Jina's clients write it; `method` and `instruct` are extensions."""

    query: Annotated[Text, about("what the documents are compared with")]
    documents: Annotated[Annotated[list[Text | Document], Meta(min_length=1)], about('texts, or objects with a "text"')]
    top_n: Annotated[Annotated[int, Meta(ge=1)] | None, about("only this many of the best; by default all")] = None
    return_documents: Annotated[bool | None, about("results carry their texts; by default true")] = None
    instruct: Annotated[str | None, about('what makes a document a good one; with method "generate"')] = None
    method: Annotated[
        Literal["generate", "embed"] | None,
        about('"generate" (default): how much likelier the model says yes than no; "embed": cosine of embeddings'),
    ] = None
    model: ModelName = None
