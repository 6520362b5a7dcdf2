"""How events are written: one for each token, whose bytes around the text are made once."""

import orjson
import pytest
from msgspec.structs import replace

from ramet.runtime.server.anthropic.replies import BlockStop
from ramet.runtime.server.http import sse
from ramet.runtime.server.openai.replies import (
    ChatChunk,
    ChunkChoice,
    CompletionChoice,
    CompletionReply,
    Delta,
)

CHAT = ChatChunk(id='"\0"', created=1, model="\0", choices=[], usage=None)
COMPLETION = CompletionReply(id='"\0"', created=1, model="\0", choices=[])


@pytest.mark.parametrize("text", ["", " wörld", '"\\u0000"', "\0", "\n\u2028", "🙂"])
def test_a_frame_around_a_text_is_the_event_with_that_text(text: str) -> None:
    def chat(content: str) -> ChatChunk:
        return replace(CHAT, choices=[ChunkChoice(index=3, delta=Delta(content=content))])

    def completion(content: str) -> CompletionReply:
        return replace(COMPLETION, choices=[CompletionChoice(index=3, text=content)])

    assert sse.frame(chat(sse.HOLE)).around(text) == sse.event(chat(text))
    assert sse.frame(completion(sse.HOLE)).around(text) == sse.event(completion(text))


def test_a_named_event_has_its_type_as_its_name() -> None:
    name, data, *rest = sse.named(BlockStop(2)).split(b"\n")
    assert name == b"event: content_block_stop" and rest == [b"", b""]
    assert orjson.loads(data.removeprefix(b"data: ")) == {"type": "content_block_stop", "index": 2}
