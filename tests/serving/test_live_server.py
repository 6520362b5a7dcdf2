"""A real server on the bundled model, driven as users drive it: plain HTTP and the OpenAI client."""

import json
import re
import select
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import openai
import pytest
import requests
from live import Live

from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.text.decode import TextDecoder
from ramet.runtime.text.tokenizer import Tokenizer

GREEDY = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(max_total_tokens=20000, check_invariants=True, served_model_name="small") as live:
        yield live


@pytest.fixture(scope="module")
def client(server: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def events(response: requests.Response) -> Iterator[Any]:
    """The JSON of every SSE event; the stream must close with [DONE]."""
    done = False
    for line in response.iter_lines():
        if line:
            assert not done, "an event after [DONE]"
            data = line.removeprefix(b"data: ")
            done = data == b"[DONE]"
            if not done:
                yield json.loads(data)
    assert done


def test_generate_answers(server: Live):
    reply = server.generate(text="The capital of France is", sampling_params=GREEDY).json()
    assert len(reply["output_ids"]) == 12 == reply["meta_info"]["completion_tokens"]
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 12}


def test_stream_joined_equals_non_stream_byte_for_byte(server: Live):
    for text in ("Hello", "Grüße, 世界 🌍", "a\nb\t\0c", "1 2 3"):
        whole = server.generate(text=text, sampling_params={**GREEDY, "max_new_tokens": 60}).json()
        body = {"text": text, "sampling_params": {**GREEDY, "max_new_tokens": 60}, "stream": True}
        chunks = list(events(requests.post(server.url + "/generate", json=body, stream=True, timeout=60)))
        assert chunks[-1]["text"] == whole["text"] and chunks[-1]["output_ids"] == whole["output_ids"]
        assert all(whole["text"].startswith(chunk["text"]) for chunk in chunks)


def test_completions_stream_equals_whole_and_generate(server: Live, client: openai.OpenAI):
    whole = client.completions.create(model="small", prompt="Hello", max_tokens=30, temperature=0)
    stream = client.completions.create(
        model="small", prompt="Hello", max_tokens=30, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    native = server.generate(text="Hello", sampling_params={"temperature": 0, "max_new_tokens": 30}).json()
    assert native["text"] == whole.choices[0].text


def test_completions_n_list_and_token_prompts(client: openai.OpenAI):
    answer = client.completions.create(model="small", prompt=["a", "b"], n=3, max_tokens=5, temperature=0.9, seed=1)
    assert [c.index for c in answer.choices] == list(range(6))
    assert len({c.text for c in answer.choices[:3]}) > 1  # samples differ
    ids = client.completions.create(model="small", prompt=[[5, 6, 7], [8, 9]], max_tokens=3, temperature=0)
    assert len(ids.choices) == 2 and ids.usage.prompt_tokens == 5


def test_completions_echo(client: openai.OpenAI):
    answer = client.completions.create(model="small", prompt="Hello there", max_tokens=3, temperature=0, echo=True)
    assert answer.choices[0].text.startswith("Hello there")


def test_the_same_seed_gives_the_same_tokens_whatever_runs_beside(server: Live):
    body = {"text": "Once", "sampling_params": {"temperature": 1.0, "sampling_seed": 7, "max_new_tokens": 20}}
    alone = server.generate(**body).json()["output_ids"]
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(server.generate, text=f"Other {i}", sampling_params=GREEDY) for i in range(12)]
        beside = [pool.submit(server.generate, **body) for _ in range(4)]
        assert all(future.result().json()["output_ids"] == alone for future in beside)
        assert all(future.result().status_code == 200 for future in others)


def test_stop_strings_that_span_tokens_are_trimmed_or_kept(server: Live):
    text = server.generate(text="Hello", sampling_params={**GREEDY, "max_new_tokens": 40}).json()["text"]
    stop = text[9:14]
    cut = text.index(stop)
    for no_trim in (False, True):
        params = {**GREEDY, "max_new_tokens": 40, "stop": stop, "no_stop_trim": no_trim}
        reply = server.generate(text="Hello", sampling_params=params).json()
        assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
        assert reply["text"] == text[: cut + len(stop) * no_trim]
        body = {"text": "Hello", "sampling_params": params, "stream": True}
        chunks = list(events(requests.post(server.url + "/generate", json=body, stream=True, timeout=60)))
        assert chunks[-1]["text"] == reply["text"]
        assert all(reply["text"].startswith(chunk["text"]) for chunk in chunks)  # nothing of the stop leaks


def test_a_stop_pattern_that_python_warns_of_writes_nothing_to_the_log(server: Live):
    assert server.generate(text="a", sampling_params={"max_new_tokens": 1, "stop_regex": "[[:alpha:]]x"}).ok
    assert "Warning" not in server.output()


def test_stop_regex_and_stop_token_ids(server: Live):
    whole = server.generate(text="Hello", sampling_params={**GREEDY, "max_new_tokens": 40}).json()
    letter = next(c for c in whole["text"][5:] if c.isascii() and c.isalpha())
    reply = server.generate(
        text="Hello", sampling_params={**GREEDY, "max_new_tokens": 40, "stop_regex": f"[{letter}]"}
    ).json()
    assert reply["text"] == whole["text"][: whole["text"].index(letter)]
    assert reply["meta_info"]["finish_reason"]["matched"] == f"[{letter}]"
    token = whole["output_ids"][6]
    reply = server.generate(
        text="Hello", sampling_params={**GREEDY, "max_new_tokens": 40, "stop_token_ids": [token]}
    ).json()
    assert reply["output_ids"] == whole["output_ids"][: whole["output_ids"].index(token) + 1]


@pytest.mark.parametrize("pattern", [r"[a-z]\b", r"[a-z]$", r"(?m)^.*[a-z]\b", r"\B[a-z]\Z"])
def test_stop_regex_with_anchors_stops_where_re_finds_it_in_the_text_so_far(server: Live, pattern: str):
    params = {**GREEDY, "max_new_tokens": 30}
    decoder = TextDecoder(Tokenizer.from_folder(BUNDLED_MODEL))
    ids = server.generate(text="Hello", sampling_params=params).json()["output_ids"]
    texts = ["", *accumulate(map(decoder.push, ids))]
    stop = next(count for count, text in enumerate(texts) if text and re.search(pattern, text))
    for no_trim in (False, True):
        asked = {**params, "stop_regex": pattern, "no_stop_trim": no_trim}
        reply = server.generate(text="Hello", sampling_params=asked).json()
        assert len(reply["output_ids"]) == stop < 30
        assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": pattern}
        *_, last = chunks = list(events(server.generate(text="Hello", sampling_params=asked, stream=True)))
        assert last["text"] == reply["text"]
        assert all(reply["text"].startswith(chunk["text"]) for chunk in chunks)
        if no_trim:
            assert reply["text"] == texts[stop] and re.search(pattern, reply["text"])
        else:
            assert len(reply["text"]) < len(texts[stop]) and texts[stop].startswith(reply["text"])


def test_cached_tokens_are_reported_and_flush_forgets(server: Live):
    ids = list(range(100, 300))
    body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    requests.post(server.url + "/flush_cache?timeout=10", timeout=20).raise_for_status()
    cached = [server.generate(**body).json()["meta_info"]["cached_tokens"] for _ in range(2)]
    requests.post(server.url + "/flush_cache", timeout=20).raise_for_status()
    cached.append(server.generate(**body).json()["meta_info"]["cached_tokens"])
    assert cached == [0, 199, 0]


def test_min_new_tokens_holds_eos_back(server: Live):
    bias = {"temperature": 1.0, "sampling_seed": 3, "max_new_tokens": 30, "min_new_tokens": 30}
    reply = server.generate(text="x", sampling_params=bias).json()
    assert reply["meta_info"]["completion_tokens"] == 30


def test_prefill_only(server: Live):
    reply = server.generate(text="Hello", sampling_params={"max_new_tokens": 0}).json()
    assert (reply["text"], reply["output_ids"]) == ("", [])
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 0}


def test_abort_request_by_rid_ends_it(server: Live):
    with ThreadPoolExecutor(1) as pool:
        body = {"text": "x", "rid": "mine", "sampling_params": {**GREEDY, "max_new_tokens": 4000}}
        future = pool.submit(server.generate, **body)
        while requests.get(server.url + "/v1/requests/mine", timeout=10).json().get("state") != "running":
            assert not future.done()
        assert requests.post(server.url + "/abort_request", json={"rid": "mine"}, timeout=10).status_code == 200
        reply = future.result().json()
    assert reply["meta_info"]["finish_reason"]["type"] == "abort"
    assert server.state()["running_requests"] == 0 == server.state()["owned_tokens"]


@pytest.mark.parametrize("path", ["/health", "/health_generate", "/ready", "/get_model_info", "/v1/models", "/metrics"])
def test_operational_endpoints_answer(server: Live, path: str):
    assert requests.get(server.url + path, timeout=20).status_code == 200


def test_a_server_with_more_work_than_the_probe_waits_for_is_healthy():
    """One sequence runs at a time, and 200 of hundreds of tokens each stand before the probe."""
    params = {**GREEDY, "max_new_tokens": 900}
    with (
        Live(max_running_requests=1, max_total_tokens=4096, schedule_policy="fcfs", check_invariants=True) as full,
        ThreadPoolExecutor() as pool,
    ):
        waiting = pool.submit(full.generate, text=["a"] * 200, sampling_params=params)
        while full.state()["waiting_requests"] < 190:
            pass
        reply = requests.get(full.url + "/health_generate", timeout=60)
        assert reply.status_code == 200, reply.text
        assert not waiting.done()
        requests.post(full.url + "/abort_request", json={"abort_all": True}, timeout=10).raise_for_status()
        waiting.result()
        while (state := full.state())["running_requests"]:
            pass
        assert state["waiting_requests"] == state["owned_tokens"] == 0


def test_tokenize_and_detokenize_round_trip(server: Live):
    made = requests.post(server.url + "/v1/tokenize", json={"prompt": "Grüße 世界"}, timeout=10).json()
    assert made["count"] == len(made["tokens"])
    back = requests.post(server.url + "/v1/detokenize", json={"tokens": made["tokens"]}, timeout=10).json()
    assert back["text"] == "Grüße 世界"


def test_light_processes_are_light(server: Live):
    """Neither torch nor transformers is mapped into them, and each stays under 120 MB."""
    children = server.children()
    assert set(children) == {"server", "tokenizer-0", "detokenizer", "scheduler"}
    for role in ("server", "tokenizer-0", "detokenizer"):
        mapped = {m.path for m in children[role].memory_maps()}
        assert not any("torch" in path or "transformers" in path for path in mapped), role
        assert children[role].memory_info().rss < 120e6, (role, children[role].memory_info().rss)
    assert any("libtorch" in m.path for m in children["scheduler"].memory_maps())  # the check can fail


def test_idle_costs_nothing(server: Live):
    """While nobody asks anything, no process wakes up more than now and then: there is no polling loop."""
    children = server.children()
    before = {
        role: (child.num_ctx_switches().voluntary, sum(child.cpu_times()[:2])) for role, child in children.items()
    }
    quiet_s = 1.5
    select.select([], [], [], quiet_s)  # the time that is measured, not a wait for something
    for role, child in children.items():
        switches, cpu_s = before[role]
        assert child.num_ctx_switches().voluntary - switches < 20 * quiet_s, role
        assert sum(child.cpu_times()[:2]) - cpu_s < 0.05 * quiet_s, role


def test_the_memory_table_names_the_flag_that_moves_each_row(server: Live):
    log = server.output()
    for row, flag in (
        ("KV pool", "--max-total-tokens"),
        ("weights", "--dtype"),
        ("activations", "--chunked-prefill-size"),
    ):
        assert any(row in line and flag in line for line in log.splitlines()), row


def test_server_info_shows_what_open_options_came_to(server: Live):
    info = requests.get(server.url + "/get_server_info", timeout=10).json()
    assert (info["device"], info["dtype"]) == ("cpu", "bfloat16")
    assert info["attention_backend"] in ("cpu", "reference") and info["num_threads"] >= 1
    assert isinstance(info["random_seed"], int) and 0 < info["mem_fraction_static"] < 1


def test_the_api_key_is_asked_for_and_never_printed():
    with Live(runner="scripted", api_key="sekret-value") as guarded:
        assert guarded.generate(text="a").status_code == 401
        headers = {"Authorization": "Bearer sekret-value"}
        body = {"text": "a", "sampling_params": {"max_new_tokens": 1}}
        assert requests.post(guarded.url + "/generate", json=body, headers=headers, timeout=20).status_code == 200
        assert requests.get(guarded.url + "/health", timeout=10).status_code == 200
        info = requests.get(guarded.url + "/get_server_info", headers=headers, timeout=10)
        assert "sekret-value" not in info.text + guarded.output()


def test_head_changes_nothing(server: Live):
    server.generate(input_ids=list(range(50, 90)), sampling_params={"max_new_tokens": 1})
    assert requests.head(server.url + "/flush_cache", timeout=10).status_code == 405
    assert server.state()["cached_tokens_in_tree"] > 0
