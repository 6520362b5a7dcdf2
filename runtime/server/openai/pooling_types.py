"""The bodies of the endpoints that turn texts into numbers: embeddings, scores, ranks. Only shapes."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from ramet.ipc.params import about
from ramet.runtime.intake.embeddings import KINDS
from ramet.runtime.intake.limits import MOST_IDS
from ramet.runtime.intake.schemas import IDS, TEXT, one_of, texts_or_ids

MOST_INPUTS = 2048
FORMATS = ("float", "base64")
METHODS = ("generate", "embed")
Text = str | None
Flag = bool | None


class EmbeddingsBody(Struct, frozen=True, kw_only=True):
    """/v1/embeddings; the last two fields are what only this server knows."""

    input: Annotated[
        Any, about("a text, token ids, or a list of either: at most 2048 of them", **texts_or_ids(MOST_INPUTS))
    ]
    model: Annotated[Text, about("name of the served model, or absent")] = None
    encoding_format: Annotated[
        Text, about('"float" (default), or "base64" of little-endian float32', **one_of(*FORMATS))
    ] = None
    dimensions: Annotated[
        int | None, about("only the first numbers of each vector, in [1, hidden size]", minimum=1)
    ] = None
    user: Annotated[Text, about("accepted, changes nothing")] = None
    pooling: Annotated[
        Text,
        about(
            '"mean" over all tokens, or "last": the last token\'s; by default what the model\'s folder says',
            **one_of(*KINDS),
        ),
    ] = None
    normalize: Annotated[Flag, about("vectors of length 1; by default what the model's folder says")] = None


class ScoreBody(Struct, frozen=True, kw_only=True):
    """/v1/score: which of a few tokens follows."""

    query: Annotated[Any, about("what all prompts begin with: a text, or token ids", anyOf=[TEXT, IDS])]
    items: Annotated[
        Any,
        about(
            "what follows it in each prompt: texts, or token ids as query is",
            anyOf=[TEXT, *({"type": "array", "items": each, "minItems": 1} for each in (TEXT, IDS))],
        ),
    ]
    label_token_ids: Annotated[
        list[Annotated[int, Meta(extra_json_schema={"minimum": 0})]],
        about("the tokens whose probability is told, 1 to 1024", minItems=1, maxItems=MOST_IDS),
    ]
    apply_softmax: Annotated[Flag, about("scores of an item add up to 1")] = None
    item_first: Annotated[Flag, about("the query follows the item")] = None
    model: Annotated[Text, about("name of the served model, or absent")] = None


class Document(Struct, frozen=True):
    text: Annotated[str, about("what is judged", minLength=1)]


class RerankBody(Struct, frozen=True, kw_only=True):
    """/v1/rerank, as Cohere's and Jina's clients write it; `method` and `instruct` are extensions."""

    query: Annotated[str, about("what the documents are compared with", minLength=1)]
    documents: Annotated[
        list[Annotated[str, Meta(extra_json_schema={"minLength": 1})] | Document],
        about('texts, or objects with a "text"', minItems=1),
    ]
    top_n: Annotated[int | None, about("only this many of the best; by default all", minimum=1)] = None
    return_documents: Annotated[Flag, about("results carry their texts; by default true")] = None
    instruct: Annotated[Text, about('what makes a document a good one; with method "generate"')] = None
    method: Annotated[
        Text,
        about(
            '"generate" (default): how much likelier the model says yes than no; "embed": cosine of embeddings',
            **one_of(*METHODS),
        ),
    ] = None
    model: Annotated[Text, about("name of the served model, or absent")] = None
