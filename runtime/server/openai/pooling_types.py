"""The bodies of the endpoints that turn texts into numbers: embeddings, scores, ranks. Only shapes."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ramet.ipc.params import about
from ramet.runtime.intake.fields import Ids, PromptId, Prompts, Text
from ramet.runtime.intake.limits import MAX_IDS, MAX_INPUTS
from ramet.runtime.text.pooling import Kind

ModelName = Annotated[str | None, about("name of the served model, or absent")]


class EmbeddingsBody(Struct, frozen=True, kw_only=True):
    """/v1/embeddings; the last two fields are what only this server knows."""

    input: Annotated[Prompts, about(f"a text, token ids, or a list of either: at most {MAX_INPUTS} of them")]
    model: ModelName = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None, about('"float" (default), or "base64" of little-endian float32')
    ] = None
    dimensions: Annotated[
        Annotated[int, Meta(ge=1)] | None, about("only the first numbers of each vector, in [1, hidden size]")
    ] = None
    user: Annotated[str | None, about("accepted, changes nothing")] = None
    pooling: Annotated[
        Kind | None,
        about('"mean" over all tokens, or "last": the last token\'s; by default what the model\'s folder says'),
    ] = None
    normalize: Annotated[bool | None, about("vectors of length 1; by default what the model's folder says")] = None


class ScoreBody(Struct, frozen=True, kw_only=True):
    """/v1/score: which of a few tokens follows."""

    query: Annotated[Text | Ids, about("what all prompts begin with: a text, or token ids")]
    items: Annotated[
        Text | Annotated[list[Text | Ids], Meta(min_length=1)],
        about("what follows it in each prompt: texts, or token ids as query is"),
    ]
    label_token_ids: Annotated[
        Annotated[list[PromptId], Meta(min_length=1, max_length=MAX_IDS)],
        about("the tokens whose probability is returned"),
    ]
    apply_softmax: Annotated[bool | None, about("scores of an item add up to 1")] = None
    item_first: Annotated[bool | None, about("the query follows the item")] = None
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
