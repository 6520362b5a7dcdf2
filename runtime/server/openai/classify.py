"""POST /classify, /v1/classify, /pooling and /encode: a classifier's labels, pooled states, and SGLang's native form.

A body with `input` is vLLM's and gets vLLM's reply; one with `text` or `input_ids` is SGLang's. /pooling and /encode
answer with what the model is made for: a classifier's numbers where it is one, else an embedding.
"""

import time
from array import array
from functools import partial
from typing import Annotated, Any, Literal

from aiohttp import web
from msgspec import UNSET
from msgspec.structs import replace

from ramet.ipc.params import about
from ramet.runtime.engine_client.prompt import check_numbers
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.classes import UseActivation, check_labels, class_numbers, read_classified
from ramet.runtime.intake.embeddings import Dimensions, EmbedFields
from ramet.runtime.intake.fields import Ids, PromptId, Prompts, Some, Text, unbuilt
from ramet.runtime.intake.limits import MAX_INPUTS
from ramet.runtime.intake.other_servers import EmbeddingNames
from ramet.runtime.intake.reply import meta_info
from ramet.runtime.replies.long_list import long_list
from ramet.runtime.server.http.exchange import read_body, respond_in_turn
from ramet.runtime.server.http.request_id import set_request_id
from ramet.runtime.server.http.service import Service, check_model
from ramet.runtime.server.openai import embeddings
from ramet.runtime.server.openai import pooled_replies as replies
from ramet.runtime.server.openai.replies import usage_of
from ramet.runtime.text.labels import Labels
from ramet.runtime.workers.offload import offloaded

NUMBERS_OF_A_REPLY = 16  # as many numbers the rest of an entry of a list counts as
Task = Literal["embed", "classify"]
Input = Annotated[Prompts | None, about(f"a text, token ids, or a list of either: at most {MAX_INPUTS}")]


class Native(EmbeddingNames, frozen=True, kw_only=True):
    """SGLang's native body, of which exactly one field is set."""

    text: Annotated[Some[Text] | Text | None, about("a text, or a list of texts")] = None
    input_ids: Annotated[Some[PromptId | Ids] | None, about("token ids, or a list of such")] = None


class ClassifyBody(Native, frozen=True, kw_only=True):
    """vLLM's /classify with `input`, or SGLang's with `text` or `input_ids`."""

    input: Input = None
    use_activation: UseActivation = None
    activation: Annotated[bool | None, about("an older name of `use_activation`")] = None
    model: embeddings.ModelName = None
    user: embeddings.User = None
    rid: embeddings.NamedRid = None
    request_id: embeddings.OtherRid = None


class PoolingBody(EmbeddingNames, frozen=True, kw_only=True):
    """vLLM's /pooling."""

    input: Annotated[Prompts, about(f"a text, token ids, or a list of either: at most {MAX_INPUTS}")]
    task: Annotated[
        Task | None,
        about('"embed" or "classify"; by default what the model is made for'),
    ] = None
    dimensions: Dimensions = None
    use_activation: Annotated[
        bool | None, about("of a classifier probabilities, of an embedding length 1; by default as the model's folder")
    ] = None
    activation: Annotated[bool | None, about("an older name of `use_activation`")] = None
    normalize: Annotated[bool | None, about("vectors of length 1")] = None
    encoding_format: embeddings.Format = None
    model: embeddings.ModelName = None
    user: embeddings.User = None
    rid: embeddings.NamedRid = None
    request_id: embeddings.OtherRid = None


class EncodeBody(Native, frozen=True, kw_only=True):
    """SGLang's /encode."""

    dimensions: Dimensions = None
    sampling_params: Annotated[dict[str, Any] | None, about("accepted; nothing is drawn")] = None
    image_data: Annotated[Any, unbuilt("media")] = None
    rid: embeddings.NamedRid = None


async def classify(service: Service, request: web.Request) -> web.StreamResponse:
    """The label of each text, and the probability of every label."""
    body = await read_body(request, ClassifyBody)
    model = check_model(service, body.model)
    rid = set_request_id(request, f"classify-{prompts.new_id()}", body.rid or body.request_id)
    place, given = chosen_input(body)
    use = body.activation if body.use_activation is None else body.use_activation
    done = await classified(service, rid, place, given)
    if body.input is None:  # SGLang's numbers are the classifier's own
        return await _respond_native(request, [_logits(each) for each in done], done, prompts.is_batch(given))
    each = _size(service.client.limits.num_labels)
    data = long_list(lambda i: _labelled(i, done[i], service.labels, use), len(done), each)
    reply = replies.ClassifyReply(id=rid, created=int(time.time()), model=model, data=data, usage=usage_of(done))
    return await respond_in_turn(request, reply)


async def pooling(service: Service, request: web.Request) -> web.StreamResponse:
    """What the model makes of each whole text: a classifier's numbers, or an embedding."""
    body = await read_body(request, PoolingBody)
    model = check_model(service, body.model)
    rid = set_request_id(request, f"pool-{prompts.new_id()}", body.rid or body.request_id)
    use = body.activation if body.use_activation is None else body.use_activation
    rows: list[Any]
    if _is_classifying(service, body.task, body.dimensions):
        done = await classified(service, rid, "input", body.input)
        rows = [array("f", class_numbers(each.pooled, service.labels, use)) for each in done]
    else:
        normalize = use if body.normalize is None else body.normalize
        fields = EmbedFields(input=body.input, dimensions=body.dimensions, normalize=normalize)
        rows, done = await embeddings.embedded(service, rid, fields)
    write = embeddings.writer_of(body.encoding_format)
    data = long_list(lambda i: replies.PooledState(index=i, data=write(rows[i])), len(rows), _size(len(rows[0])))
    reply = replies.PoolingReply(id=rid, created=int(time.time()), model=model, data=data, usage=usage_of(done))
    return await respond_in_turn(request, reply)


async def encode(service: Service, request: web.Request) -> web.StreamResponse:
    """SGLang's embeddings; of a classifier its own numbers."""
    body = await read_body(request, EncodeBody)
    rid = set_request_id(request, prompts.new_id(), body.rid)
    place, given = chosen_input(body)
    rows: list[Any]
    if _is_classifying(service, None, body.dimensions):
        done = await classified(service, rid, place, given)
        rows = [_logits(each) for each in done]
    else:
        rows, done = await embeddings.embedded(
            service, rid, EmbedFields(input=given, dimensions=body.dimensions), place
        )
    return await _respond_native(request, rows, done, prompts.is_batch(given))


def chosen_input(body: Any) -> tuple[str, Any]:
    """The one of a body's fields for it that is set. Raises ClientError."""
    names = [name for name in ("input", "text", "input_ids") if hasattr(body, name)]
    given = [name for name in names if getattr(body, name) is not None]
    if len(given) != 1:
        raise ClientError(names[0], f"and {' and '.join(names[1:])}: exactly one of them must be set")
    return given[0], getattr(body, given[0])


async def classified(service: Service, rid: str, place: str, given: Any) -> list[GeneratedSequence]:
    """What was run for each input. Raises ClientError where the model is no classifier."""
    embeddings.check_inputs(place, given)
    limits = service.client.limits
    items = await offloaded(
        partial(read_classified, rid, place, given, service.labels, limits), prompts.num_prompts(given)
    )
    check_numbers(place, len(items), limits.num_labels)
    return await embeddings.run_all(service, items)


def _is_classifying(service: Service, task: Task | None, dimensions: int | None) -> bool:
    limits = service.client.limits
    if task == "classify":
        check_labels(limits)
    classifies = task == "classify" or (task is None and limits.num_labels > 0)
    if classifies and dimensions is not None:
        raise ClientError("dimensions", f"is {dimensions}, but a classifier has one number for each label", "omit it")
    return classifies


def _logits(sequence: GeneratedSequence) -> list[float]:
    return class_numbers(sequence.pooled, Labels(), use_activation=False)


def _size(numbers: int) -> int:
    return NUMBERS_OF_A_REPLY + numbers


def _labelled(
    index: int, sequence: GeneratedSequence, labels: Labels, use_activation: bool | None
) -> replies.Classified:
    probs = class_numbers(sequence.pooled, labels, use_activation)
    best = max(range(len(probs)), key=probs.__getitem__)
    return replies.Classified(index, labels.name_of(best), probs, len(probs))


async def _respond_native(
    request: web.Request, rows: list[Any], done: list[GeneratedSequence], as_list: bool
) -> web.StreamResponse:
    def encoded(i: int) -> replies.Encoded:
        return replies.Encoded(list(rows[i]), replace(meta_info(done[i], {}), hidden_states=UNSET))

    body = long_list(encoded, len(done), _size(len(rows[0]))) if as_list else encoded(0)
    return await respond_in_turn(request, body)
