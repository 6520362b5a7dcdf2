"""What a rendering worker answers where memory runs out around a rendering: no test can time that in a process."""

from collections.abc import Callable

import msgspec

from ramet.ipc.messages import Chat
from ramet.runtime.exact_json import encode
from ramet.runtime.text.chat_template import RenderLimits
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.render_worker import ChatEnded, Outcome, Rendered, _answer
from ramet.runtime.text.template_files import TemplateSources


def test_memory_that_runs_out_around_a_rendering_is_answered_and_the_next_chat_is_rendered() -> None:
    limits, chat = RenderLimits(3.0, 96.0), encode(Chat([{"role": "user", "content": "a"}]))

    def short_of_memory() -> str:
        raise MemoryError

    def answer(render: Callable[[], str]) -> Outcome:
        return msgspec.msgpack.decode(_answer(render, limits), type=Outcome)

    assert answer(short_of_memory) == ChatEnded(limits.too_large)
    assert answer(lambda: Chats(TemplateSources("Hello")).render_json(chat)) == Rendered("Hello")
