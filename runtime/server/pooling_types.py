"""The bodies of the endpoints that turn texts into numbers: embeddings, scores, ranks. Only shapes."""

from typing import Annotated

from msgspec import Struct

from ramet.ipc.params import about

Text = str | None
Flag = bool | None


class EmbeddingsBody(Struct, frozen=True, kw_only=True):
    """/v1/embeddings; the last two fields are what only this server knows."""

    input: Annotated[
        str | list[str | int | list[int]] | None,
        about("a text, token ids, or a list of either: at most 2048 of them"),
    ] = None
    model: Annotated[Text, about("name of the served model, or absent")] = None
    encoding_format: Annotated[Text, about('"float" (default), or "base64" of little-endian float32')] = None
    dimensions: Annotated[int | None, about("only the first numbers of each vector, in [1, hidden size]")] = None
    user: Annotated[Text, about("accepted, changes nothing")] = None
    pooling: Annotated[
        Text, about('"mean" over all tokens, or "last": the last token\'s; by default what the model\'s folder says')
    ] = None
    normalize: Annotated[Flag, about("vectors of length 1; by default what the model's folder says")] = None


class ScoreBody(Struct, frozen=True, kw_only=True):
    """/v1/score: which of a few tokens follows."""

    query: Annotated[str | list[int] | None, about("what all prompts begin with: a text, or token ids")] = None
    items: Annotated[
        str | list[str | list[int]] | None, about("what follows it in each prompt: texts, or token ids as query is")
    ] = None
    label_token_ids: Annotated[list[int] | None, about("the tokens whose probability is told, 1 to 1024")] = None
    apply_softmax: Annotated[Flag, about("scores of an item add up to 1")] = None
    item_first: Annotated[Flag, about("the query follows the item")] = None
    model: Annotated[Text, about("name of the served model, or absent")] = None


class Document(Struct, frozen=True):
    text: Text = None


class RerankBody(Struct, frozen=True, kw_only=True):
    """/v1/rerank, as Cohere's and Jina's clients write it; `method` and `instruct` are extensions."""

    query: Annotated[Text, about("what the documents are compared with")] = None
    documents: Annotated[list[str | Document] | None, about('texts, or objects with a "text"')] = None
    top_n: Annotated[int | None, about("only this many of the best; by default all")] = None
    return_documents: Annotated[Flag, about("results carry their texts; by default true")] = None
    instruct: Annotated[Text, about('what makes a document a good one; with method "generate"')] = None
    method: Annotated[
        Text,
        about('"generate" (default): how much likelier the model says yes than no; "embed": cosine of embeddings'),
    ] = None
    model: Annotated[Text, about("name of the served model, or absent")] = None
