"""Steps of tokens to steps of text: what is shown, when, and that nothing shown is ever cut."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from samples import examples

from ramet.ipc.messages import Closed, Finish, FinishKind, Logprobs, Opened, TokenStep, pack_ids
from ramet.ipc.spec import DetokenizeOptions
from ramet.runtime.text.decode import TextDecoder
from ramet.runtime.text.detokenizer_process import Detokenizer
from ramet.runtime.text.stops import StopMatch, StopMatcher
from ramet.runtime.text.tokenizer import Tokenizer

END = 0  # <|end|>


def opened(uid: int, **options: Any) -> Opened:
    return Opened(uid, DetokenizeOptions(**options), prompt_tokens=3, cached_tokens=0)


class Outputs:
    """What a client of each uid has seen."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.detokenizer = Detokenizer(tokenizer)
        self.shown: dict[int, str] = defaultdict(str)

    def step(self, rows: list[tuple[int, int]] = (), opened: list[Opened] = (), closed: list[Closed] = ()) -> TokenStep:
        tokens = pack_ids([token for _, token in rows])
        step = TokenStep([uid for uid, _ in rows], tokens, list(opened), list(closed))
        texts = self.detokenizer.step(step)
        assert (texts.uids, texts.tokens) == (step.uids, step.tokens)
        assert (texts.opened, texts.closed) == (step.opened, step.closed)
        for uid, text in zip(texts.uids, texts.texts, strict=True):
            self.shown[uid] += text
        for end, tail in zip(texts.closed, texts.tails, strict=True):
            self.shown[end.uid] += tail
        return texts


def run_one(tokenizer: Tokenizer, ids: list[int], finish: Finish, **options: object) -> list[str]:
    """The shown texts of one sequence: one for every token, and the tail."""
    outputs = Outputs(tokenizer)
    pieces = []
    for index, token in enumerate(ids):
        last = index == len(ids) - 1
        text = outputs.step([(1, token)], [] if index else [opened(1, **options)], [Closed(1, finish)] if last else [])
        pieces += [*text.texts, *text.tails]
    assert outputs.detokenizer.num_open == 0
    return pieces


def test_rows_of_a_step_are_told_apart(byte_level: Tokenizer) -> None:
    first, second = byte_level.encode("the fox ok"), byte_level.encode("über ok")
    outputs = Outputs(byte_level)
    outputs.step(opened=[opened(1), opened(2)])
    for a, b in zip(first, second):
        outputs.step([(2, b), (1, a)])
    assert outputs.shown[1] == byte_level.decode(first[: len(second)])
    assert outputs.shown[2] == byte_level.decode(second[: len(first)])


def test_length_end_shows_what_was_held_and_the_broken_character(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("ok STO") + [i for i in range(420) if byte_level.token_bytes(i) == b"\xe4"][:1]
    pieces = run_one(byte_level, ids, Finish(FinishKind.LENGTH, length=len(ids)), stop=("STOP",))
    assert "".join(pieces) == "ok STO\ufffd"
    assert pieces[-1].endswith("\ufffd") and "S" not in "".join(pieces[:-1])


@pytest.mark.parametrize(
    ("trim", "skip", "text"),
    [(True, True, "the"), (True, False, "the"), (False, True, "the"), (False, False, "the<|end|>")],
)
def test_stop_token_is_shown_only_when_asked(byte_level: Tokenizer, trim: bool, skip: bool, text: str) -> None:
    ids = [*byte_level.encode("the"), END]
    options = {"no_stop_trim": not trim, "skip_special_tokens": skip}
    assert "".join(run_one(byte_level, ids, Finish(FinishKind.STOP, matched=END), **options)) == text


def test_an_ordinary_stop_token_is_trimmed_once(byte_level: Tokenizer) -> None:
    (dot,) = byte_level.encode(".")
    ids = [dot, *byte_level.encode("ok"), dot]
    assert "".join(run_one(byte_level, ids, Finish(FinishKind.STOP, matched=dot))) == ".ok"
    assert "".join(run_one(byte_level, ids, Finish(FinishKind.LENGTH, length=4))) == ".ok."


def test_neighbours_in_the_closing_step_are_not_trimmed(byte_level: Tokenizer) -> None:
    (dot,) = byte_level.encode(".")
    outputs = Outputs(byte_level)
    outputs.step([(1, dot), (2, dot), (3, dot)], [opened(1), opened(2), opened(3)])
    outputs.step([(1, dot), (2, dot), (3, dot)], closed=[Closed(2, Finish(FinishKind.STOP, matched=dot))])
    assert dict(outputs.shown) == {1: "..", 2: ".", 3: ".."}


@pytest.mark.parametrize(("keep", "text"), [(False, "say "), (True, "say STOP")])
def test_stop_string_across_tokens_is_cut(byte_level: Tokenizer, keep: bool, text: str) -> None:
    #  s a y _ S T | O P h   : the last token goes past the stop string
    ids = [i for part in ("say ", "ST", "O", "P", "here") for i in byte_level.encode(part)]
    pieces = run_one(byte_level, ids, Finish(FinishKind.STOP, "STOP", cut=len(text)), stop=("STOP",), no_stop_trim=keep)
    assert "".join(pieces) == text


def test_text_without_a_stop_in_sight_is_shown_at_once(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("the quick brown fox")
    pieces = run_one(byte_level, ids, Finish(FinishKind.LENGTH, length=len(ids)), stop=("STOP",), stop_regex=(r"\d+",))
    assert pieces == [byte_level.decode([i]) for i in ids] + [""]


def test_the_bytes_of_half_characters_go_with_their_texts(byte_level: Tokenizer) -> None:
    halves = {byte_level.token_bytes(token): token for token in range(420) if byte_level.token_bytes(token) is not None}
    own, best, (whole,) = halves[b"\xe4"], halves[b"\x9c"], byte_level.encode("o")
    scores = Logprobs(1, False, pack_ids([own]), bytes(4), pack_ids([best, whole]), bytes(8))
    step = TokenStep([1], pack_ids([own]), [opened(1, chosen=())], logprobs=[scores])
    (told,) = Detokenizer(byte_level).step(step).logprobs
    assert told.texts == {own: "\ufffd", best: "\ufffd", whole: "o"} and told.raw == {own: b"\xe4", best: b"\x9c"}


def test_a_token_s_text_is_decoded_and_sent_once_for_a_sequence(
    byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply of a million log-probabilities has the texts of one vocabulary."""
    ids = byte_level.encode("the quick brown fox")
    calls = list[int]()
    detokenizer = Detokenizer(byte_level)
    decode = byte_level.decode
    monkeypatch.setattr(byte_level, "decode", lambda tokens, **more: calls.extend(tokens) or decode(tokens, **more))
    places = Logprobs(1, True, pack_ids(ids), bytes(4 * len(ids)), pack_ids(ids * len(ids)), bytes(4 * len(ids) ** 2))
    first = detokenizer.step(TokenStep([], b"", [opened(1, chosen=())], logprobs=[places])).logprobs[0]
    again = detokenizer.step(TokenStep([], b"", logprobs=[places, replace(places, ids=pack_ids(ids[:1]))])).logprobs
    assert first.texts == {token: decode([token]) for token in ids} and sorted(calls) == sorted(set(ids))
    assert [each.texts for each in again] == [{}, {}]
    other = detokenizer.step(TokenStep([], b"", [opened(2, chosen=())], logprobs=[replace(places, uid=2)]))
    assert other.logprobs[0].texts == first.texts


def test_end_before_the_beginning_has_an_empty_tail(byte_level: Tokenizer) -> None:
    step = Outputs(byte_level).step(closed=[Closed(9, Finish.abort("", "gone", status=0))])
    assert step.tails == [""]


def test_abort_shows_what_was_held(byte_level: Tokenizer) -> None:
    outputs = Outputs(byte_level)
    outputs.step([(1, i) for i in byte_level.encode("a STO")], [opened(1, stop=("STOP",))])
    assert outputs.shown[1] == "a "
    outputs.step(closed=[Closed(1, Finish.abort("", "gone", status=0))])
    assert outputs.shown[1] == "a STO"
    assert outputs.detokenizer.num_open == 0


def scheduler_stops(tokenizer: Tokenizer, ids: list[int], params: dict, keep: bool) -> tuple[int, Finish]:
    """The number of tokens and the finish that a scheduler decides on."""
    decoder = TextDecoder(tokenizer, skip_special_tokens=params["skip_special_tokens"])
    matcher = StopMatcher(params["stop"], params["stop_regex"])
    for count, token in enumerate(ids, start=1):
        match = matcher.feed(decoder.push(token))
        if match is not None:
            return count, Finish(FinishKind.STOP, match.pattern, cut=match.end if keep else match.start)
    return len(ids), Finish(FinishKind.LENGTH, length=len(ids))


def first_match(params: dict, texts: list[str]) -> StopMatch | None:
    """Found in the last of these texts at the earliest."""
    matcher = StopMatcher(params["stop"], params["stop_regex"])
    return [matcher.feed(text) for text in texts][-1]


BYTES = st.sampled_from([*b"abST \n", *"é京".encode()])
OPTIONS = st.fixed_dictionaries(
    {
        "stop": st.lists(st.sampled_from(["ST", "ab", "S\n", "é", "a a", "京T", "\ufffd"]), max_size=3).map(tuple),
        "stop_regex": st.lists(
            st.sampled_from(["a[^b]*T", r"\s{2}", "S.?b", "京", r"\bb", "a T$", "(?m)^é", r"S\B.", r"a\n?\Z"]),
            max_size=2,
        ).map(tuple),
        "skip_special_tokens": st.booleans(),
    }
)


@examples(150, 2000)
@given(st.lists(st.one_of(BYTES, st.just(None)), min_size=1, max_size=40), OPTIONS, st.booleans())
def test_joined_stream_equals_the_whole_text_cut_at_its_stop(
    byte_level: Tokenizer, byte_ids: dict[int, int], symbols: list[int | None], params: dict, keep: bool
) -> None:
    ids = [END if symbol is None else byte_ids[symbol] for symbol in symbols]
    count, finish = scheduler_stops(byte_level, ids, params, keep)
    ids = ids[:count]
    pieces = run_one(byte_level, ids, finish, no_stop_trim=keep, **params)

    decoder = TextDecoder(byte_level, skip_special_tokens=params["skip_special_tokens"])
    texts = [decoder.push(token) for token in ids]
    match, whole = first_match(params, texts), "".join(texts)
    if match is None:
        assert finish.kind is FinishKind.LENGTH
        assert "".join(pieces) == whole + decoder.flush()
    else:
        assert finish.matched == match.pattern
        assert "".join(pieces) == whole[: match.end if keep else match.start]


@pytest.fixture(scope="session")
def byte_ids(byte_level: Tokenizer) -> dict[int, int]:
    """byte -> the token that is this byte alone"""
    single = {byte_level.token_bytes(i): i for i in range(420, -1, -1)}
    return {byte: single[bytes([byte])] for byte in range(256)}


@examples(40, 500)
@given(st.data())
def test_streams_that_come_and_go_do_not_touch_each_other(byte_level: Tokenizer, data: st.DataObject) -> None:
    outputs = Outputs(byte_level)
    kept: dict[int, list[int]] = {}
    ended: dict[int, list[int]] = {}
    for step in range(12):
        new = [uid for uid in (2 * step, 2 * step + 1) if data.draw(st.booleans())]
        kept.update({uid: [] for uid in new})
        rows = [(uid, data.draw(st.integers(2, 420))) for uid in kept]
        for uid, token in rows:
            kept[uid].append(token)
        gone = [uid for uid in kept if data.draw(st.integers(0, 3)) == 0]
        closed = [Closed(uid, Finish.abort("", "gone", status=0)) for uid in gone]
        stops = [opened(uid, stop=("zq",) if uid % 2 else ()) for uid in new]
        outputs.step(rows, stops, closed)
        ended.update({uid: kept.pop(uid) for uid in gone})
    assert outputs.detokenizer.num_open == len(kept)
    for uid, ids in ended.items():
        assert outputs.shown[uid] == byte_level.decode(ids)
