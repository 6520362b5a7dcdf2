"""What a rendering worker answers where memory runs out around a rendering: no test can time that in a process."""

import msgspec

from ramet.ipc.messages import Chat
from ramet.runtime.exact_json import decoder_of, encode
from ramet.runtime.text.chat_template import ChatTemplate, RenderLimits
from ramet.runtime.text.render_worker import Ended, Job, Outcome, Rendered, _answer
from ramet.runtime.text.template_files import TemplateSources


def test_memory_that_runs_out_around_a_rendering_is_answered_and_the_next_chat_is_rendered() -> None:
    template = ChatTemplate(TemplateSources("Hello"), RenderLimits(3.0, 96.0))
    job = Job(encode(Chat([{"role": "user", "content": "a"}], None, {}, True, False)))

    def short_of_memory(data: bytes | str) -> Chat:
        raise MemoryError

    def answer(read) -> Outcome:  # type: ignore[no-untyped-def]
        return msgspec.msgpack.decode(_answer(template, read, job), type=Outcome)

    assert answer(short_of_memory) == Ended(template.limits.too_large)
    assert answer(decoder_of(Chat)) == Rendered("Hello")
