"""Sessions over HTTP: what is opened and closed, what the engine is sent for a turn, and what is refused by name."""

import asyncio
import re
from typing import Any

import pytest

from ramet.ipc.errors import ErrorRecord
from ramet.ipc.messages import Abort, Finish, Generate, Rejected, unpack_ids
from tests.fakes.engine import token_at
from tests.fakes.server import Served, served

BOS = 7
OPEN, CLOSE, GENERATE = "/open_session", "/close_session", "/generate"


def sent(server: Served) -> list[list[int]]:
    """The ids of each prompt that clients sent, in order."""
    return [
        unpack_ids(each.content.ids) for each in server.engine.of_type(Generate) if each.spec.prefix_lease_s is None
    ]


def body(session: str, text: str, rid: str | None = None, new: int = 2, **more: Any) -> dict[str, Any]:
    params = {name: more.pop(name) for name in ("offset", "replace", "drop_previous_output") if name in more}
    asked = {"id": session, "rid": rid, **params}
    return {"text": text, "sampling_params": {"max_new_tokens": new}, "session_params": asked, **more}


async def turn(server: Served, *args: Any, **more: Any) -> dict[str, Any]:
    status, reply = await server.post(GENERATE, body(*args, **more))
    assert status == 200, reply
    return dict(reply)


async def opened(server: Served, **more: Any) -> str:
    status, name = await server.post(OPEN, {"capacity_of_str_len": 1000, **more})
    assert status == 200
    return str(name)


async def close(server: Served, name: str) -> None:
    async with server.http.post(CLOSE, json={"session_id": name}) as response:
        assert response.status == 200 and await response.read() == b""


def of(text: str) -> list[int]:
    return list(text.encode())


def test_a_turn_goes_on_from_prompt_and_output_of_another() -> None:
    async def check(server: Served) -> None:
        session = await opened(server)
        first = await turn(server, session, "ab")
        assert first["output_ids"] == [token_at(1, 0), token_at(1, 1)]
        second = await turn(server, session, "cd", first["meta_info"]["id"])
        assert second["meta_info"]["prompt_tokens"] == 6
        both = [*of("ab"), *first["output_ids"]]
        await turn(server, session, "e", first["meta_info"]["id"], drop_previous_output=True)
        await turn(server, session, "f", second["meta_info"]["id"], offset=1)
        await turn(server, session, "g", second["meta_info"]["id"], offset=-3)
        await turn(server, session, "h")
        assert sent(server) == [of("ab"), [*both, *of("cd")], of("abe"), of("af"), [*both, *of("cg")], of("h")]

    served(check)


def test_the_token_before_a_text_stands_before_the_first_one_alone() -> None:
    async def check(server: Served) -> None:
        server.engine.bos = BOS
        session = await opened(server)
        first = await turn(server, session, "ab")
        assert sent(server) == [[BOS, *of("ab")]]
        await turn(server, session, "cd", first["meta_info"]["id"])
        reply = {"input_ids": [BOS, 3], "session_params": {"id": session, "rid": first["meta_info"]["id"]}}
        assert (await server.post(GENERATE, reply))[0] == 200
        context = [BOS, *of("ab"), *first["output_ids"]]
        assert sent(server)[1:] == [[*context, *of("cd")], [*context, 3]]

    served(check)


def test_a_stream_goes_on_as_a_whole_reply_does() -> None:
    async def check(server: Served) -> None:
        session = await opened(server)
        events = await server.events(GENERATE, body(session, "ab", new=3, stream=True))
        last = events[-2]
        assert last["output_ids"] == [token_at(1, i) for i in range(3)] and last["meta_info"]["finish_reason"]
        await turn(server, session, "c", last["meta_info"]["id"])
        assert sent(server)[1] == [*of("ab"), *last["output_ids"], *of("c")]

    served(check)


def test_a_request_that_runs_is_not_gone_on_from_but_replaced() -> None:
    async def check(server: Served) -> None:
        session = await opened(server)
        running = asyncio.create_task(server.post(GENERATE, body(session, "ab", new=9) | {"rid": "one"}))
        await server.engine.saw(Generate)
        server.engine.step()
        server.engine.step()
        status, reply = await server.post(GENERATE, body(session, "c", "one"))
        assert status == 400
        assert reply["error"]["message"].startswith("Session request is appending to a request that hasn't finished.")
        replacing = asyncio.create_task(server.post(GENERATE, body(session, "d", "one", replace=True)))
        (abort,) = await server.engine.saw(Abort)
        server.engine.abort(abort.uids, abort.message)
        status, reply = await running
        assert status == 200 and reply["meta_info"]["finish_reason"]["type"] == "abort"
        await server.engine.saw(Generate, 2)
        assert sent(server)[1] == [*of("ab"), *reply["output_ids"], *of("d")] and len(reply["output_ids"]) == 2
        server.engine.step()
        server.engine.step()
        assert (await replacing)[0] == 200

    served(check, auto=False)


def test_what_a_client_left_is_gone_on_from_where_it_was() -> None:
    async def check(server: Served) -> None:
        session = await opened(server)
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.2):
                await server.post(GENERATE, body(session, "ab", new=9) | {"rid": "left"})
        await server.engine.saw(Abort)
        asyncio.get_running_loop().call_soon(server.engine.step)
        going_on = asyncio.create_task(server.post(GENERATE, body(session, "c", "left", new=1)))
        await server.engine.saw(Generate, 2)
        assert sent(server)[1] == of("abc")
        server.engine.step()
        assert (await going_on)[0] == 200

    served(check, auto=False)


def test_a_refused_request_leaves_no_trace() -> None:
    async def check(server: Served) -> None:
        session = await opened(server)
        refused = asyncio.create_task(server.post(GENERATE, body(session, "ab") | {"rid": "one"}))
        (generate,) = await server.engine.saw(Generate)
        server.engine.tell(Rejected(generate.uids, ErrorRecord("input_ids", "has 9999 tokens")))
        status, reply = await refused
        assert status == 400 and reply["error"]["message"].startswith("text has 9999 tokens")
        status, reply = await server.post(GENERATE, body(session, "c", "one"))
        assert status == 400 and "Invalid request session id" in reply["error"]["message"]

    served(check, auto=False)


def test_a_session_that_is_closed_does_not_exist() -> None:
    async def check(server: Served) -> None:
        session = await opened(server, session_id="mine")
        assert session == "mine"
        status, reply = await server.post(OPEN, {"capacity_of_str_len": 1, "session_id": "mine"})
        assert status == 400 and "'mine'" in reply["error"]["message"]
        for _ in range(2):  # one that is not open is only logged
            await close(server, "mine")
        status, reply = await server.post(GENERATE, body("mine", "a"))
        message = reply["error"]["message"]
        assert status == 400 and message.startswith("Invalid request: session id 'mine' does not exist")

    served(check)


def test_sessions_without_a_name_get_different_ones() -> None:
    async def check(server: Served) -> None:
        names = {await opened(server) for _ in range(3)}
        assert len(names) == 3 and all(len(name) == 32 for name in names)

    served(check)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"text": ["a", "b"]}, "text"), ({"text": None, "input_ids": [[1], [2]]}, "input_ids"),
        ({"sampling_params": {"n": 2}}, "sampling_params.n"), ({"token_healing": True}, "token_healing"),
        ({"text": None, "input_embeds": [[0.0] * 4]}, "input_embeds"), ({"session_id": "label"}, "session_id"),
        ({"session_params": {"rid": "x"}}, "session_params.id"), ({"session_params": {"id": 5}}, "session_params.id"),
        ({"session_params": [{"id": "s"}]}, "session_params"), ({"session_params": {"id": "s", "of": 1}}, "of"),
        ({"session_params": {"id": "s", "offset": "1"}}, "session_params.offset"),
    ],
)  # fmt: skip
def test_what_a_session_does_not_take_is_refused_by_name(more: dict[str, Any], place: str) -> None:
    async def check(server: Served) -> None:
        await opened(server, session_id="s")
        status, reply = await server.post(GENERATE, {**body("s", "a"), **more})
        assert status == 400 and place in reply["error"]["message"], reply
        assert sent(server) == []

    served(check)


@pytest.mark.parametrize(
    "wrong", [{"session_id": ""}, {"session_id": "x" * 257}, {"timeout": 0}, {"timeout": "soon"}, {"streaming": 1}]
)
def test_a_wrong_opening_is_named(wrong: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(OPEN, {"capacity_of_str_len": 1, **wrong})
        assert status == 400 and next(iter(wrong)) in reply["error"]["message"]

    served(check)


class TestStreamingSessions:
    def test_they_need_an_option(self) -> None:
        async def check(server: Served) -> None:
            status, reply = await server.post(OPEN, {"capacity_of_str_len": 1, "streaming": True})
            assert status == 400 and "--enable-streaming-session" in reply["error"]["message"]

        served(check)

    def test_a_request_appends_to_the_last_one_whose_tokens_are_held(self) -> None:
        async def check(server: Served) -> None:
            session = await opened(server, streaming=True)
            first = await turn(server, session, "ab")
            second = await turn(server, session, "cd")
            whole = [*of("ab"), *first["output_ids"], *of("cd")]
            assert sent(server) == [of("ab"), whole]
            await close(server, session)
            leases = [each for each in await server.engine.saw(Generate, 6) if each.spec.prefix_lease_s is not None]
            held = [
                (unpack_ids(each.content.ids), each.spec.prefix_lease_s, each.spec.params.max_new_tokens)
                for each in leases
            ]
            first_ids, second_ids = [*of("ab"), *first["output_ids"]], [*whole, *second["output_ids"]]
            assert held == [(first_ids, 600, 0), (second_ids, 600, 0), (first_ids, 0, 0), (second_ids, 0, 0)]

        served(check, enable_streaming_session=True)

    def test_what_is_held_counts_as_no_client_s_request(self) -> None:
        async def check(server: Served) -> None:
            session = await opened(server, streaming=True)
            await turn(server, session, "ab")
            await server.engine.saw(Generate, 2)
            async with server.http.get("/metrics") as response:
                metrics = await response.text()
            assert "ramet:num_requests_total 1.0" in metrics and "ramet:prompt_tokens_total 2.0" in metrics

        served(check, enable_streaming_session=True)

    def test_a_scrape_counts_sessions_and_what_they_keep(self) -> None:
        async def check(server: Served) -> None:
            await turn(server, await opened(server), "abc")  # and an output of 2
            session = await opened(server, streaming=True)
            await turn(server, session, "ab")

            async def numbers() -> list[str]:
                async with server.http.get("/metrics") as response:
                    page = await response.text()
                ours = r"^ramet:(num_sessions|session_tokens|num_streaming_sessions|streaming_session_held_tokens) (.*)"
                return [value for _, value in re.findall(ours, page, re.MULTILINE)]

            assert await numbers() == ["2.0", "9.0", "1.0", "4.0"]
            await close(server, session)
            assert await numbers() == ["1.0", "5.0", "0.0", "0.0"]

        served(check, enable_streaming_session=True)

    def test_an_aborted_turn_is_rolled_back(self) -> None:
        async def check(server: Served) -> None:
            session = await opened(server, streaming=True)
            running = asyncio.create_task(server.post(GENERATE, body(session, "ab", new=9)))
            (generate,) = await server.engine.saw(Generate)
            server.engine.step()
            status, reply = await server.post(GENERATE, body(session, "x"))
            assert status == 400 and "takes one request at a time" in reply["error"]["message"]
            server.engine.close(generate.uids[0], Finish.abort("", "by an operator", status=0))
            assert (await running)[1]["meta_info"]["finish_reason"]["type"] == "abort"
            again = asyncio.create_task(server.post(GENERATE, body(session, "cd", new=1)))
            await server.engine.saw(Generate, 2)
            server.engine.step()
            assert (await again)[0] == 200 and sent(server) == [of("ab"), of("cd")]

        served(check, auto=False, enable_streaming_session=True)

    def test_one_that_is_closed_while_it_runs_ends_its_turn_first(self) -> None:
        async def check(server: Served) -> None:
            session = await opened(server, streaming=True)
            running = asyncio.create_task(server.post(GENERATE, body(session, "ab", new=1)))
            await server.engine.saw(Generate)
            await close(server, session)
            status, _ = await server.post(GENERATE, body(session, "x"))
            assert status == 400
            server.engine.step()
            status, reply = await running
            assert status == 200 and reply["meta_info"]["finish_reason"]["type"] == "length"
            assert len(server.engine.of_type(Generate)) == 1  # nothing is held for it
            assert await opened(server, session_id=session) == session

        served(check, auto=False, enable_streaming_session=True)
