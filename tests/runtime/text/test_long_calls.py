"""Which messages have a long text or many ids, and that many ids are decoded as few are."""

import pytest

from ramet.ipc.content import Content
from ramet.ipc.message import Message
from ramet.ipc.messages import Abort, ChatTurn, Detokenize, Generate, GenerateAll, RenderChoices, RenderPrompt, Tokenize
from ramet.runtime.text.long_calls import LONG_CHARS, LONG_IDS_BYTES, is_long
from ramet.runtime.text.tokenizer import LOCKED_IDS, Tokenizer
from tests.fakes.specs import make_spec

LONG_TEXT = "a b " * (LONG_CHARS // 4 + 1)
HALF = Generate([1], make_spec(), Content("a" * (LONG_CHARS // 2 + 1)))


@pytest.mark.parametrize(
    ("message", "long"),
    [
        (Tokenize(1, LONG_TEXT), True),
        (Tokenize(1, "a", pair=LONG_TEXT), True),
        (Detokenize(1, bytes(LONG_IDS_BYTES + 4)), True),
        (RenderPrompt(1, [LONG_TEXT]), True),
        (RenderPrompt(1, [ChatTurn("user", [LONG_TEXT])]), True),
        (RenderChoices(1, ["a" * 1024], ["b"] * (LONG_CHARS // 1024)), True),  # each is tokenised with its prompt
        (RenderChoices(1, ["a"], ["b", LONG_TEXT]), True),
        (RenderChoices(1, ["a"], ["b", "c"]), False),
        (Tokenize(1, "a"), False),
        (Detokenize(1, bytes(4)), False),
        (Generate([1], make_spec(), Content(LONG_TEXT)), True),
        (Generate([1], make_spec(), Content(ids=bytes(LONG_IDS_BYTES + 4))), False),
        (HALF, False),
        (GenerateAll([HALF]), False),
        (GenerateAll([HALF, HALF]), True),
        (Abort([1]), False),
    ],
)
def test_a_message_is_long_by_all_of_its_texts(message: Message, long: bool) -> None:
    assert is_long(message) is long


def test_many_ids_are_the_text_that_few_are(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("the fox ", add_special_tokens=False)
    times = LOCKED_IDS // len(ids) + 1
    assert byte_level.decode(ids * times) == byte_level.decode(ids) * times
