"""A text that is long, on whatever route, keeps no other message waiting; what ends a prompt comes behind it.

The tokenizer stops in a long text until the test lets it go on, so the order of events shows who waits for whom.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pytest

from ramet.ipc.content import Content
from ramet.ipc.message import Message
from ramet.ipc.messages import (
    Abort,
    CallRefused,
    Chat,
    ChoicesReply,
    Generate,
    GenerateAll,
    Limits,
    PromptReply,
    Rejected,
    Render,
    RenderChoices,
    RenderPrompt,
    RenderReply,
    Tokenize,
    Tokenized,
    ToTokenizer,
    pack_ids,
)
from ramet.runtime.text.bounded_rendering import MAX_CHAT_BYTES, chats_here
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.dispatch import Dispatch
from ramet.runtime.text.encoder import Encoder
from ramet.runtime.text.long_calls import LONG_CHARS
from ramet.runtime.text.rendering import WORKERS
from ramet.runtime.text.template_files import TemplateSources
from ramet.runtime.text.tokenizer import Tokenizer
from ramet.runtime.text.tokenizer_process import dispatch_to
from tests.fakes.specs import make_spec

WAIT_S = 120.0
CONTEXT = 4 * LONG_CHARS
LONG_TEXT = "the fox " * (LONG_CHARS // 8 + 1)
TEMPLATE = TemplateSources("{{ messages[0].content }}")
OF_A, OF_B = make_spec(key_name="a"), make_spec(key_name="b")


class Stopping(Tokenizer):
    """Waits in each long text for `goes_on`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer._source)
        self.goes_on, self.begun = threading.Event(), queue.Queue[str]()

    def encode(self, text: str, add_special_tokens: bool = True, pair: str | None = None) -> list[int]:
        if len(text) > LONG_CHARS:
            self.begun.put(text)
            assert self.goes_on.wait(WAIT_S)
        return super().encode(text, add_special_tokens, pair)


class Sent:
    """What is sent to the scheduler and to the server, in one order."""

    def __init__(self) -> None:
        self._messages = queue.Queue[Message]()

    def send(self, message: Message) -> None:
        self._messages.put(message)

    def send_all(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.send(message)

    @property
    def is_empty(self) -> bool:
        return self._messages.empty()

    def next(self) -> Message:
        return self._messages.get(timeout=WAIT_S)


class Desk:
    def __init__(self, tokenizer: Tokenizer, here: Chats | None = None) -> None:
        self.tokenizer, self.sent = Stopping(tokenizer), Sent()
        limits = Limits(CONTEXT, 2 * CONTEXT, tokenizer.vocab_size, 8)
        encoder = Encoder(self.tokenizer, limits, Chats(TEMPLATE), chats_here=here)
        self.dispatch: Dispatch = dispatch_to(encoder, self.sent, self.sent, lambda: self.sent)

    def handle(self, *messages: ToTokenizer) -> None:
        for message in messages:
            self.dispatch.handle(message)

    def go_on(self) -> None:
        self.tokenizer.goes_on.set()


@pytest.fixture
def desk(byte_level: Tokenizer) -> Iterator[Desk]:
    made = Desk(byte_level)
    yield made
    made.go_on()
    made.dispatch.close()


def prompt(uid: int, text: str, spec: Any = OF_A) -> Generate:
    return Generate([uid], spec, Content(text))  # type: ignore[list-item]


def chat(call: int, text: str, owner: str = "a") -> Render:
    return Render(call, msgspec.json.encode(Chat([{"role": "user", "content": text}])), owner)


LONG: dict[str, tuple[Callable[[], Any], type]] = {
    "prompt": (lambda: prompt(1, LONG_TEXT), Generate),
    "rendered prompt": (lambda: Generate([1], OF_A, Content(LONG_TEXT, is_rendered=True)), Generate),  # type: ignore[list-item]
    "batch": (lambda: GenerateAll([prompt(1, "a"), prompt(2, LONG_TEXT)]), Generate),
    "chat": (lambda: chat(1, LONG_TEXT), RenderReply),
    "text": (lambda: Tokenize(1, LONG_TEXT, owner="a"), Tokenized),
    "pair": (lambda: Tokenize(1, LONG_TEXT, pair="a", owner="a"), Tokenized),
    "language prompt": (lambda: RenderPrompt(1, [LONG_TEXT], owner="a"), PromptReply),
    "choices": (lambda: RenderChoices(1, [LONG_TEXT], ["a", "b"], owner="a"), ChoicesReply),
}


@pytest.mark.parametrize("kind", LONG)
def test_short_messages_of_another_key_are_served_while_a_long_text_is_tokenised(desk: Desk, kind: str) -> None:
    make, answer = LONG[kind]
    desk.handle(make())
    assert desk.tokenizer.begun.get(timeout=WAIT_S).startswith("the fox ")
    desk.handle(prompt(8, "a", OF_B), chat(9, "b", "b"))
    served = [desk.sent.next() for _ in range(2)]
    assert [type(each) for each in served] == [Generate, RenderReply]
    desk.go_on()
    assert type(desk.sent.next()) is answer


def test_long_chats_leave_the_threads_for_chats(desk: Desk) -> None:
    desk.handle(*(chat(call, LONG_TEXT) for call in range(4)), chat(9, "b", "b"))
    first = desk.sent.next()
    assert isinstance(first, RenderReply) and first.call == 9
    desk.go_on()
    assert {type(desk.sent.next()) for _ in range(4)} == {RenderReply}


def test_a_small_chat_of_a_bounded_template_is_served_at_once(byte_level: Tokenizer) -> None:
    """So it comes before what any thread has to do."""
    desk = Desk(byte_level, chats_here(TEMPLATE))
    large = "the fox " * (MAX_CHAT_BYTES // 8)
    desk.dispatch.close()  # no other thread serves anything
    desk.handle(chat(1, large), chat(2, "a"), chat(3, ""), prompt(4, "b"))
    served = [desk.sent.next() for _ in range(3)]
    assert [type(each) for each in served] == [RenderReply, CallRefused, Generate]
    assert desk.sent.is_empty


def test_keys_take_turns_at_long_prompts(desk: Desk) -> None:
    desk.handle(prompt(1, LONG_TEXT), prompt(2, LONG_TEXT), prompt(3, LONG_TEXT))
    desk.handle(prompt(4, LONG_TEXT, OF_B))
    desk.go_on()
    assert [each.uids for _ in range(4) if isinstance(each := desk.sent.next(), Generate)] == [[1], [4], [2], [3]]


def test_what_ends_a_long_prompt_comes_behind_it(desk: Desk) -> None:
    desk.handle(Generate([1, 2, 3], OF_A, Content(LONG_TEXT)), prompt(4, "a"))  # type: ignore[list-item]
    desk.handle(Abort([2, 4], "left"), Abort([3, 1], "late"))  # type: ignore[list-item]
    served = [desk.sent.next() for _ in range(3)]
    assert isinstance(served[0], Generate) and served[1:] == [Abort([4], "left"), Abort([], "late")]  # type: ignore[list-item]
    desk.go_on()
    admitted = desk.sent.next()
    assert isinstance(admitted, Generate) and admitted.uids == [1, 2, 3]
    ended = [desk.sent.next() for _ in range(2)]
    assert ended == [Abort([1, 3], "late"), Abort([2], "left")]  # type: ignore[list-item]
    desk.handle(Abort([1]))  # type: ignore[list-item]
    assert desk.sent.next() == Abort([1])  # type: ignore[list-item]


def test_a_batch_with_a_long_prompt_enters_whole_or_not_at_all(desk: Desk) -> None:
    bad = Generate([3], OF_A, Content(ids=pack_ids([10**6])))  # type: ignore[list-item]
    desk.handle(GenerateAll([prompt(1, LONG_TEXT), bad]), Abort([1]))  # type: ignore[list-item]
    assert desk.sent.next() == Abort([])
    desk.go_on()
    refused = [desk.sent.next() for _ in range(2)]
    assert all(isinstance(each, Rejected) for each in refused)
    assert desk.sent.next() == Abort([1])  # type: ignore[list-item]


def test_an_answer_that_waits_for_prompts_waits_for_those_of_its_key(desk: Desk) -> None:
    desk.handle(prompt(1, LONG_TEXT))
    desk.handle(Tokenize(2, "", owner="a", after_prompts=True), Tokenize(3, "", owner="b", after_prompts=True))
    first = desk.sent.next()
    assert isinstance(first, Tokenized) and first.call == 3
    desk.go_on()
    assert isinstance(desk.sent.next(), Generate)
    last = desk.sent.next()
    assert isinstance(last, Tokenized) and last.call == 2
    desk.handle(Tokenize(4, "", owner="a", after_prompts=True))
    assert isinstance(desk.sent.next(), Tokenized)


def test_a_long_text_has_the_ids_that_it_has_at_once(desk: Desk, byte_level: Tokenizer) -> None:
    desk.go_on()
    ids = byte_level.encode(LONG_TEXT)
    desk.handle(prompt(1, LONG_TEXT), chat(2, LONG_TEXT))
    for _ in range(2):
        match desk.sent.next():
            case Generate(content=Content(ids=found)):
                assert found == pack_ids(ids)
            case RenderReply(ids=found, tail=tail):
                assert found == pack_ids(byte_level.encode(LONG_TEXT, add_special_tokens=False))
                assert LONG_TEXT.endswith(tail)
            case other:
                raise AssertionError(other)


def test_a_failure_of_ours_in_a_long_text_ends_that_message_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.handle(chat(1, LONG_TEXT), prompt(2, LONG_TEXT), Abort([2]))  # type: ignore[list-item]
    assert desk.sent.next() == Abort([])
    desk.tokenizer.begun.get(timeout=WAIT_S)
    monkeypatch.setattr(desk.tokenizer, "_source", None)
    desk.go_on()
    kinds = [type(desk.sent.next()) for _ in range(3)]
    assert set(kinds) == {CallRefused, Rejected, Abort} and kinds.index(Rejected) < kinds.index(Abort)


class Renderer:
    """Renders every chat on a thread; the first ones wait for `goes_on`."""

    def __init__(self, num_waiting: int) -> None:
        self.goes_on, self.num_waiting = threading.Event(), num_waiting
        self.begun, self.rendered = queue.Queue[int](), queue.Queue[int]()

    def write_here(self, call: Render) -> None:
        return None

    def serve(self, message: Any, *_: Any) -> None:
        self.begun.put(message.call)
        if message.call < self.num_waiting:
            assert self.goes_on.wait(WAIT_S)
        else:
            self.rendered.put(message.call)


def test_a_small_chat_overtakes_large_ones_of_its_key() -> None:
    renderer, sent = Renderer(WORKERS), Sent()
    dispatch = Dispatch(renderer, sent, sent, lambda: sent)
    large = "a" * (1 << 20)
    for call in range(WORKERS + 20):
        dispatch.handle(chat(call, large, owner=""))
    for _ in range(WORKERS):
        assert renderer.begun.get(timeout=WAIT_S) < WORKERS
    dispatch.handle(chat(99, "a" * 100_000, owner=""))
    renderer.goes_on.set()
    order = [renderer.rendered.get(timeout=WAIT_S) for _ in range(21)]
    dispatch.close()
    assert order.index(99) <= WORKERS
