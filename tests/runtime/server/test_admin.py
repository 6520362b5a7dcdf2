"""What a server says of itself: its keys, its paths and its numbers."""

import asyncio
import re
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from ramet.ipc.control import MAX_LOCATED, Control, LocateSequences, StartProfile
from ramet.ipc.messages import Abort, Generate, PeerDied
from ramet.ipc.stats import Stats
from ramet.runtime.config import Args
from ramet.runtime.metrics.table import Metrics, MetricsPage
from ramet.runtime.server.native import admin
from ramet.runtime.server.routes import ROUTES
from ramet.version import __version__
from tests.fakes.engine import CACHED, LIMITS
from tests.fakes.media import TAKES_MEDIA
from tests.fakes.server import Served, served


@pytest.mark.parametrize("path", ["/get_server_info", "/server_info"])
def test_server_info_has_every_option_the_limits_and_the_live_state(path: str) -> None:
    async def check(server: Served) -> None:
        server.engine.state_body = b'{"running_requests": 7}'
        status, info = await server.get(path)
        assert status == 200
        names = {name for group in Args.__struct_fields__ for name in getattr(Args(), group).__struct_fields__}
        assert names <= set(info)
        assert info["schedule_policy"] == "fcfs" and info["page_size"] == 16
        assert info["max_total_num_tokens"] == LIMITS.max_total_tokens and info["context_length"] == 1024
        assert info["version"] == __version__ and info["max_running_requests"] == 8
        assert info["internal_states"] == [{"running_requests": 7}]
        resolved = "cache_isolation", "max_share_per_key", "jump_forward", "max_bodies_mb"
        assert [info[name] for name in resolved] == ["none", 1.0, "ff", 256.0]

    served(check, schedule_policy="fcfs", page_size=16)


@pytest.mark.parametrize("path", ["/get_model_info", "/model_info"])
def test_model_info(path: str) -> None:
    async def check(server: Served) -> None:
        _, info = await server.get(path)
        assert info["model_path"] == "/models/x" and info["tokenizer_path"] == "/models/x"
        assert info["served_model_name"] == "x" and info["is_generation"] is True
        assert info["weight_version"] == "default"
        assert info["has_image_understanding"] is True and info["media_placeholders"]["image"] == "<image>"

    served(check, limits=TAKES_MEDIA, model_path="/models/x", served_model_name="x")


@pytest.mark.parametrize("name", ["tiny", "org/tiny", "/data/models/tiny"])
def test_a_model_is_found_by_its_name_whatever_its_slashes(name: str) -> None:
    async def check(server: Served) -> None:
        _, listed = await server.get("/v1/models")
        assert listed["object"] == "list" and [m["id"] for m in listed["data"]] == [name]
        assert listed["data"][0]["max_model_len"] == LIMITS.context_length
        for path in (f"/v1/models/{name}", "/v1/models/" + name.replace("/", "%2F")):
            assert await server.get(path) == (200, listed["data"][0])
        status, reply = await server.get("/v1/models/other")
        assert status == 404 and name in reply["error"]["message"] and reply["error"]["code"] == "model_not_found"

    served(check, served_model_name=name)


def test_health_is_cheap_and_health_generate_goes_through_the_engine() -> None:
    async def check(server: Served) -> None:
        for path in ("/health", "/ready"):
            assert (await server.get(path))[0] == 200
        assert server.engine.sent == []
        assert (await server.get("/health_generate"))[0] == 200
        (probe,) = server.engine.of_type(Generate)
        assert probe.spec.params.max_new_tokens == 1

    served(check)


def test_health_generate_is_not_refused_for_a_full_queue() -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post("/generate", {"text": "a", "sampling_params": {"n": 2}}))
        await server.engine.saw(Generate)
        assert (await server.post("/generate", {"text": "a"}))[0] == 503
        probe = asyncio.create_task(server.get("/health_generate"))
        await server.engine.saw(Generate, 2)
        server.engine.step([3])
        assert (await probe)[0] == 200
        waiting.cancel()

    served(check, auto=False, max_queued_requests=1, limits=replace(LIMITS, max_running_requests=1))


def test_health_generate_of_a_full_server_takes_what_comes_for_others_as_proof_of_life() -> None:
    async def check(server: Served) -> None:
        running = asyncio.create_task(server.post("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 2}}))
        await server.engine.saw(Generate)
        probe = asyncio.create_task(server.get("/health_generate"))
        _, asked = await server.engine.saw(Generate, 2)
        server.engine.step([1])  # the probe waits in the queue
        assert (await probe)[0] == 200
        (abort,) = await server.engine.saw(Abort)
        assert abort.uids == asked.uids == [2]
        server.engine.abort([2], "as asked")
        server.engine.step([1])
        assert (await running)[0] == 200
        assert server.client.num_open == server.client.num_waiting == 0
        page = await numbers(server)
        assert page["ramet:num_requests_total"] == 1 and page["ramet:num_aborted_requests_total"] == 0

    served(check, auto=False)


def test_health_generate_fails_where_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post("/generate", {"text": "a"}))
        await server.engine.saw(Generate)
        status, reply = await server.get("/health_generate")
        assert status == 503 and "0.05 s" in reply["error"]["message"]
        await server.engine.saw(Abort)
        waiting.cancel()

    monkeypatch.setattr(admin, "GENERATE_WITHIN_S", 0.05)
    served(check, auto=False)


def test_many_probes_at_once_live_on_one_step() -> None:
    async def check(server: Served) -> None:
        probes = [asyncio.create_task(server.get("/health_generate")) for _ in range(3)]
        await server.engine.saw(Generate, 3)
        probes.pop().cancel()
        server.engine.step([1])
        assert [(await probe)[0] for probe in probes] == [200, 200]

    served(check, auto=False)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_ping_answers_as_health_does(method: str) -> None:
    async def check(server: Served) -> None:
        async with server.http.request(method, "/ping") as response:
            assert response.status == 200 and await response.json() == {"status": "ok"}
        server.engine.tell(PeerDied("scheduler", 1))
        async with server.http.request(method, "/ping") as response:
            assert response.status == 503

    served(check, api_key="secret")


def test_the_version_needs_no_key() -> None:
    async def check(server: Served) -> None:
        assert await server.get("/version") == (200, {"version": __version__})

    served(check, api_key="secret")


ABORTS = [
    (b"", "rid is missing"), ({}, "rid is missing"), ({"rid": None}, "rid is missing"), ({"rid": ""}, "rid is ''"),
    ({"rid": "a", "abort_all": True}, "rid is 'a', but abort_all is true"),
]  # fmt: skip


@pytest.mark.parametrize("body, fact", ABORTS)
def test_an_abort_says_what_is_missing_or_too_much(body: Any, fact: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post("/abort_request", body)
        assert status == 400 and fact in reply["error"]["message"] and "None" not in reply["error"]["message"]

    served(check)


def test_a_flush_is_post_only() -> None:
    async def check(server: Served) -> None:
        async with server.http.get("/flush_cache") as response:
            assert response.status == 405 and "takes POST" in (await response.json())["error"]["message"]
        assert server.engine.sent == []

    served(check)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "", "٥", "1_0", " 5"])
def test_the_seconds_of_a_timeline_are_a_number_in_range(seconds: str) -> None:
    async def check(server: Served) -> None:
        async with server.http.get("/trace", params={"seconds": seconds}) as response:
            assert response.status == 400 and "seconds is " in await response.text()

    served(check)


def test_flush_waits_as_long_as_asked() -> None:
    async def check(server: Served) -> None:
        async with server.http.post("/flush_cache?timeout=2.5") as response:
            assert response.status == 200
        (control,) = server.engine.of_type(Control)
        assert control.timeout_s == 2.5
        server.engine.flush_ok = False
        async with server.http.post("/flush_cache") as response:
            assert response.status == 400 and "running" in await response.text()
        assert server.engine.of_type(Control)[1].timeout_s == 0
        assert (await server.post("/flush_cache", {"timeout": 1.5}))[0] == 400
        assert server.engine.of_type(Control)[2].timeout_s == 1.5
        for bad in ("-1", "x", "nan", "inf", "1e9", "", "٥", "1.٥", "1_0", " 5"):
            async with server.http.post("/flush_cache", params={"timeout": bad}) as response:
                assert response.status == 400 and "timeout" in await response.text()

    served(check)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/pause_generation", {"modus": "in_place"}, "modus is not a known name (send mode)"),
        ("/continue_generation", {"torch_cache": True}, "torch_cache is not a known name (send torch_empty"),
        ("/release_memory_occupation", {"tag": ["cuda_graph"]}, "tag is not a known name (send tags)"),
        ("/resume_memory_occupation", {"tag": ["weights"]}, "tag is not a known name (send tags)"),
        ("/update_weights_from_disk", {"model_path": "a", "wait": 1}, "wait is not a known name (omit it)"),
        ("/update_weight_version", {"new_version": "a", "abort_all": True}, "(send abort_all_requests)"),
        ("/configure_logging", {"loglevel": "debug"}, "loglevel is not a known name (send log_level)"),
        ("/slow_down", {"forward_sleep": 1}, "forward_sleep is not a known name (send forward_sleep_time)"),
        ("/load_lora_adapter", {"lora_name": "a", "lora_path": "b", "pin": True}, "not a known name (send pinned)"),
        ("/v1/unload_lora_adapter", {"lora_name": "a", "nam": 1}, "nam is not a known name"),
        ("/abort_request", {"abort_all": True, "ridd": "a"}, "ridd is not a known name (send rid)"),
        ("/abort_request", {"rid": "a", "abort_message": "b"}, "abort_message is 'b', but this feature is not built"),
        ("/flush_cache", {"timeouts": 3}, "timeouts is not a known name (send timeout)"),
        ("/flush_cache", {"timeout": -3}, "timeout is -3"),
        ("/flush_cache?time=3", {}, "time is not a known name (send timeout)"),
        ("/pause_generation?mode=in_place", {}, "mode is not a known name (fields of a command stand in its"),
        ("/release_memory_occupation?tags=kv_cache", {}, "tags is not a known name"),
        ("/start_profile?num_steps=3", {}, "num_steps is not a known name"),
    ],
)
def test_a_command_that_is_misspelt_is_refused_and_does_nothing(path: str, body: dict[str, Any], said: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, body)
        assert status == 400 and said in str(reply), reply
        assert server.engine.sent == []

    served(check)


@pytest.mark.parametrize(
    "path", [
        "/pause_generation", "/continue_generation", "/release_memory_occupation", "/resume_memory_occupation",
        "/configure_logging", "/slow_down", "/start_profile", "/flush_cache", "/open_session",
    ],
)  # fmt: skip
def test_a_command_may_have_an_empty_body(path: str) -> None:
    async def check(server: Served) -> None:
        for body in (b"", None, b"{}"):
            async with server.http.post(path, data=body) as response:
                assert response.status == 200, await response.text()

    served(check)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/pause_generation", {}), ("/continue_generation", {}), ("/slow_down", {}), ("/configure_logging", {}),
        ("/release_memory_occupation", {}), ("/resume_memory_occupation", {}), ("/flush_cache", {}),
        ("/update_weights_from_disk", {"model_path": "a"}), ("/update_weight_version", {"new_version": "a"}),
        ("/abort_request", {"abort_all": True}),
    ],
)  # fmt: skip
def test_what_every_class_of_sglang_has_may_be_sent(path: str, body: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        rid = {} if path == "/abort_request" else {"rid": None}
        async with server.http.post(path, json=body | rid | {"http_worker_ipc": None}) as response:
            assert response.status == 200, await response.text()

    served(check)


def test_a_benchmark_may_start_a_profile_with_the_body_of_a_completion() -> None:
    async def check(server: Served) -> None:
        body = orjson.dumps({"model": "a", "prompt": "b", "max_tokens": 3, "stream": True})
        async with server.http.post("/start_profile", data=body) as response:
            assert response.status == 200, await response.text()
        assert len(server.engine.of_type(StartProfile)) == 1

    served(check)


def test_where_thousands_of_sequences_are_is_asked_in_few_questions() -> None:
    """The scheduler answers between two steps: a question for each of them would take as many steps."""
    num = 2 * MAX_LOCATED + 1

    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post("/generate", {"text": ["a"] * num, "rid": "x"}))
        await server.engine.saw(Generate, num)
        _, reply = await server.get("/v1/requests/x")
        assert [each["state"] for each in reply["sequences"]] == ["waiting"] * num
        assert [len(each.uids) for each in server.engine.of_type(LocateSequences)] == [MAX_LOCATED, MAX_LOCATED, 1]
        waiting.cancel()

    served(check, auto=False)


def test_a_request_can_be_asked_where_it_is() -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post("/generate", {"text": "a", "rid": "x", "sampling_params": {"n": 2}}))
        await server.engine.saw(Generate)
        _, reply = await server.get("/v1/requests/x")
        place = {"state": "waiting", "reason": "no memory"}
        assert reply == {"id": "x", **place, "sequences": [place, place]}
        del server.engine.running[1], server.engine.running[2]
        _, reply = await server.get("/v1/requests/x")
        assert reply["state"] == "in transit" and reply["reason"]
        assert (await server.get("/v1/requests/y"))[0] == 404
        waiting.cancel()

    served(check, auto=False)


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_tokenize_and_detokenize_undo_each_other(prefix: str) -> None:
    async def check(server: Served) -> None:
        _, reply = await server.post(prefix + "/tokenize", {"prompt": "Hi!", "model": "default"})
        assert reply == {"tokens": [72, 105, 33], "count": 3, "max_model_len": LIMITS.context_length}
        assert await server.post(prefix + "/detokenize", {"tokens": reply["tokens"]}) == (200, {"text": "Hi!"})
        _, several = await server.post(prefix + "/tokenize", {"prompt": ["a", "bc"]})
        assert several["tokens"] == [[97], [98, 99]] and several["count"] == [1, 2]
        assert await server.post(prefix + "/detokenize", {"tokens": several["tokens"]}) == (200, {"text": ["a", "bc"]})

    served(check)


@pytest.mark.parametrize("path, body, place", [
    ("/v1/tokenize", {}, "prompt"), ("/v1/tokenize", {"prompt": 5}, "prompt"),
    ("/v1/tokenize", {"prompt": []}, "prompt"),
    ("/v1/tokenize", {"prompt": "a", "add_special_tokens": "x"}, "add_special_tokens"),
    ("/v1/tokenize", {"prompt": "a", "model": "x"}, "model"), ("/v1/detokenize", {}, "tokens"),
    ("/v1/detokenize", {"tokens": "a"}, "tokens"), ("/v1/detokenize", {"tokens": [-1]}, "tokens[0]"),
    ("/v1/detokenize", {"tokens": [1.5]}, "tokens[0]"), ("/v1/detokenize", {"tokens": [[1], [-1]]}, "tokens[1][0]"),
    ("/v1/detokenize", {"tokens": [10**6]}, "tokens[0]"), ("/v1/detokenize", {"tokens": [[1], 5]}, "tokens[1]"),
    ("/v1/detokenize", {"tokens": [300]}, "tokens"),  # the tokenizer's own refusal
])  # fmt: skip
def test_bad_bodies_of_the_tokenizer_endpoints(path: str, body: dict, place: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, body)
        assert status in (400, 404) and reply["error"]["param"] == place and place in reply["error"]["message"]

    served(check)


def test_a_key_guards_everything_but_probes_and_metrics() -> None:
    async def check(server: Served) -> None:
        paths = [*ROUTES, "/v1/models/x", "/v1/requests/x", "/nowhere"]
        for path in paths:
            for sent in (None, "Bearer wrong", "secret", "Bearer ", "Basic secret", "Bearer s\u00e9cret"):
                headers = {} if sent is None else {"Authorization": sent}
                async with server.http.get(path, headers=headers) as response:
                    is_open = path in ("/health", "/ready", "/ping", "/version", "/metrics", "/", "/ui")
                    assert (response.status == 200) == is_open, (path, headers)
                    assert response.status in (200, 401)
        right = {"Authorization": "Bearer secret"}
        assert (await server.post("/generate", {"text": "a"}, headers=right))[0] == 200
        assert (await server.get(f"http://127.0.0.1:{server.port}//v1//models", headers=right))[0] == 200
        assert (await server.get(f"http://127.0.0.1:{server.port}//v1//models"))[0] == 401
        _, info = await server.get("/get_server_info", headers=right)
        assert "secret" not in str(info)

    served(check, api_key="secret")


def test_a_key_of_broken_bytes_is_a_wrong_key() -> None:
    async def check(server: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()

    served(check, api_key="secret")


@pytest.mark.parametrize("path", ["/v1/models", "//v1/models", "/v1//models", "//v1///models//", "/v1/models/"])
def test_doubled_slashes_are_one(path: str) -> None:
    async def check(server: Served) -> None:
        status, _ = await server.get(f"http://127.0.0.1:{server.port}{path}")
        assert status == 200

    served(check)


@pytest.mark.parametrize(
    "path, shape", [("/nowhere", {"message"}), ("/v1/nowhere", {"message", "type", "param", "code"})]
)
def test_an_unknown_route_is_a_404_in_json(path: str, shape: set[str]) -> None:
    async def check(server: Served) -> None:
        for method in ("GET", "POST", "DELETE"):
            async with server.http.request(method, path) as response:
                assert response.status == 404 and response.content_type == "application/json"
                assert set((await response.json())["error"]) == shape

    served(check)


def test_a_known_route_with_another_method_is_a_405() -> None:
    async def check(server: Served) -> None:
        for method, path in (
            ("GET", "/generate"),
            ("PUT", "/v1/completions"),
            ("POST", "/health"),
            ("DELETE", "/flush_cache"),
        ):
            async with server.http.request(method, path) as response:
                assert response.status == 405 and response.content_type == "application/json"
                methods = response.headers["Allow"].split(", ")
                assert method not in methods and ("HEAD" in methods) == ("GET" in methods) and len(methods) >= 1
        async with server.http.head("/health") as response:
            assert response.status == 200

    served(check)


async def numbers(server: Served) -> dict[str, float]:
    async with server.http.get("/metrics") as response:
        assert response.status == 200 and response.content_type == "text/plain"
        page = await response.text()
    return {name: float(value) for name, value in re.findall(r"^(ramet:\S+) (\S+)$", page, re.M)}


def test_metrics_count_what_happened() -> None:
    async def check(server: Served) -> None:
        await server.post("/generate", {"text": "abc", "sampling_params": {"n": 2, "max_new_tokens": 5}})
        await server.post("/generate", {"text": "REJECT"})
        await server.post("/generate", {"text": 5})
        await server.get("/nowhere/at/all")
        stats = Stats(
            running_requests=3,
            waiting_requests=4,
            waiting_by_reason=(("memory", 4),),
            step_sizes=(2, 3, *[0] * 11, 6),
            step_tokens=99999,
            used_tokens=50,
            total_tokens=100,
            steps=11,
            retractions=2,
            last_gen_throughput=123.5,
        )
        server.engine.tell(stats)
        page = await numbers(server)
        assert page['ramet:http_requests_total{endpoint="/generate",status="200"}'] == 1
        assert page['ramet:http_requests_total{endpoint="/generate",status="400"}'] == 2
        assert page['ramet:http_requests_total{endpoint="unknown",status="404"}'] == 1
        assert page["ramet:num_requests_total"] == 3 and page["ramet:num_aborted_requests_total"] == 1
        assert page["ramet:prompt_tokens_total"] == 6
        assert page['ramet:cached_tokens_total{cache_source="device"}'] == 2 * CACHED
        assert page["ramet:queue_time_seconds_count"] == page["ramet:prefill_time_seconds_count"] == 2
        assert page["ramet:decode_time_seconds_count"] == page["ramet:inference_time_seconds_count"] == 2
        assert page["ramet:generation_tokens_histogram_sum"] == 10
        assert page["ramet:max_generation_tokens_histogram_count"] == 2
        assert page['ramet:finished_requests_total{finish_reason="length"}'] == 2
        assert page['ramet:finished_requests_total{finish_reason="abort"}'] == 1
        assert page['ramet:num_queue_reqs_by_reason{reason="memory"}'] == 4
        assert page['ramet:num_queue_reqs_by_reason{reason="rows"}'] == 0
        assert page["ramet:token_usage"] == 0.5 and page["ramet:cache_hit_rate"] == 2 * CACHED / 6
        assert page['ramet:step_tokens_bucket{le="8"}'] == 5 and page["ramet:step_tokens_count"] == 11
        assert page["ramet:generation_tokens_total"] == 10
        assert page["ramet:time_to_first_token_seconds_count"] == 2
        assert page["ramet:inter_token_latency_seconds_count"] == 8
        assert page["ramet:e2e_request_latency_seconds_count"] == 2
        assert page['ramet:inter_token_latency_seconds_bucket{le="+Inf"}'] == 8
        assert (page["ramet:num_running_reqs"], page["ramet:num_queue_reqs"]) == (3, 4)
        assert (page["ramet:num_used_tokens"], page["ramet:max_total_num_tokens"]) == (50, 100)
        assert (page["ramet:scheduler_steps_total"], page["ramet:num_retracted_requests_total"]) == (11, 2)
        assert page["ramet:gen_throughput"] == 123.5

    served(check)


def test_a_client_that_left_is_counted_apart() -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post("/generate", {"text": "a"}))
        await server.engine.saw(Generate)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await server.get("/health")
        page = await numbers(server)
        assert page['ramet:http_requests_total{endpoint="/generate",status="499"}'] == 1

    served(check, auto=False)


def test_requests_are_logged_without_their_text(caplog: Any) -> None:
    async def check(server: Served) -> None:
        body = {
            "text": "private",
            "rid": "job",
            "sampling_params": {"max_new_tokens": 2, "stop": ["hidden"], "top_k": 5},
        }
        await server.post("/generate", body)

    with caplog.at_level("INFO", logger="ramet"):
        served(check, log_requests=True)
    (line,) = [record.getMessage() for record in caplog.records if "job" in record.getMessage()]
    assert "7 prompt tokens (3 cached), 2 new tokens" in line and "top_k=5" in line and "length" in line
    assert "private" not in line and "hidden" not in line


def test_every_metric_has_the_prefix_and_says_what_it_is() -> None:
    for row in Metrics().rows():
        assert len(row.about) > 10
    page = MetricsPage(Metrics()).render()[0].decode()
    assert all(line.startswith(("ramet:", "# HELP ramet:", "# TYPE ramet:")) for line in page.splitlines())
