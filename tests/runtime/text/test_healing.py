"""The table of tokens by their bytes, and the tail of a prompt: as trying every token of the vocabulary has it."""

import random

import pytest
from healed import Everything, make_model, text_of
from tokenizers import Tokenizer as Source
from toy_tokenizers import byte_level_source, metaspace_source, pieces_source, wordpiece_source

from ramet.runtime.config import BUNDLED_MODEL, make_args
from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.text.decode import TextDecoder
from ramet.runtime.text.healing import Tail, check_healing, take_tail
from ramet.runtime.text.token_bytes import TokenBytes
from ramet.runtime.text.tokenizer import Tokenizer

SOURCES = {"byte level": byte_level_source, "pieces": pieces_source, "metaspace": metaspace_source}
TEXTS = [
    "the quick brown fo", "the end of th", "naïve caf", "Straße; 東", "東京は日本の首", "привет ми", "👍🏽 👩", "STOP",
    "User: what i", "  two  spaces  ", "a\n\n", "😀", "x", "the<|end|>", "the<|end|>fo", "the <tool>", "foxes", " ",
    "the fox th",
]  # fmt: skip


@pytest.fixture(params=[*SOURCES, "bundled", "overlapping"], scope="module")
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    if request.param == "bundled":
        return Tokenizer.from_folder(BUNDLED_MODEL)
    if request.param == "overlapping":
        return Tokenizer.from_folder(make_model(tmp_path_factory.mktemp("model")))
    source: Source = SOURCES[request.param]()
    return Tokenizer(source, [2])


def test_the_table_has_what_trying_every_token_finds(tokenizer: Tokenizer) -> None:
    table, everything = tokenizer.token_bytes_table(tokenizer.vocab_size), Everything(tokenizer)
    draw = random.Random(0)
    spelled = [draw.choice(list(everything.tokens.values())) for _ in range(50)]
    for text in [
        b"",
        b"\xff",
        b"\xff\xff",
        b"\0",
        *(TEXTS[i].encode() for i in range(8)),
        *spelled,
        *(t[:1] for t in spelled),
    ]:
        beginning = {token for token, each in everything.tokens.items() if each.startswith(text)}
        assert set(table.begin_with(text)) == beginning
        assert dict(zip(table.begin_with(text), [text + beyond for beyond in table.beyond(text).texts])) == {
            t: everything.tokens[t] for t in beginning
        }
        assert set(table.equal(text)) == {token for token, each in everything.tokens.items() if each == text}
        assert table.goes_on(text) == any(each.startswith(text) and each != text for each in everything.tokens.values())
        lengths = {len(each) for each in everything.tokens.values() if text.startswith(each) and each != text}
        assert list(table.pieces(text)) == sorted(lengths)


def test_a_text_is_spelled_by_as_few_tokens_as_there_can_be() -> None:
    table = TokenBytes([(b"a", 1), (b"ab", 2), (b"bc", 3), (b"b", 4), (b"cd", 5), (b"abc", 6)])
    assert table.spell(b"abcd") == [2, 5]  # not abc, after which nothing spells d
    assert table.spell(b"") == [] and table.spell(b"abc") == [6] and table.spell(b"d") is None


def test_tokens_that_are_no_text_are_not_in_the_table() -> None:
    tokenizer = Tokenizer(byte_level_source(), [2])
    ids = tokenizer.token_bytes_table(100).begin_with(b"")
    assert len(ids) and not {0, 1, 2, *tokenizer.added_tokens.values()} & set(ids) and max(ids) < 100


def test_the_tail_is_where_the_earliest_crossing_token_could_begin(tokenizer: Tokenizer) -> None:
    everything, draw, healed = Everything(tokenizer), random.Random(1), 0
    for text in [*TEXTS, *(text_of(draw) for _ in range(200))]:
        ids = tokenizer.encode(text)
        for most in (0, 1, 2, 50):
            kept, tail = take_tail(tokenizer, ids, tokenizer.vocab_size, most)
            assert (kept, tail) == everything.tail(ids, most), text
            assert kept == ids[: len(kept)] and (len(kept) >= 1 or not ids)
            healed += bool(tail)
    assert healed > 20


def test_a_token_that_could_begin_inside_another_one_is_found() -> None:
    """ "ther" + "ap" hides the "rapist" of "the" + "rapist"."""
    source = byte_level_source()
    vocabulary = source.get_vocab()
    texts = {b"the": 1, b"rapist": 2, b"ther": 3, b"ap": 4, b"x": 5}
    assert vocabulary  # a real tokenizer stands behind the one whose table is this
    tokenizer = Tokenizer(source)
    tokenizer._tables[9] = TokenBytes((text, token) for text, token in texts.items())
    tokenizer.pieces = {token: text.decode() for text, token in texts.items()}  # type: ignore[assignment]
    assert take_tail(tokenizer, [5, 3, 4], 9, 50) == ([5], b"therap")
    assert take_tail(tokenizer, [3, 4], 9, 50) == ([3, 4], b"")  # one token stays, and nothing is longer than "ap"


def test_only_tokens_that_leave_enough_for_the_rest_may_be_inside() -> None:
    table = TokenBytes([(b"a", 1), (b"ab", 2), (b"b", 3), (b"c", 4), (b"cx", 5), (b"q", 6)])
    tail = Tail(b"abc", table, max_tokens=2)
    assert [(each.token, each.offset) for each in tail.inner(0, 0)] == [(2, 2)]
    assert [(each.token, each.offset) for each in Tail(b"abc", table, 3).inner(0, 0)] == [(1, 1), (2, 2)]
    assert set(tail.covering(2)) == {4, 5} and tail.beyond_of(5, 2) == b"x" and tail.beyond_of(4, 2) == b""
    assert [(each.token, each.offset) for each in Tail(b"az", table, 9).inner(0, 0)] == []  # nothing spells z


def test_text_after_the_tail_begins_inside_a_token(tokenizer: Tokenizer) -> None:
    draw = random.Random(4)
    table = tokenizer.token_bytes_table(tokenizer.vocab_size)
    for _ in range(200):
        ids = [draw.choice(table.begin_with(b"").tolist()) for _ in range(6)]
        whole = b"".join(tokenizer.token_bytes(token) or b"" for token in ids)
        tail = draw.randrange(1, len(whole))
        decoder = TextDecoder(tokenizer, tail_bytes=tail)
        shown = "".join([decoder.push(token) for token in ids]) + decoder.flush()
        assert shown == whole[tail:].decode("utf-8", "replace")


def test_a_tokenizer_whose_tokens_have_no_bytes_is_refused() -> None:
    tokenizer = Tokenizer(wordpiece_source())
    with pytest.raises(ClientError, match="no bytes of their own"):
        take_tail(tokenizer, [2, 3, 4], 13, 9)
    check_healing(make_args(), tokenizer)
    with pytest.raises(ConfigError, match="--token-healing is on"):
        check_healing(make_args(token_healing="on"), tokenizer)
    check_healing(make_args(token_healing="on"), Tokenizer(pieces_source()))
