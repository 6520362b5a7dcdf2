"""A call with a long text or many ids runs on a thread of its own, beside everything else that a tokenizer does."""

import queue
import threading

import pytest

from ramet.ipc.message import Message
from ramet.ipc.messages import Abort, Detokenize, Generate, Render, RenderChoices, RenderPrompt, Tokenize, Turn
from ramet.runtime.text.long_calls import LONG_CHARS, LONG_IDS_BYTES, is_long
from ramet.runtime.text.rendering import ChatThreads, runs_aside
from ramet.runtime.text.tokenizer import LOCKED_IDS, Tokenizer
from tests.fakes.specs import make_spec

WAIT_S = 120.0
LONG_TEXT = "a b " * (LONG_CHARS // 4 + 1)
LONG = Tokenize(1, LONG_TEXT)


@pytest.mark.parametrize(
    ("message", "aside"),
    [
        (LONG, True),
        (Tokenize(1, "a", pair=LONG_TEXT), True),
        (Detokenize(1, bytes(LONG_IDS_BYTES + 4)), True),
        (RenderPrompt(1, [LONG_TEXT]), True),
        (RenderChoices(1, ["a" * 1024], ["b"] * (LONG_CHARS // 1024)), True),  # each is tokenised with its prompt
        (RenderChoices(1, ["a"], ["b", LONG_TEXT]), True),
        (RenderChoices(1, ["a"], ["b", "c"]), False),
        (Tokenize(1, "a"), False),
        (Detokenize(1, bytes(4)), False),
        (Generate([1], make_spec(), text=LONG_TEXT), False),  # an Abort of it comes behind it
        (Abort([1]), False),
    ],
)
def test_only_long_calls_leave_the_order_of_requests(message: Message, aside: bool) -> None:
    assert runs_aside(message) is aside


def test_a_chat_does_not_wait_for_a_long_text() -> None:
    served, goes_on = queue.Queue[Message](), threading.Event()

    def serve(message: Message, _: object) -> None:
        if message is LONG:
            goes_on.wait(WAIT_S)
        served.put(message)

    threads, chat = ChatThreads(serve, lambda: None), Render(2, b"{}")  # type: ignore[arg-type,return-value]
    for message in (LONG, LONG, LONG, chat):
        threads.put(message)
    assert served.get(timeout=WAIT_S) is chat
    goes_on.set()
    assert [served.get(timeout=WAIT_S) for _ in range(3)] == [LONG] * 3
    threads.close()


def test_a_long_prompt_with_turns_keeps_no_chat_waiting() -> None:
    prompt = RenderPrompt(1, [Turn("user", [LONG_TEXT])])
    assert is_long(prompt) and runs_aside(prompt)


def test_many_ids_are_the_text_that_few_are(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("the fox ", add_special_tokens=False)
    times = LOCKED_IDS // len(ids) + 1
    assert byte_level.decode(ids * times) == byte_level.decode(ids) * times
