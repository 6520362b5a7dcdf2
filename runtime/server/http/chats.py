"""How the three chat endpoints start: render the chat, send its prompt, make what reads its outputs."""

from ramet.ipc.messages import Chat
from ramet.runtime.engine_client.submission import Prompt, Submission
from ramet.runtime.intake.chat import Style, prepare
from ramet.runtime.intake.reading import Reader
from ramet.runtime.server.http.service import Service


async def send_chat(
    service: Service,
    submission: Submission,
    prompt: Prompt,
    chat: Chat,
    *,
    style: Style | None = None,
    parallel: bool = True,
    as_shown: bool = False,
) -> list[Reader]:
    """`prompt` is without content. Returns a reader for each of its sequences. `style` and the rest as `prepare`'s."""
    render, style = service.client.render, style or service.style
    asked = prepare(render, style, chat, prompt.spec, place=prompt.place, parallel=parallel, as_shown=as_shown)
    ready = await submission.during(asked)
    service.client.send([prompt._replace(spec=ready.spec, ids=ready.ids)], submission)
    return [Reader(ready.reading) for _ in submission.sequences]
