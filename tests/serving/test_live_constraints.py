"""Constraints through a real server and its processes: every surface, hostile ones, and that nothing is left behind."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psutil
import pytest
import requests
from live import Live, running

from ramet.kernels.cpu.measured import Measured
from ramet.runtime.engine.devices import cpu_kernels as backends
from ramet.runtime.errors import EngineClosed
from ramet.runtime.llm import LLM

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WORKER = "ramet.runtime.grammar.worker"
SMALL = {"max_total_tokens": 20000, "context_length": 512, "check_invariants": True}


def workers_of(process: psutil.Process, *, recursive: bool = True) -> list[psutil.Process]:
    return running(WORKER, process, recursive=recursive)


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(**SMALL, grammar_timeout_s=3) as live:
        yield live
        assert len(workers_of(psutil.Process(live.process.pid))) <= 2
        assert live.generate(text="a", sampling_params={"regex": "[ab]"}).json()["text"] in ("a", "b")
        state = live.state()
        assert state["running_requests"] == state["leased_tokens"] == state["owned_tokens"] == 0


def check_person(text: str) -> None:
    person = json.loads(text)
    assert list(person) == ["name", "age"] and len(person["name"]) <= 8 and 0 <= person["age"] <= 99


# -- surfaces ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA)], ids=["object", "text"])
def test_generate_keeps_to_a_schema(server: Live, schema: Any):
    reply = server.generate(text="Tell of a person:", sampling_params={"json_schema": schema, "temperature": 1.0})
    check_person(reply.json()["text"])
    assert reply.json()["meta_info"]["finish_reason"]["type"] == "stop"


@pytest.mark.parametrize("kind", [{"regex": r"#[0-9]{3}!"}, {"ebnf": 'root ::= "#" [0-9] [0-9] [0-9] "!"'}])
def test_generate_keeps_to_a_pattern_and_a_grammar(server: Live, kind: dict[str, str]):
    reply = server.generate(text="A number:", sampling_params={**kind, "temperature": 1.0, "n": 3})
    texts = [each["text"] for each in reply.json()]
    assert len(texts) == 3 and all(re.fullmatch(r"#[0-9]{3}!", text) for text in texts)


def test_a_chat_keeps_to_a_schema(server: Live):
    body = {
        "messages": [{"role": "user", "content": "Who are you?"}],
        "max_tokens": 100,
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}},
    }
    reply = requests.post(server.url + "/v1/chat/completions", json=body, timeout=60).json()
    check_person(reply["choices"][0]["message"]["content"])
    assert reply["choices"][0]["finish_reason"] == "stop"


def events_of(response: requests.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in response.iter_lines() if line]
    assert lines.pop() == b"[DONE]"
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_is_the_whole(server: Live, seed: int):
    params = {"json_schema": SCHEMA, "temperature": 1.0, "sampling_seed": seed}
    whole = server.generate(text="A person:", sampling_params=params).json()
    body = {"text": "A person:", "sampling_params": params, "stream": True}
    events = events_of(requests.post(server.url + "/generate", json=body, stream=True, timeout=60))
    assert (events[-1]["text"], events[-1]["output_ids"]) == (whole["text"], whole["output_ids"])
    assert all(whole["text"].startswith(event["text"]) for event in events)


def test_pieces_of_a_streamed_chat_are_the_whole(server: Live):
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100, "temperature": 0}
    body["response_format"] = {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}}
    url = server.url + "/v1/chat/completions"
    whole = requests.post(url, json=body, timeout=60).json()["choices"][0]["message"]["content"]
    events = events_of(requests.post(url, json={**body, "stream": True}, stream=True, timeout=60))
    pieces = [event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"]]
    assert "".join(pieces) == whole
    check_person(whole)


def test_a_bad_constraint_of_a_batch_is_named_with_its_item(server: Live):
    params = [{"regex": "[ab]{4}"}, {"regex": "(a"}, {"max_new_tokens": 3}]
    reply = server.generate(text=["x", "y", "z"], sampling_params=params)
    assert reply.status_code == 400 and reply.json()["error"]["message"].startswith("sampling_params[1].regex ")
    assert server.generate(text="x", sampling_params=params[0]).status_code == 200


# -- hostile ones ------------------------------------------------------------------------------------------------------

LOOP = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
CHAIN = "\n".join(f'r{i} ::= "a{i}" r{i + 1} | "b" [a-z] r{i + 1}' for i in range(6000))
WIDE = {"type": "object", "properties": {f"p{i}": {} for i in range(9000)}}
LONG = "root ::= " + " | ".join(f'"{i}a{i * 7}"' for i in range(9000))  # compiled in seconds
HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("unknown backend", {"regex": "a", "grammar_backend": "antlr"}, "grammar_backend"),
    ("two constraints", {"regex": "a", "ebnf": 'root ::= "a"'}, "Only one of"),
    ("invalid regex", {"regex": "(a"}, "regex"),
    ("lookahead", {"regex": "(?=a)b"}, "regex"),
    ("loop of references", {"json_schema": LOOP}, "json_schema"),
    ("5 MB schema", {"json_schema": {"enum": ["a" * 5_000_000]}}, "json_schema"),
    ("deep schema", {"json_schema": '{"items":' * 10_000 + "{}" + "}" * 10_000}, "json_schema"),
    ("deep regex", {"regex": "(" * 10_000 + "a" + ")" * 10_000}, "regex"),
    ("deep grammar", {"ebnf": "root ::= " + "(" * 10_000 + '"a"' + ")" * 10_000}, "ebnf"),
    ("chain of rules", {"ebnf": f'root ::= r0\n{CHAIN}\nr6000 ::= "x"'}, "ebnf"),
    ("NUL in a regex", {"regex": "a\0b"}, "regex"),
    ("NUL in a schema", {"json_schema": {"const": "a\0"}}, "json_schema"),
    ("NUL in a grammar", {"ebnf": 'root ::= "a"\0'}, "ebnf"),
    ("half a surrogate", {"regex": "\ud800"}, "regex"),
    ("repetitions", {"regex": "((a{999}){999}){999}"}, "regex"),
    ("wide schema", {"json_schema": WIDE}, "json_schema"),
    ("no grammar", {"ebnf": "root ::= missing"}, "ebnf"),
]


@pytest.mark.parametrize(("params", "field"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_a_hostile_constraint_is_refused_and_names_its_field(server: Live, params: dict[str, Any], field: str):
    reply = server.generate(text="x", sampling_params={**params, "max_new_tokens": 8})
    assert reply.status_code in (400, 504), reply.text[:500]
    assert field in reply.json()["error"]["message"]
    again = server.generate(text="x", sampling_params={"regex": "[ab]", "temperature": 0})
    assert again.status_code == 200 and again.json()["text"] in ("a", "b")


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*c", "(x+x+)+y", "(.*a){9}(.*b){9}"])
def test_a_catastrophic_pattern_is_kept_to_or_refused(server: Live, pattern: str):
    reply = server.generate(text="aaaa", sampling_params={"regex": pattern, "max_new_tokens": 24})
    if reply.status_code == 200:
        assert set(reply.json()["meta_info"]["finish_reason"]) & {"matched", "length"}
    else:
        assert reply.status_code in (400, 504) and "regex" in reply.json()["error"]["message"]


def test_a_timeout_names_its_field_and_leaves_no_process():
    """A machine that is too busy is another error: a client tries that again."""
    with Live(**SMALL, grammar_timeout_s=0.1) as server:
        for _ in range(20):
            reply = server.generate(text="x", sampling_params={"ebnf": LONG})
            if reply.status_code != 503:
                break
        assert reply.status_code == 504
        message = reply.json()["error"]["message"]
        assert "ebnf" in message and "--grammar-timeout-s" in message
        assert not workers_of(psutil.Process(server.process.pid))
        assert server.generate(text="x", sampling_params={"regex": "[ab]"}).status_code == 200
        for worker in workers_of(psutil.Process(server.process.pid)):
            worker.suspend()
        reply = server.generate(text="x", sampling_params={"regex": "[cd]"})
        assert reply.status_code == 503 and reply.headers["Retry-After"] == "1"
        assert "regex was not compiled: the machine was too busy" in reply.json()["error"]["message"]


# -- options -----------------------------------------------------------------------------------------------------------


def test_a_server_without_a_grammar_backend_says_so():
    with Live(**SMALL, grammar_backend="none") as server:
        reply = server.generate(text="x", sampling_params={"regex": "a"})
        assert reply.status_code == 400
        message = reply.json()["error"]["message"]
        assert "regex" in message and "the grammar backend is none" in message and "--grammar-backend" in message
        assert server.generate(text="x", sampling_params={"max_new_tokens": 3}).status_code == 200
        assert not workers_of(psutil.Process(server.process.pid))


def test_jumps_by_canonical_tokens_are_refused_where_the_backend_has_none():
    command = [sys.executable, "-m", "ramet", "serve", "--grammar-backend", "xgrammar", "--jump-forward", "ff"]
    refused = subprocess.run([*command, "--port", "0"], capture_output=True, text=True, timeout=60)
    said = refused.stdout + refused.stderr
    assert refused.returncode != 0 and "Traceback" not in said
    assert "--jump-forward" in said and "xgrammar" in said


# -- jumps on the bundled model ----------------------------------------------------------------------------------------

NAMES = "Ada|Bob|Cleo|Dmitri"
CASES: list[dict[str, Any]] = [
    {"regex": rf"My name is ({NAMES}), I am [0-9]{{1,2}} years old\."},
    {"regex": "The answer to the question is (yes|no): I am sure of it."},
    {"regex": "[a-z]{3,12} and [a-z]{3,12}"},
    {"regex": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}Z"},
    {"json_schema": SCHEMA},
    {"json_schema": {"type": "object", "properties": {"description": {"enum": ["tall", "taller"]}}}},
    {"json_schema": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 5}},
    {"ebnf": 'root ::= "SELECT " col " FROM " col ";"\ncol ::= "name" | "number" | "title"'},
]


def in_one_arithmetic(found: Measured) -> Measured:
    """What was measured, or float32 alone where the machine mixes two."""
    if found.choice.few == found.choice.many:
        return found
    limits = replace(found.limits, dot_flops=0.0, tile_flops=0.0)
    return replace(found, limits=limits, seconds={"float32": found.seconds["float32"]})


def answers(llm: LLM, params: list[dict[str, Any]]) -> list[tuple[list[int], str, Any]]:
    replies = llm.generate(["Please answer:"] * len(params), sampling_params=params)
    return [(each["output_ids"], each["text"], each["meta_info"]["finish_reason"]) for each in replies]


@pytest.mark.parametrize(("dtype", "together"), [("bfloat16", 1), ("float32", 2 * len(CASES))])
def test_jumps_change_no_token_of_the_bundled_model(dtype: str, together: int, monkeypatch: pytest.MonkeyPatch):
    """In bfloat16 one by one: else the rows of steps depend on when constraints are ready, and near ties on these.

    And in one arithmetic, also where this machine would compute few tokens in another: a jump is a step of several.
    """
    measured = backends.machine
    monkeypatch.setattr(backends, "machine", lambda *of: in_one_arithmetic(measured(*of)))
    params = [{**case, "max_new_tokens": 60, "temperature": 0} for case in CASES]
    params += [{**case, "max_new_tokens": 60, "sampling_seed": i, "temperature": 1.0} for i, case in enumerate(CASES)]
    found = []
    for jump in ("off", "ff"):
        of_model = dict(max_total_tokens=20000, context_length=512, random_seed=0, dtype=dtype)
        with LLM(**of_model, jump_forward=jump) as llm:
            found.append([each for group in batched(params, together) for each in answers(llm, group)])
    off, ff = found
    for asked, drawn, jumped in zip(params, off, ff, strict=True):
        assert drawn == jumped, asked


def batched(params: list[dict[str, Any]], size: int) -> list[list[dict[str, Any]]]:
    return [params[at : at + size] for at in range(0, len(params), size)]


THINKING = "Is 17 x 3 = 51? Think step by step."


@pytest.mark.parametrize("jump", ["off", "ff", "retokenize"])
def test_a_constraint_makes_no_model_think(jump: str):
    asked = {"temperature": 0, "max_new_tokens": 80, "regex": "(yes|no)\\."}
    chats = [[{"role": "user", "content": text}] for text in ("Hi", "What is the capital city of Haiti?", THINKING)]
    with LLM(max_total_tokens=20000, context_length=512, jump_forward=jump, check_invariants=True) as llm:
        free = [llm.chat(chat, {"temperature": 0, "max_new_tokens": 80})[0]["message"] for chat in chats]
        kept = [llm.chat(chat, asked)[0]["message"] for chat in chats]
    assert [bool(each["reasoning"]) for each in kept] == [bool(each["reasoning"]) for each in free]
    assert all(re.fullmatch("(yes|no)\\.", each["content"]) for each in kept), kept
    assert not kept[0]["reasoning"]


# -- in one process ----------------------------------------------------------------------------------------------------


def test_a_program_closes_its_engine_while_a_constraint_compiles():
    llm = LLM(max_total_tokens=20000, context_length=512, grammar_timeout_s=600)
    (text,) = [each["text"] for each in llm.generate(["x"], sampling_params={"regex": "[ab]{3}"})]
    assert re.fullmatch("[ab]{3}", text)
    workers = workers_of(psutil.Process(), recursive=False)
    for worker in workers:
        worker.suspend()  # it compiles for ever
    before = llm.state()["generated_tokens"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(llm.generate, ["x", "y"], sampling_params=[{"regex": "[cd]{3}"}, {"max_new_tokens": 2}])
        while llm.state()["generated_tokens"] == before:  # of the second, so the first has been asked for
            assert not asked.done()
        llm.close()
        assert isinstance(asked.exception(60), EngineClosed)
    assert workers and not any(worker.is_running() for worker in workers)
