"""What the tokenizer process admits, refuses and passes on."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ramet.ipc.channel import MemoryChannel
from ramet.ipc.content import Content
from ramet.ipc.errors import ErrorRecord
from ramet.ipc.messages import (
    Abort,
    CallRefused,
    ChoicesReply,
    Detokenize,
    Detokenized,
    Generate,
    Limits,
    PromptReply,
    Rejected,
    RenderChoices,
    RenderPrompt,
    Tokenize,
    Tokenized,
    ToScheduler,
    ToServer,
    pack_ids,
    unpack_ids,
)
from ramet.ipc.spec import HiddenMode, LogprobSpec, Truncation
from ramet.runtime.text.encoder import MAX_CALL_BYTES, Encoder
from ramet.runtime.text.tokenizer import Tokenizer
from ramet.runtime.text.tokenizer_process import answer
from tests.fakes.specs import make_spec

CONTEXT, VOCABULARY = 32, 430
LIMITS = Limits(CONTEXT, 1000, VOCABULARY, 8)


@pytest.fixture(scope="session")
def encoder(byte_level: Tokenizer) -> Encoder:
    return Encoder(byte_level, LIMITS)


def by_text(text: str, **params: object) -> Generate:
    return Generate([1], make_spec(**params), Content(text))


def by_ids(*ids: int, **params: object) -> Generate:
    return Generate([1], make_spec(**params), Content(ids=pack_ids(ids)))


def test_prompt_becomes_ids_with_its_parameters(encoder: Encoder, byte_level: Tokenizer) -> None:
    request = Generate([4, 5], make_spec(max_new_tokens=3, namespace=("a",)), Content("the fox"), arrival_s=2.5)
    admitted = encoder.admit(request)
    ids = pack_ids(byte_level.encode("the fox"))
    tokenized = admitted.tokenized
    assert tokenized.pid == os.getpid() and tokenized.start_s <= tokenized.end_s
    spec = make_spec(max_new_tokens=3, namespace=("a",))
    assert admitted == Generate([4, 5], spec, Content(ids=ids), arrival_s=2.5, tokenized=tokenized)


def test_special_tokens_in_text_keep_their_meaning(encoder: Encoder) -> None:
    admitted = encoder.admit(by_text("<|end|>"))
    assert isinstance(admitted, Generate) and unpack_ids(admitted.content.ids) == [0]


@pytest.mark.parametrize(
    ("request_", "place", "said"),
    [
        (by_text(""), "text", "at least 1"),
        (by_ids(), "input_ids", "at least 1"),
        (by_ids(1, VOCABULARY), "input_ids[1]", f"is {VOCABULARY}, must be a token id in [0, {VOCABULARY})"),
        (by_ids(-1), "input_ids[0]", "is -1"),
        (by_ids(*[5] * CONTEXT), "input_ids", f"has {CONTEXT} tokens, must have at most {CONTEXT - 1}"),
        (by_text("Q" * 40), "text", "has 40 tokens, must have at most 31: this model's maximum context length is 32"),
        (by_text("the fox " * 700_000), "text", "has more than 32 tokens, must have at most 31"),
        (by_text("a\udc80"), "text", "lone surrogate"),
        (by_text("a", stop_regex=("b", "(?=a)")), "sampling_params.stop_regex[1]", "lookaround"),
        (by_text("a", stop_regex=("(a{1000}){1000}",)), "sampling_params.stop_regex[0]", "must have at most 2000"),
        (by_text("a", stop_regex=("a{1,900}b",) * 3), "sampling_params.stop_regex[1]", "at most 2000 together"),
    ],
)  # fmt: skip
def test_rejection_names_place_value_and_range(encoder: Encoder, request_: Generate, place: str, said: str) -> None:
    rejected = encoder.admit(request_)
    assert isinstance(rejected, Rejected)
    assert (rejected.uids, rejected.error.place, rejected.error.status) == ([1], place, 400)
    assert said in rejected.error.fact


def test_a_prompt_may_fill_the_context_where_nothing_is_generated(encoder: Encoder) -> None:
    def asked(num: int, max_new_tokens: int) -> Generate | Rejected:
        request = by_ids(*[5] * num)
        params = replace(request.spec.params, max_new_tokens=max_new_tokens)
        return encoder.admit(replace(request, spec=replace(request.spec, params=params)))

    assert isinstance(asked(CONTEXT, 0), Generate) and isinstance(asked(CONTEXT - 1, 1), Generate)
    for num, max_new_tokens, most in ((CONTEXT + 1, 0, CONTEXT), (CONTEXT, 1, CONTEXT - 1)):
        rejected = asked(num, max_new_tokens)
        assert isinstance(rejected, Rejected)
        assert f"must have at most {most}: this model's maximum context" in rejected.error.fact
        assert ("one of them new" in rejected.error.fact) == (max_new_tokens > 0)


@pytest.mark.parametrize(("cut", "first", "number"), [
    (Truncation(4), CONTEXT + 9 - 4, 4), (Truncation(4, from_start=True), 0, 4), (Truncation(31), CONTEXT + 9 - 31, 31),
    (Truncation(500), None, 0),
])  # fmt: skip
def test_of_a_prompt_that_is_cut_so_many_tokens_are_kept(
    encoder: Encoder, byte_level: Tokenizer, cut: Truncation, first: int | None, number: int
) -> None:
    text = "Q" * (CONTEXT + 9)
    ids = list(range(3, 3 + CONTEXT + 9))
    by_name = {"text": byte_level.encode(text), "input_ids": ids}
    assert len(by_name["text"]) == len(ids)
    for place, whole in by_name.items():
        spec = make_spec(truncate=cut)
        made = (
            Generate([1], spec, Content(text)) if place == "text" else Generate([1], spec, Content(ids=pack_ids(ids)))
        )
        admitted = encoder.admit(made)
        if first is None:
            assert isinstance(admitted, Rejected) and admitted.error.place == place
        else:
            assert isinstance(admitted, Generate)
            assert unpack_ids(admitted.content.ids) == whole[first : first + number]


def test_a_text_that_is_cut_may_be_long_but_not_endless(encoder: Encoder) -> None:
    spec = make_spec(truncate=Truncation(2))
    admitted = encoder.admit(Generate([1], spec, Content("the fox " * 10_000)))
    assert isinstance(admitted, Generate) and len(unpack_ids(admitted.content.ids)) == 2
    rejected = encoder.admit(Generate([1], spec, Content("x" * (MAX_CALL_BYTES + 1))))
    assert isinstance(rejected, Rejected) and str(MAX_CALL_BYTES) in rejected.error.fact


def test_stop_ids_beyond_the_vocabulary_are_left_out_with_a_line_a_minute(byte_level: Tokenizer, caplog) -> None:
    caplog.set_level("INFO")
    now = [100.0]
    encoder = Encoder(byte_level, LIMITS, clock=lambda: now[0])
    asked = by_text("a", stop_token_ids=(3, VOCABULARY, 999, VOCABULARY - 1))
    for seconds in (0, 59, 60):
        now[0] = 100.0 + seconds
        admitted = encoder.admit(asked)
        assert isinstance(admitted, Generate) and admitted.spec.params.stop_token_ids == (3, VOCABULARY - 1)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2 and lines[0].startswith("2 of a request's stop_token_ids are beyond the vocabulary")


def test_longest_prompt_that_fits_has_room_for_one_token(encoder: Encoder) -> None:
    admitted = encoder.admit(by_ids(*[5] * (CONTEXT - 1), max_new_tokens=9, min_new_tokens=4))
    assert isinstance(admitted, Generate)
    assert (admitted.spec.params.max_new_tokens, admitted.spec.params.min_new_tokens) == (1, 1)


@given(st.integers(1, CONTEXT - 1), st.integers(0, 100))
def test_output_is_cut_to_the_context(encoder: Encoder, length: int, asked: int) -> None:
    admitted = encoder.admit(by_ids(*[5] * length, max_new_tokens=asked))
    assert isinstance(admitted, Generate)
    assert admitted.spec.params.max_new_tokens == min(asked, CONTEXT - length)


def test_text_with_tokens_the_model_lacks_is_refused(byte_level: Tokenizer) -> None:
    small = Encoder(byte_level, Limits(CONTEXT, 1000, 100, 8))
    rejected = small.admit(by_text("é東"))
    assert isinstance(rejected, Rejected) and rejected.error.place.startswith("text[")


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.booleans())
def test_tokenize_then_detokenize_is_the_text(encoder: Encoder, text: str, special: bool) -> None:
    reply = encoder.tokenize(Tokenize(7, text, special))
    assert isinstance(reply, Tokenized) and reply.call == 7
    assert encoder.detokenize(Detokenize(8, reply.ids)) == Detokenized(8, text)


def test_calls_that_cannot_be_served_say_why(encoder: Encoder) -> None:
    assert encoder.detokenize(Detokenize(1, pack_ids([3, 500]))) == CallRefused(
        1, ErrorRecord("tokens[1]", f"is 500, must be a token id in [0, {VOCABULARY})")
    )
    failed = encoder.tokenize(Tokenize(2, "x" * (MAX_CALL_BYTES + 1)))
    assert isinstance(failed, CallRefused) and str(MAX_CALL_BYTES) in failed.error.fact
    assert isinstance(encoder.tokenize(Tokenize(3, "\ud83d")), CallRefused)


def test_two_texts_are_joined_as_the_tokenizer_joins_two(encoder: Encoder, byte_level: Tokenizer) -> None:
    reply = encoder.tokenize(Tokenize(1, "the fox", pair=" and"))
    assert isinstance(reply, Tokenized)
    assert unpack_ids(reply.ids) == byte_level._source.encode("the fox", " and").ids
    assert isinstance(encoder.tokenize(Tokenize(2, "a", pair="\ud83d")), CallRefused)
    failed = encoder.tokenize(Tokenize(3, "a", pair="x" * MAX_CALL_BYTES))
    assert isinstance(failed, CallRefused) and str(MAX_CALL_BYTES) in failed.error.fact


@pytest.mark.parametrize("ids, kept", [
    ((5, 6, 7), (5, 6)), ((5, 7, 6), (5, 7, 6)), ((7, 5, 7, 7), (7, 5)), ((7,), (7,)), ((7, 7, 7), (7,)),
])  # fmt: skip
def test_padding_at_the_end_is_left_out_where_it_is_asked(
    encoder: Encoder, ids: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    for spec, wanted in ((make_spec(padding_id=7), kept), (make_spec(), ids)):
        admitted = encoder.admit(Generate([1], spec, Content(ids=pack_ids(ids))))
        assert isinstance(admitted, Generate) and unpack_ids(admitted.content.ids) == list(wanted)


@pytest.mark.parametrize("more, refused", [
    ({"max_new_tokens": 1}, True), ({"max_new_tokens": 0}, False),
    ({"max_new_tokens": 0, "hidden": HiddenMode.MEAN}, False),
    ({"max_new_tokens": 0, "logprobs": LogprobSpec(0)}, True),
])  # fmt: skip
def test_a_model_without_a_head_for_tokens_is_asked_for_none(
    byte_level: Tokenizer, more: dict[str, object], refused: bool
) -> None:
    headless = Encoder(byte_level, replace(LIMITS, generates=False, hidden_size=4))
    admitted = headless.admit(by_text("a", **more))
    assert isinstance(admitted, Rejected) == refused
    if isinstance(admitted, Rejected):
        assert admitted.error.place == "model" and "no head" in admitted.error.fact


class BrokenTokenizer(Tokenizer):
    def encode(self, text: str, add_special_tokens: bool = True, pair: str | None = None) -> list[int]:
        raise RuntimeError("out of order")


def test_failure_of_ours_ends_one_request_and_is_logged(byte_level: Tokenizer, caplog) -> None:
    caplog.set_level("ERROR")
    broken = Encoder(BrokenTokenizer(byte_level._source), LIMITS)
    scheduler: MemoryChannel[ToScheduler] = MemoryChannel(ToScheduler)
    server: MemoryChannel[ToServer] = MemoryChannel(ToServer)
    answer(broken, by_text("a"), scheduler, server)
    answer(broken, Tokenize(3, "a"), scheduler, server)
    answer(broken, by_ids(5), scheduler, server)
    answer(broken, RenderPrompt(4, ["a"]), scheduler, server)
    answer(broken, RenderChoices(5, ["a"], ["b"]), scheduler, server)
    rejected, *calls = server.drain()
    assert isinstance(rejected, Rejected) and rejected.error.status == 500 and rejected.uids == [1]
    assert [failed.call for failed in calls if isinstance(failed, CallRefused)] == [3, 4, 5]
    for failed in calls:
        assert failed.error.status == 500 and "out of order" in failed.error.fact
    assert [type(message) for message in scheduler.drain()] == [Generate]


def test_abort_follows_its_request_to_the_scheduler(encoder: Encoder) -> None:
    scheduler: MemoryChannel[ToScheduler] = MemoryChannel(ToScheduler)
    server: MemoryChannel[ToServer] = MemoryChannel(ToServer)
    calls = (Tokenize(2, "a"), Detokenize(3, pack_ids([5])), RenderPrompt(4, ["a"]), RenderChoices(5, ["a"], ["b"]))
    for message in (by_text("a"), Abort([1]), by_ids(), *calls):
        answer(encoder, message, scheduler, server)
    assert [type(m) for m in scheduler.drain()] == [Generate, Abort]
    assert [type(m) for m in server.drain()] == [Rejected, Tokenized, Detokenized, PromptReply, ChoicesReply]
