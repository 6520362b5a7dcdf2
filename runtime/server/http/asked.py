"""The start of the handlers that draw tokens for OpenAI's and Anthropic's clients, and of those that send a chat."""

from typing import Any, NamedTuple

from msgspec.structs import asdict, replace

from ramet.ipc.messages import Chat
from ramet.ipc.params import SamplingParams, shown
from ramet.ipc.spec import RequestSpec, Truncation
from ramet.runtime.engine_client.submission import Submission
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.chat import EncodedChat, HeldCalls, OutputForm, Style, hold_calls, prepare, rendered_by
from ramet.runtime.intake.constraints import only_one
from ramet.runtime.intake.reading import OutputReader, Thoughts
from ramet.runtime.intake.sampling_fields import SamplingFields, read_params
from ramet.runtime.intake.specs import Returned, read_spec, with_adapter
from ramet.runtime.intake.tool_choice import CallRules, Keeping
from ramet.runtime.server.http.request_id import RequestId
from ramet.runtime.server.http.service import Served, Service, read_model
from ramet.runtime.text.placing import expand_text


class Asked(NamedTuple):
    """What all bodies that draw tokens ask for."""

    model: str  # to answer with
    new_id: str  # of the reply, where it is not the request's
    rid: str
    spec: RequestSpec
    keeping: Keeping  # of a constraint
    held: HeldCalls = HeldCalls()


def read_sampling(served: Served, body: SamplingFields, **defaults: Any) -> SamplingParams:
    """Of a body for the served model. `defaults`: what this endpoint sets where the body leaves it out."""
    read_model(served.names, body.model)
    return read_params(asdict(body), replace(served.defaults, **defaults))


def read_asked(
    served: Served,
    request_id: RequestId,
    body: SamplingFields,
    prefix: str,
    params: SamplingParams,
    returned: Returned = Returned(),
    truncate: Truncation | None = None,
) -> Asked:
    """What a body asks of its outputs. `prefix`: what new ids begin with."""
    if body.request_id and body.rid and body.request_id != body.rid:
        fact = f"is {shown(body.request_id)}, but rid, another name of it, is {shown(body.rid)}"
        raise ClientError("request_id", fact, "send one of them")
    new_id = prefix + prompts.new_id()
    rid = request_id.choose(new_id, body.rid or body.request_id)
    backend = body.backend()
    whitespace = body.whitespace()
    kept_to = only_one(body.constraints(), backend, whitespace)
    spec = read_spec(body, params, served.processors_on, returned, truncate=truncate, kept_to=kept_to)
    chosen = read_model(served.names, body.model)
    if chosen.adapter is not None:  # it counts where lora_path is sent as well
        spec = with_adapter(spec, chosen.adapter)
    return Asked(chosen.answered, new_id, rid, spec, Keeping(backend or "", whitespace or ""))


def with_chat(asked: Asked, chat: Chat, calls: CallRules, style: Style) -> Asked:
    """What is asked for with the constraint of the chat's calls, if they need one. Raises ClientError."""
    spec, held = hold_calls(asked.spec, chat, calls, style, asked.keeping)
    return asked._replace(spec=spec, held=held)


async def chat_ids(service: Service, chat: EncodedChat) -> bytes:
    """Those of its prompt, packed. Raises ClientError."""
    client = service.client
    rendered = await rendered_by(client.text.render, chat.json, has_media=bool(chat.sources))
    if not chat.sources:
        return rendered.ids
    with client.open(streaming=False) as submission:
        media = await submission.during(client.preparing(submission).of_prompt(chat.sources))
        text, _ = expand_text(rendered.text, media, client.limits.media)
        return (await submission.during(client.text.tokenize(text, add_special_tokens=False))).ids


async def send_chat(
    service: Service,
    submission: Submission,
    asked: Asked,
    chat: EncodedChat,
    calls: CallRules,
    *,
    place: str = "messages",
    thoughts: Thoughts = Thoughts.STREAMED,
) -> list[OutputReader]:
    """Renders and sends it. Returns a reader for each of its sequences. `asked`: as of `with_chat`. `place` and
    `thoughts` as `prepare`'s.
    """
    service.client.queue.check_count(place, asked.spec.params.n, submission)  # rendering takes longer
    form = OutputForm(calls, thoughts, asked.held)
    media = service.client.preparing(submission)
    made = prepare(
        service.client.text.render, service.style, chat, asked.spec, form, media=media, rid=asked.rid, place=place
    )
    prompt, reading = await submission.during(made)
    service.client.send([prompt], submission)
    return [OutputReader(reading) for _ in submission.sequences]
