"""Sessions on a real server: a turn is what /generate makes of the whole prompt, and what is said stays cached."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from live import Live

NEW = 12


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    options = {"max_total_tokens": 1024, "check_invariants": True, "enable_streaming_session": True}
    with Live(dtype="float32", **options) as live:  # log-probabilities of a prompt that is cut otherwise
        yield live


def opened(server: Live, **more: Any) -> str:
    reply = requests.post(server.url + "/open_session", json={"capacity_of_str_len": 1000, **more}, timeout=10)
    assert reply.status_code == 200, reply.text
    return str(reply.json())


def close(server: Live, session: str) -> None:
    assert requests.post(server.url + "/close_session", json={"session_id": session}, timeout=10).status_code == 200


def turn(server: Live, session: str, text: str, rid: str | None = None, **more: Any) -> dict[str, Any]:
    asked = {name: more.pop(name) for name in ("offset", "replace", "drop_previous_output") if name in more}
    params = {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True, **more.pop("params", {})}
    if "rid_of_turn" in more:
        more["rid"] = more.pop("rid_of_turn")
    body = {"text": text, "sampling_params": params, "return_prompt_token_ids": True, **more}
    reply = server.generate(**body, session_params={"id": session, "rid": rid, **asked})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def generated(server: Live, like: dict[str, Any], **more: Any) -> dict[str, Any]:
    params = {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True, **more.pop("params", {})}
    reply = server.generate(input_ids=like["prompt_token_ids"], sampling_params=params, **more)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def ids_of(server: Live, text: str) -> list[int]:
    return list(requests.post(server.url + "/tokenize", json={"prompt": text}, timeout=10).json()["tokens"])


def test_turns_equal_generate_with_the_whole_ids(server: Live) -> None:
    session = opened(server)
    first = turn(server, session, "Once upon a time")
    rid, context = first["meta_info"]["id"], first["prompt_token_ids"] + first["output_ids"]
    assert first["prompt_token_ids"] == ids_of(server, "Once upon a time")
    for text, asked, kept in (
        (" and then", {}, context), (" but", {"drop_previous_output": True}, first["prompt_token_ids"]),
        (" so", {"offset": 5}, context[:5]), (" or", {"offset": -4}, context[:-4]),
        (" again", {"replace": True}, context),
    ):  # fmt: skip
        reply = turn(server, session, text, rid, **asked)
        assert reply["prompt_token_ids"][: len(kept)] == kept
        assert len(reply["prompt_token_ids"]) > len(kept)
        assert reply["output_ids"] == generated(server, reply)["output_ids"]
        assert reply["meta_info"]["cached_tokens"] >= len(kept) - 1
    close(server, session)


def test_a_long_chain_streamed_and_constrained_equals_its_parts(server: Live) -> None:
    session, rid, context = opened(server), None, list[int]()
    for number in range(6):
        piece = f" part {number}"
        more: dict[str, Any] = [{}, {"params": {"regex": "[a-z]{4} [0-9]{3}"}}, {"return_logprob": True}][number % 3]
        reply = turn(server, session, piece, rid, **more)
        if number:
            assert reply["prompt_token_ids"][: len(context)] == context
        same = generated(server, reply, **{name: value for name, value in more.items()})
        assert reply["output_ids"] == same["output_ids"] and reply["text"] == same["text"]
        if "return_logprob" in more:
            told, again = (each["meta_info"]["output_token_logprobs"] for each in (reply, same))
            assert [row[0] for row in told] == pytest.approx([row[0] for row in again], abs=1e-4)
        rid, context = reply["meta_info"]["id"], reply["prompt_token_ids"] + reply["output_ids"]
    close(server, session)


def test_a_streamed_turn_can_be_gone_on_from_at_once(server: Live) -> None:
    session, rid = opened(server), None
    for number in range(20):
        body = {
            "text": f" {number}", "stream": True, "session_params": {"id": session, "rid": rid},
            "sampling_params": {"temperature": 0, "max_new_tokens": 3},
        }  # fmt: skip
        response = requests.post(server.url + "/generate", json=body, stream=True, timeout=60)
        assert response.status_code == 200, response.text
        events = [line.removeprefix(b"data: ") for line in response.iter_lines() if line]
        rid = json.loads(events[-2])["meta_info"]["id"]
    close(server, session)


def until_held(server: Live, leases: int, least: int, most: int) -> None:
    """The lease of a turn begins a moment after its reply, and ends a moment after the session."""
    deadline = time.monotonic() + 120
    while (state := server.state())["prefix_leases"] != leases or not least <= state["prefix_lease_tokens"] <= most:
        assert time.monotonic() < deadline, state


def test_what_a_streaming_session_has_said_is_held_until_it_closes(server: Live) -> None:
    assert requests.post(server.url + "/flush_cache?timeout=20", timeout=30).status_code == 200
    session, said = opened(server, streaming=True), 0
    for text in ("The first thing", " and the second", " and the third"):
        reply = turn(server, session, text)
        assert reply["meta_info"]["cached_tokens"] >= said - 1
        said = len(reply["prompt_token_ids"] + reply["output_ids"])
        until_held(server, 1, said, said)
    close(server, session)
    until_held(server, 0, 0, 0)


def test_a_streaming_session_gives_way_to_a_request_that_needs_the_memory(server: Live) -> None:
    session = opened(server, streaming=True)
    turn(server, session, "word " * 300)
    until_held(server, 1, 300, 500)
    params = {"max_new_tokens": 500, "ignore_eos": True}
    reply = server.generate(input_ids=list(range(100, 500)), sampling_params=params)
    assert reply.status_code == 200 and reply.json()["meta_info"]["completion_tokens"] == 500
    until_held(server, 0, 0, 0)
    assert turn(server, session, " goes on")["output_ids"]
    close(server, session)


def test_a_running_turn_is_replaced_where_it_is(server: Live) -> None:
    session = opened(server)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(turn, server, session, "Once upon", params={"max_new_tokens": 900}, rid_of_turn="long")
        while (requests.get(server.url + "/v1/requests/long", timeout=10).json()).get("output_tokens", 0) < 3:
            assert not running.done()
        reply = turn(server, session, " a change", "long", replace=True)
        replaced = running.result()
    assert replaced["meta_info"]["finish_reason"]["type"] == "abort"
    both = replaced["prompt_token_ids"] + replaced["output_ids"]
    kept = len(reply["prompt_token_ids"]) - len(ids_of(server, " a change"))
    assert kept > len(replaced["prompt_token_ids"]) and reply["prompt_token_ids"][:kept] == both[:kept]
    assert reply["output_ids"] == generated(server, reply)["output_ids"]
    close(server, session)
