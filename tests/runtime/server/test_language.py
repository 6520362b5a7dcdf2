"""The language's endpoints: what a body asks of the engine, what comes back whole and streamed, and every refusal."""

import asyncio
import random
from typing import Any

import pytest
from msgspec.structs import replace

from ramet.ipc.media import MediaKind
from ramet.ipc.messages import (
    ChatTurn,
    ContextGroup,
    Drain,
    Generate,
    MediaPlace,
    ProgramsEnded,
    RenderChoices,
    RenderPrompt,
    unpack_ids,
)
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import FollowUp
from ramet.runtime.intake.chat import Style
from ramet.runtime.intake.language import MAX_ENDED, MAX_SELECTED
from ramet.runtime.intake.limits import MAX_TURNS
from ramet.runtime.text.parallel_contexts import MAX_CONTEXTS
from tests.fakes.engine import CACHED, EOS, LIMITS, TAIL, cut_somewhere, score_at, text_of, token_at
from tests.fakes.media import TAKES_MEDIA, FakeMedia
from tests.fakes.server import Served, served

GENERATE, SELECT, RENDER, END = "/language/generate", "/language/select", "/language/render", "/language/end"
HELLO = {"prompt": ["Hello"]}
FOLLOWED = {"program": "mine", "state": 3, "kind": "chat"}
UNCONDITIONAL = "unconditional_likelihood_normalized"
PICK = {**HELLO, "choices": [" you", " all"]}
USER = {"role": "user", "content": ["hi ", "there"]}
OPEN = {"role": "assistant", "content": ["Well"], "open": True}


async def asked(server: Served, path: str, body: dict[str, Any]) -> Any:
    status, reply = await server.post(path, body)
    assert status == 200, reply
    return reply


# -- what the engine is asked ------------------------------------------------------------------------------------------


def test_a_prompt_reaches_the_tokenizer_in_segments() -> None:
    async def check(server: Served) -> None:
        prompt = ["a", {"contexts": ["b", "c"]}, {"role": "user", "content": ["d", {"contexts": ["e"]}, ""]}, OPEN]
        await asked(server, RENDER, {"prompt": prompt})
        await asked(server, RENDER, {"prompt": [{"role": "user"}]})
        first, second = server.engine.of_type(RenderPrompt)
        turns = [ChatTurn("user", ["d", ContextGroup(["e"]), ""]), ChatTurn("assistant", ["Well"], True)]
        assert first.segments == ["a", ContextGroup(["b", "c"]), *turns]
        assert second.segments == [ChatTurn("user", [])]

    served(check)


def test_media_are_prepared_and_stand_in_their_places() -> None:
    media = FakeMedia()

    async def check(server: Served) -> None:
        seen = {"role": "user", "content": ["see ", {"image": "x"}, {"video": "y", "num_frames": 4}, "?"]}
        prompt = [{"audio": "z"}, "a", seen, OPEN]
        await asked(server, RENDER, {"prompt": prompt})
        assert not media.asked
        await asked(server, GENERATE, {"prompt": prompt, "sampling_params": {"max_new_tokens": 1}})
        await asked(server, SELECT, {"prompt": prompt, "choices": ["b", "c"], "method": UNCONDITIONAL})
        places = ["prompt[0].audio", "prompt[2].content[1].image", "prompt[2].content[2].video"]
        assert media.places == places * 2 and media.written == ["z", "x", "y"] * 2
        assert [source.options for source in media.asked[0]] == [{}, {}, {"num_frames": 4}]
        kinds = [MediaKind.AUDIO, MediaKind.IMAGE, MediaKind.VIDEO]
        audio, image, video = map(MediaPlace, kinds)
        rendered, told = server.engine.of_type(RenderPrompt)
        [choices] = server.engine.of_type(RenderChoices)
        turns = [ChatTurn("user", ["see ", image, video, "?"]), ChatTurn("assistant", ["Well"], True)]
        assert rendered.segments == told.segments == choices.segments == [audio, "a", *turns]
        assert rendered.media == () and [item.kind for item in told.media] == kinds
        generated, first, second, *bare = server.engine.of_type(Generate)
        assert generated.content.media == told.media
        assert first.content.media == second.content.media == choices.media
        assert bare and all(each.content.media == () for each in bare)  # without the prompt
        assert len(media.released) == 6

    served(check, limits=TAKES_MEDIA, media=media)


@pytest.mark.parametrize("path", [GENERATE, SELECT])
def test_media_that_cannot_be_prepared_are_named_by_their_place(path: str) -> None:
    media = FakeMedia()

    async def check(server: Served) -> None:
        more = {"choices": ["a"]} if path == SELECT else {}
        status, reply = await server.post(path, {"prompt": ["a", {"image": "BROKEN"}], **more})
        assert (status, reply["error"]["message"]) == (400, "prompt[1].image is no picture")
        assert not server.engine.of_type(Generate)

    served(check, limits=TAKES_MEDIA, media=media)


def test_what_is_rendered_is_generated_from() -> None:
    async def check(server: Served) -> None:
        reply = await asked(server, GENERATE, {"prompt": [USER, OPEN], "sampling_params": {"max_new_tokens": 3}})
        [sent] = server.engine.of_type(Generate)
        assert bytes(unpack_ids(sent.content.ids)).decode() == "user:hi there\nassistant:Well"
        assert reply["text"] == text_of(1, 3) and reply["output_ids"] == [token_at(1, i) for i in range(3)]
        assert "reasoning" not in reply and "index" not in reply
        info = reply["meta_info"]
        assert (info["prompt_tokens"], info["completion_tokens"], info["cached_tokens"]) == (28, 3, CACHED)
        assert info["finish_reason"] == {"type": "length", "length": 3}

    served(check)


def test_a_rendered_prompt_is_shown_with_its_length() -> None:
    async def check(server: Served) -> None:
        shown = await asked(server, RENDER, {"prompt": ["é", USER]})
        assert shown == {"text": "éuser:hi there\n", "num_tokens": len("éuser:hi there\n".encode())}
        assert not server.engine.of_type(Generate)

    served(check)


FIELDS: list[dict[str, Any]] = [
    {"sampling_params": {"temperature": 0.5, "n": 2, "stop": ["x"], "regex": "a+"}},
    {"return_logprob": True, "logprob_start_len": 2, "top_logprobs_num": 3, "token_ids_logprob": [4, 5]},
    {"return_logprob": True, "return_text_in_logprobs": True},
    {"priority": 3, "cache_salt": "mine", "extra_key": "k"},
    {"return_hidden_states": "last", "prefix_lease_s": 2.5, "return_prompt_token_ids": True},
    {"sampling_params": {"json_schema": "{}"}, "grammar_backend": "llguidance"},
    {"custom_logit_processor": "name"},
]


@pytest.mark.parametrize("fields", FIELDS)
def test_fields_ask_for_what_they_ask_of_generate(fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        await asked(server, GENERATE, {**HELLO, **fields, "token_healing": False})
        await asked(server, "/generate", {"input_ids": list(b"Hello"), **fields})
        ours, theirs = server.engine.of_type(Generate)
        assert ours.spec == theirs.spec and ours.content == theirs.content

    served(check, enable_custom_logit_processor=True)


def test_the_prompts_end_is_healed_unless_the_body_says_otherwise() -> None:
    async def check(server: Served) -> None:
        for healing in (None, True, False):
            await asked(server, GENERATE, {**HELLO, "token_healing": healing})
        assert [message.spec.token_healing for message in server.engine.of_type(Generate)] == [True, True, False]

    served(check)


@pytest.mark.parametrize(("path", "body"), [(GENERATE, HELLO), (SELECT, PICK)])
def test_a_program_s_call_is_one_whatever_it_becomes(path: str, body: dict[str, Any]) -> None:
    """Of the prompts of a select, one asks for the follow-up: the last that begins with the call's prompt."""

    async def check(server: Served) -> None:
        await asked(server, path, body)
        await asked(server, path, {**body, "follow_up": FOLLOWED})
        specs = [message.spec for message in server.engine.of_type(Generate)]
        asking = [spec.follow_up for spec in specs if spec.follow_up is not None]
        assert asking == [FollowUp("mine", 3, "chat")] and len(specs) >= 2

    served(check)


def test_the_end_of_programs_is_told_to_the_scheduler() -> None:
    async def check(server: Served) -> None:
        assert await asked(server, END, {"programs": ["a", "b"]}) == {"programs": 2}
        assert server.engine.of_type(ProgramsEnded) == [ProgramsEnded(["a", "b"])]

    served(check)


def test_a_request_is_named_by_its_body() -> None:
    async def check(server: Served) -> None:
        for path, body in ((GENERATE, HELLO), (SELECT, PICK)):
            async with server.http.post(path, json={**body, "rid": "mine"}) as response:
                assert response.headers["X-Request-Id"] == "mine"
                assert (await response.json())["meta_info"]["id"] == "mine"
            new = [(await asked(server, path, body))["meta_info"]["id"] for _ in range(2)]
            assert len(set(new)) == 2

    served(check)


@pytest.mark.parametrize(("path", "body"), [(GENERATE, HELLO), (SELECT, PICK)])
def test_a_request_is_aborted_by_its_name(path: str, body: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.auto = False
        waiting = asyncio.ensure_future(server.post(path, {**body, "rid": "mine"}))
        sent = await server.engine.saw(Generate, 1 if path == GENERATE else 2)
        _, counted = await server.post("/abort_request", {"rid": "mine"})
        assert counted["aborted"] == len(sent)
        server.engine.abort([uid for message in sent for uid in message.uids], "aborted by the client")
        status, reply = await waiting
        if path == GENERATE:
            assert status == 200 and reply["meta_info"]["finish_reason"]["type"] == "abort"
        else:
            assert status == 400 and "ended before it was done" in reply["error"]["message"]

    served(check)


# -- streams -----------------------------------------------------------------------------------------------------------


def sum_of(events: list[dict[str, Any]], field: str) -> Any:
    found = [event[field] for event in events if event.get(field) is not None]
    return "".join(found) if found and isinstance(found[0], str) else [item for each in found for item in each]


TEXTS = ("Hi there", "<think>\nIt rains, so: 🙂\n</think>\n\nTake a coat.", "<think>never closed", " 日本\n", "")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("fields", [{}, {"separate_reasoning": True}, {"return_logprob": True, "logprob_start_len": 0}])
def test_deltas_of_a_stream_add_up_to_the_whole_reply(text: str, seed: int, fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        most = cut_somewhere(server.engine, text, seed)
        body = {**HELLO, **fields, "sampling_params": {"max_new_tokens": most}}
        whole = await asked(server, GENERATE, body)
        *events, done = await server.events(GENERATE, {**body, "stream": True})
        assert done == "[DONE]"
        assert sum_of(events, "text") == whole["text"]
        # ids follow the uid, which is another one in the second request
        assert len(sum_of(events, "output_ids")) == len(whole["output_ids"]) == most
        if "separate_reasoning" in fields:
            assert (sum_of(events, "reasoning") or None) == whole["reasoning"]
            assert all("reasoning" in event for event in events)
            assert events[-1]["meta_info"]["reasoning_tokens"] == whole["meta_info"]["reasoning_tokens"]
        else:
            assert not any("reasoning" in event for event in [*events, whole])
        infos = [event["meta_info"] for event in events]
        for name in ("input_token_logprobs", "output_token_logprobs"):
            streamed = [each for info in infos for each in info.get(name, [])]
            assert len(streamed) == len(whole["meta_info"].get(name, []))
        assert [info["finish_reason"] is None for info in infos] == [True] * (len(infos) - 1) + [False]
        assert infos[-1]["finish_reason"] == whole["meta_info"]["finish_reason"]
        assert infos[-1]["completion_tokens"] == most

    served(check)


@pytest.mark.parametrize(
    ("says", "tail", "thought", "text"),
    [
        (["<think>", "a"], "", "a", ""),
        (["<think>", "a"], "b", "ab", ""),
        (["<think>", "a"], "</think>and", "a", "and"),
        (["<thi"], "", None, "<thi"),
        (["<thi"], "s", None, "<this"),
        (["a"], "b", None, "ab"),
    ],
)
def test_what_only_the_end_makes_certain_is_read(says: list[str], tail: str, thought: str | None, text: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says, server.engine.tail = says, tail
        reply = await asked(server, GENERATE, {**HELLO, "separate_reasoning": True})
        assert (reply["reasoning"], reply["text"]) == (thought, text)

    served(check)


def test_samples_are_a_list_and_their_events_have_an_index() -> None:
    async def check(server: Served) -> None:
        body = {**HELLO, "sampling_params": {"n": 3, "max_new_tokens": 2}}
        replies = await asked(server, GENERATE, body)
        assert [reply["index"] for reply in replies] == [0, 1, 2]
        assert [reply["text"] for reply in replies] == [text_of(uid, 2) for uid in (1, 2, 3)]
        *events, _ = await server.events(GENERATE, {**body, "stream": True})
        for i in range(3):
            assert sum_of([event for event in events if event["index"] == i], "text") == text_of(4 + i, 2)

    served(check)


def test_a_sample_has_a_reader_of_its_own() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["<think>", "hm", "</think>", "so"]
        body = {**HELLO, "sampling_params": {"n": 2}, "separate_reasoning": True}
        for reply in await asked(server, GENERATE, body):
            assert (reply["reasoning"], reply["text"]) == ("hm", "so")

    served(check)


# -- thoughts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "says", "thought", "text"),
    [
        (["Say:"], ["<think>", "a", "</think>", "b"], "a", "b"),
        (["Say:"], ["a</think>", "b"], None, "a</think>b"),
        (["Say: <think>"], ["a", "</think>", "b"], "a", "b"),
        (["<think>x</think>"], ["a", "</think>", "b"], None, "a</think>b"),
        ([USER, {"role": "assistant", "content": ["<think>no", "w"], "open": True}], ["a", "</think>b"], "a", "b"),
        ([{"role": "user", "content": ["<think>"]}, OPEN], ["a", "</think>b"], "a", "b"),  # within the turn's beginning
        ([USER, {"role": "assistant", "open": True}], ["<think>a", "</think>b"], "a", "b"),
    ],
)
def test_a_thought_that_the_prompt_opened_goes_on(
    prompt: list[Any], says: list[str], thought: str | None, text: str
) -> None:
    async def check(server: Served) -> None:
        server.engine.says = says
        reply = await asked(server, GENERATE, {"prompt": prompt, "separate_reasoning": True})
        assert (reply["reasoning"], reply["text"]) == (thought, text)

    served(check)


def test_a_parser_can_be_named() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["[THINK]", "a", "[/THINK]", "b"]
        body = {**HELLO, "separate_reasoning": True, "reasoning_parser": "mistral"}
        reply = await asked(server, GENERATE, body)
        assert (reply["reasoning"], reply["text"]) == ("a", "b")
        [sent] = server.engine.of_type(Generate)
        assert not sent.spec.params.skip_special_tokens  # which its tags are

    served(check)


@pytest.mark.parametrize(("separate", "after"), [(True, "</think>"), (False, "")])
def test_a_constraint_begins_after_a_thought_that_is_separated(separate: bool, after: str) -> None:
    async def check(server: Served) -> None:
        prompt = [USER, {"role": "assistant", "open": True}]
        body = {"prompt": prompt, "sampling_params": {"regex": "[0-9]+"}, "separate_reasoning": separate}
        await asked(server, GENERATE, body)
        [sent] = server.engine.of_type(Generate)
        assert sent.spec.constraint.after == after

    served(check)


# -- select ------------------------------------------------------------------------------------------------------------


def test_choices_are_scored_behind_the_prompt_and_the_best_is_told() -> None:
    async def check(server: Served) -> None:
        body = {"prompt": [USER, OPEN], "choices": ["ab", "abc", "x"], "priority": 2, "cache_salt": "s"}
        reply = await asked(server, SELECT, body)
        before = list(b"user:hi there\nassistant:Well")
        infos = reply["meta_info"]["choices"]
        for text, info in zip(body["choices"], infos, strict=True):
            units = before + list(text.encode())
            told = [[score_at(units, i, units[i]), units[i], str(units[i])] for i in range(len(before), len(units))]
            assert info["token_logprobs"] == told and info["num_tokens"] == len(text)
            assert info["logprob"] == sum(value for value, _, _ in told)
        means = [info["logprob"] / info["num_tokens"] for info in infos]
        assert reply["scores"] == pytest.approx(means)
        assert reply["index"] == means.index(max(means)) and reply["choice"] == body["choices"][reply["index"]]
        assert sum(reply["probabilities"]) == pytest.approx(1)
        meta = reply["meta_info"]
        assert (meta["prompt_tokens"], meta["cached_tokens"], meta["completion_tokens"]) == (len(before), CACHED, 0)
        sent = server.engine.of_type(Generate)
        assert [bytes(unpack_ids(message.content.ids)[len(before) :]) for message in sent] == [b"abc", b"x"]
        assert all(message.spec.params == SamplingParams(max_new_tokens=0) for message in sent)
        assert {message.spec.priority for message in sent} == {2}
        assert {message.spec.namespace for message in sent} == {("", "s", "")}

    served(check)


def test_methods_ask_for_what_they_compare() -> None:
    async def check(server: Served) -> None:
        reply = await asked(server, SELECT, {**PICK, "method": "exact_sequence"})
        sent = server.engine.of_type(Generate)
        assert [bytes(unpack_ids(each.content.ids)) for each in sent] == [b"Hello all\x02", b"Hello you\x02"]
        assert all(each.spec.logprobs.ids == (EOS,) for each in sent)
        for info, score in zip(reply["meta_info"]["choices"], reply["scores"], strict=True):
            assert score == pytest.approx(info["logprob"] + info["end_logprob"])
        server.engine.sent.clear()
        reply = await asked(server, SELECT, {**PICK, "method": "unconditional_likelihood_normalized"})
        sent = server.engine.of_type(Generate)
        assert [bytes(unpack_ids(each.content.ids)) for each in sent[2:]] == [b"\x02 all", b"\x02 you"]
        for info, score in zip(reply["meta_info"]["choices"], reply["scores"], strict=True):
            assert score == pytest.approx((info["logprob"] - info["unconditional_logprob"]) / info["num_tokens"])

    served(check)


def test_a_draw_is_by_the_sums_whatever_the_method_and_follows_its_seed() -> None:
    async def check(server: Served) -> None:
        body = {**HELLO, "choices": ["hehe", "e", "g"]}
        greedy = await asked(server, SELECT, body)
        sums = [info["logprob"] for info in greedy["meta_info"]["choices"]]
        likeliest = sums.index(max(sums))
        assert likeliest != greedy["index"]
        for seed in range(3):
            cold = await asked(server, SELECT, {**body, "temperature": 1e-9, "sampling_seed": seed})
            assert cold["index"] == likeliest and cold["scores"] == greedy["scores"]
        warm = {**body, "temperature": 1e6}
        drawn = [(await asked(server, SELECT, {**warm, "sampling_seed": seed}))["index"] for seed in range(12)]
        again = [(await asked(server, SELECT, {**warm, "sampling_seed": seed}))["index"] for seed in range(12)]
        assert drawn == again and set(drawn) == {0, 1, 2}

    served(check)


def test_choices_are_healed_unless_the_body_says_otherwise() -> None:
    async def check(server: Served) -> None:
        for healing in (None, True, False):
            await asked(server, SELECT, {**PICK, "token_healing": healing})
        assert [message.healed for message in server.engine.of_type(RenderChoices)] == [True, True, False]

    served(check)


def test_more_choices_than_a_few_are_sent_in_turn() -> None:
    async def check(server: Served) -> None:
        choices = [f"{i:03}" for i in random.Random(0).sample(range(1000), 100)]
        reply = await asked(server, SELECT, {**HELLO, "choices": choices})
        assert len(server.engine.of_type(Generate)) == 100
        assert [info["text"] for info in reply["meta_info"]["choices"]] == choices
        alone = [(await asked(server, SELECT, {**HELLO, "choices": [text]}))["scores"][0] for text in choices[:5]]
        assert reply["scores"][:5] == pytest.approx(alone)

    served(check)


# -- refusals ----------------------------------------------------------------------------------------------------------

BAD_PROMPTS: list[tuple[Any, str]] = [
    (None, "prompt is missing"),
    ("Hello", "prompt is 'Hello', must be a list"),
    ([], "prompt is [], must not be empty"),
    (["a"] * (MAX_TURNS + 1), f"prompt has {MAX_TURNS + 1} entries, must be a list of 1 to {MAX_TURNS} entries"),
    (["a", 5], "prompt[1] is 5, must be a string or an object"),
    (["a", None], "prompt[1] is None, must be a string or an object"),
    (["a", {}], "prompt[1] must have exactly one of role, contexts, image, video and audio"),
    ([{"role": ""}], "prompt[0].role is '', must not be empty"),
    ([{"role": 5}], "prompt[0].role is 5"),
    ([{"role": "user", "contents": ["a"]}], "prompt[0].contents is not a known name"),
    ([{"role": "user", "content": "a"}], "prompt[0].content is 'a', must be a list"),
    ([{"role": "user", "content": ["a", 5]}], "prompt[0].content[1] is 5, must be a string or an object"),
    ([{"role": "user", "content": ["a", {}]}], "prompt[0].content[1] must have exactly one of contexts, image"),
    ([{"role": "user", "content": [{"role": "user"}]}], "prompt[0].content[0].role is not a known name"),
    ([{"role": "user", "open": 1}], "prompt[0].open is 1, must be true or false"),
    ([{"role": "user", "open": True}, "a"], "prompt[0].open is true, but something follows"),
    ([{"content": ["a"]}], "prompt[0].content belongs to a turn, but role is missing"),
    ([{"open": True, "contexts": ["a"]}], "prompt[0].open belongs to a turn, but role is missing"),
    ([{"role": "user", "contexts": ["a"]}], "prompt[0].contexts stands beside role: it must stand in its content"),
    ([{"contexts": []}], "prompt[0].contexts is [], must not be empty"),
    ([{"contexts": ["a", ""]}], "prompt[0].contexts[1] is '', must not be empty"),
    ([{"contexts": ["a"] * (MAX_CONTEXTS + 1)}], f"must be a list of 1 to {MAX_CONTEXTS} entries"),
    ([{"role": "user", "image": "x"}], "prompt[0].image stands beside role: it must stand in its content"),
    ([{"image": ""}], "prompt[0].image is '', must not be empty"),
    ([{"image": "x", "audio": "x"}], "prompt[0] must have exactly one of role, contexts, image, video and audio"),
    ([{"image": "x", "num_frames": 2}], "prompt[0].num_frames belongs to a film, but video is missing"),
    ([{"video": "x", "num_frames": 0}], "prompt[0].num_frames is 0, must be an integer >= 1"),
    ([{"image": "x.png"}], "prompt[0].image is set, but this model takes no images"),
    (["a", {"video": {"url": "x"}}], "prompt[1].video is {'url': 'x'}, must be a string"),
    (["a", {"video": "x"}], "prompt[1].video is set, but this model takes no films"),
    (
        [{"role": "user", "content": ["a", {"image": "x"}]}],
        "prompt[0].content[1].image is set, but this model",
    ),
]


@pytest.mark.parametrize("path", [GENERATE, SELECT, RENDER])
@pytest.mark.parametrize(("prompt", "message"), BAD_PROMPTS, ids=[message[:40] for _, message in BAD_PROMPTS])
def test_a_refused_prompt_names_the_place(path: str, prompt: Any, message: str) -> None:
    async def check(server: Served) -> None:
        body = {} if prompt is None else {"prompt": prompt}
        status, reply = await server.post(path, body | ({"choices": ["a"]} if path == SELECT else {}))
        assert status == 400 and message in reply["error"]["message"], reply
        assert not server.engine.sent

    served(check)


BAD_FOLLOW_UPS: list[tuple[Any, str]] = [
    ("mine", " is 'mine', must be an object"),
    ({"state": 1}, ".program is missing"),
    ({"program": "a"}, ".state is missing"),
    ({"program": "", "state": 1}, ".program is '', must not be empty"),
    ({"program": "a" * 129, "state": 1}, ".program has 129 characters, must be a string of 1 to 128 characters"),
    ({"program": "a", "state": -1}, ".state is -1, must be an integer in [0, 2^31)"),
    ({"program": "a", "state": 1, "seconds": 5}, ".seconds is not a known name"),
]
BAD_BODIES: list[tuple[str, dict[str, Any], str]] = [
    (GENERATE, {"text": "a"}, "text is not a known name"),
    (GENERATE, {"streaming": True}, "streaming is not a known name"),
    (GENERATE, {"stream": 1}, "stream is 1, must be true or false"),
    (GENERATE, {"token_healing": "yes"}, "token_healing is 'yes', must be true or false"),
    (GENERATE, {"rid": "a\nb"}, "rid is 'a\\nb', must be a string of 1 to"),
    (GENERATE, {"sampling_params": {"top_p": 2}}, "sampling_params.top_p is 2, must be in (0, 1]"),
    (GENERATE, {"sampling_params": [{}]}, "sampling_params is a list, must be one value for one prompt"),
    (GENERATE, {"priority": [1]}, "priority is a list, must be one value for one prompt"),
    (GENERATE, {"custom_logit_processor": "x"}, "custom_logit_processor is 'x', but this server takes no"),
    (GENERATE, {"prefix_lease_s": -1}, "prefix_lease_s is -1"),
    (GENERATE, {"separate_reasoning": "a"}, "separate_reasoning is 'a', must be true or false"),
    (
        GENERATE,
        {"reasoning_parser": "x", "separate_reasoning": True},
        "must be one of deepseek-r1, gpt-oss, mistral, qwen3",
    ),
    (GENERATE, {"reasoning_parser": "x"}, "reasoning_parser is 'x'"),
    (GENERATE, {"prompt": ["REJECT"]}, "prompt[0] has 9999 tokens"),
    *(
        (path, {**more, "follow_up": given}, f"follow_up{error}")
        for path, more in ((GENERATE, {}), (SELECT, PICK))
        for given, error in BAD_FOLLOW_UPS
    ),
    (SELECT, {}, "choices is missing"),
    (SELECT, {"choices": []}, "choices is [], must not be empty"),
    (SELECT, {"choices": ["a", ""]}, "choices[1] is '', must not be empty"),
    (SELECT, {"choices": ["a", 5]}, "choices[1] is 5, must be a string"),
    (SELECT, {"choices": "a"}, "choices is 'a', must be a list"),
    (SELECT, {"choices": ["a"] * (MAX_SELECTED + 1)}, f"must be a list of 1 to {MAX_SELECTED} entries"),
    (SELECT, {**PICK, "method": "best"}, "method is 'best', must be "),
    (SELECT, {**PICK, "temperature": -1}, "temperature is -1, must be a finite number >= 0"),
    (SELECT, {**PICK, "temperature": "hot"}, "temperature is 'hot', must be a finite number >= 0"),
    (SELECT, {**PICK, "sampling_seed": 1 << 63}, "sampling_seed is 9223372036854775808, must be an integer in [-2^63"),
    (SELECT, {**PICK, "priority": 1.5}, "priority is 1.5"),
    (SELECT, {**PICK, "cache_salt": "x" * 1025}, "cache_salt has 1025 characters"),
    (SELECT, {**PICK, "rid": ""}, "rid is ''"),
    (SELECT, {**PICK, "stream": True}, "stream is not a known name"),
    (RENDER, {"rid": "a"}, "rid is not a known name"),
]


@pytest.mark.parametrize(("path", "body", "message"), BAD_BODIES, ids=[message[:40] for *_, message in BAD_BODIES])
def test_a_refused_body_names_the_field(path: str, body: dict[str, Any], message: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, {**HELLO, **body})
        assert status == 400 and message in reply["error"]["message"], reply
        assert not server.engine.of_type(Generate)

    served(check)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "programs is missing"),
        ({"programs": []}, "programs is [], must not be empty"),
        ({"programs": ["a", 5]}, "programs[1] is 5, must be a string"),
        ({"programs": [""]}, "programs[0] is ''"),
        ({"programs": ["a"] * (MAX_ENDED + 1)}, f"must be a list of 1 to {MAX_ENDED} entries"),
        ({"programs": ["a"], "state": 1}, "state is not a known name"),
    ],
)
def test_a_refused_end_names_the_field(body: dict[str, Any], message: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(END, body)
        assert status == 400 and message in reply["error"]["message"], reply
        assert not server.engine.sent

    served(check)


def test_thoughts_need_a_parser() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(GENERATE, {**HELLO, "separate_reasoning": True})
        assert status == 400 and "separate_reasoning is True, but how this model marks" in reply["error"]["message"]
        await asked(server, GENERATE, {**HELLO, "separate_reasoning": True, "reasoning_parser": "qwen3"})

    served(check, style=Style())


def test_a_full_queue_and_a_refusal_come_before_a_stream_begins() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(GENERATE, {"prompt": ["REJECT"], "stream": True})
        assert status == 400 and reply["error"]["message"].startswith("prompt[0]")
        server.engine.auto = False
        first = asyncio.gather(*(server.post(GENERATE, HELLO) for _ in range(2)))
        await server.engine.saw(Generate, 2)
        for path, body in ((GENERATE, {**HELLO, "stream": True}), (SELECT, PICK), (RENDER, HELLO)):
            assert await server.post(path, body) == (503, {"error": {"message": "The request queue is full."}})
        server.engine.auto = True
        server.engine._start()
        assert [status for status, _ in await first] == [200, 200]

    served(check, max_queued_requests=1, limits=replace(LIMITS, max_running_requests=1))


def test_a_server_that_ends_renders_no_more() -> None:
    async def check(server: Served) -> None:
        server.engine.tell(Drain(10.0))
        status, reply = await server.post(RENDER, HELLO)
        assert status == 503 and "shutting down" in reply["error"]["message"]
        assert not server.engine.of_type(RenderPrompt)

    served(check)


def test_a_prompt_that_is_not_rendered_in_time_is_a_504() -> None:
    async def check(server: Served) -> None:
        server.engine.answers_renders = False
        status, reply = await server.post(RENDER, HELLO)
        assert status == 504 and "0.05 s" in reply["error"]["message"]

    served(check, request_timeout_s=0.05)


def test_only_post_is_taken() -> None:
    async def check(server: Served) -> None:
        for path in (GENERATE, SELECT, RENDER):
            status, reply = await server.get(path)
            assert status == 405 and reply["error"]["message"] == f"{path} takes POST, not GET."

    served(check)


def test_the_tail_of_an_output_is_in_its_last_event() -> None:
    async def check(server: Served) -> None:
        body = {**HELLO, "sampling_params": {"max_new_tokens": 2}, "stream": True}
        *events, _ = await server.events(GENERATE, body)
        assert events[-1]["text"].endswith(TAIL) and sum(TAIL in event["text"] for event in events) == 1

    served(check)
