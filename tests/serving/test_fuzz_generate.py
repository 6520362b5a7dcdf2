"""/generate under bodies of random values, types and combinations of every field: never a 500, nothing is lost."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from live import Live
from msgspec.json import schema_components
from msgspec.structs import fields

from ramet.ipc.params import SamplingParams
from ramet.runtime.intake.calls import GenerateBody
from ramet.runtime.intake.specs import ConstraintFields

HIDDEN = 256

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 6), st.sampled_from([2**31, -(2**31) - 1, 2**63, -(2**64), 10**30]),
    st.floats(allow_nan=True, allow_infinity=True), st.text(max_size=8), st.sampled_from(["", "a", "\ud800", "\x00"]),
)  # fmt: skip
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)
TOKENS = st.integers(0, 4095)
CUSTOM = st.dictionaries(
    st.sampled_from(["token_ids", "position", "n", "__req__"]),
    st.one_of(st.lists(TOKENS, max_size=3), st.integers(0, 5)),
    max_size=3,
)
STOP_PATTERNS = ["a+b", "[0-9]{2}", ["x|y", "z"], r"\bthe\b", [r"(?m)^\s*$", r"^.\B"], r"\w\Z", "(?m)$", r"\A a$"]
PLAUSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "max_new_tokens": st.integers(0, 8), "n": st.integers(1, 3), "temperature": st.floats(0, 3),
    "top_p": st.floats(0.01, 1), "top_k": st.sampled_from([-1, 1, 5, 10**6]), "min_p": st.floats(0, 1),
    "frequency_penalty": st.floats(-2, 2), "presence_penalty": st.floats(-2, 2), "repetition_penalty": st.floats(0, 2),
    "logit_bias": st.dictionaries(
        TOKENS.map(str), st.floats(-100, 100) | st.sampled_from(["5", "-100", "1e1", "x", ""]), max_size=4
    ),
    "min_new_tokens": st.integers(0, 3), "sampling_seed": st.integers(-(2**63), 2**63 - 1),
    "stop": st.one_of(st.text(max_size=3), st.lists(st.text(min_size=1, max_size=3), max_size=3)),
    "stop_token_ids": st.lists(TOKENS | st.sampled_from([4096, 2**31, 2**63 - 1]), max_size=3),
    "stop_regex": st.sampled_from(STOP_PATTERNS),
    "custom_params": st.one_of(CUSTOM, st.lists(st.none() | CUSTOM, max_size=3)),
    "stream_interval": st.integers(1, 6), "regex": st.just(""), "json_schema": st.just(""),
}  # fmt: skip


def mostly(plausible: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 11).flatmap(lambda roll: JUNK if roll == 0 else plausible)


def some_of(fields: dict[str, st.SearchStrategy[Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    names = st.lists(st.sampled_from(sorted(fields)), max_size=most, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: fields[name] for name in chosen}))


SAMPLING = some_of(
    {
        name: mostly(PLAUSIBLE.get(name, st.booleans()))
        for name in (*SamplingParams.__struct_fields__, *ConstraintFields.__struct_fields__)
    },
    5,
)
ROW = st.lists(st.sampled_from([0.0, 0.5, -1.0]), min_size=HIDDEN, max_size=HIDDEN)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "text": st.one_of(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=3)),
    "input_ids": st.one_of(
        st.lists(TOKENS, min_size=1, max_size=9),
        st.lists(st.lists(TOKENS, min_size=1, max_size=4), min_size=1, max_size=3),
    ),
    "input_embeds": st.one_of(
        st.lists(ROW, min_size=1, max_size=2),
        st.lists(st.lists(ROW, max_size=2), min_size=1, max_size=3),
    ),
    "sampling_params": st.one_of(SAMPLING, SAMPLING, st.lists(st.one_of(st.none(), SAMPLING), max_size=3)),
    "rid": st.one_of(st.uuids().map(str), st.lists(st.sampled_from(["a", "b"]) | st.uuids().map(str), max_size=3)),
    "stream": st.booleans(),
    "logprob_start_len": st.integers(-1, 12),
    "top_logprobs_num": st.integers(0, 6),
    "token_ids_logprob": st.lists(TOKENS, max_size=4),
    "priority": st.integers(-5, 5),
    "extra_key": st.text(max_size=4),
    "cache_salt": st.text(max_size=4),
    "custom_logit_processor": st.sampled_from(
        ["", "force_tokens", "ban_tokens", "allow_tokens", "no_repeat_ngram", "x"]
    ),
    "return_hidden_states": st.sampled_from([True, False, "last", "all"]),
    "prefix_lease_s": st.floats(0, 0.5),
}
OTHERS = {f.name: mostly(FIELDS.get(f.name, st.booleans())) for f in fields(GenerateBody)}
PROMPTS = ("text", "input_ids", "input_embeds")
(_,), _COMPONENTS = schema_components([GenerateBody], ref_template="{name}")
REFUSED = {name for name, schema in _COMPONENTS["GenerateBody"]["properties"].items() if "x-unbuilt" in schema}
REST = {name: strategy for name, strategy in OTHERS.items() if name not in {*PROMPTS, *REFUSED}}
UNBUILT = {name: OTHERS[name] for name in REFUSED}
WITH_A_PROMPT = st.sampled_from(("text", "text", "input_ids", "input_ids", "input_embeds")).flatmap(
    lambda name: st.builds(
        lambda prompt, rest, refused, roll: prompt | rest | (refused if roll == 0 else {}),
        st.fixed_dictionaries({name: OTHERS[name]}),
        some_of(REST, 4),
        some_of(UNBUILT, 2),
        st.integers(0, 7),
    )
)
BODIES = st.one_of(WITH_A_PROMPT, WITH_A_PROMPT, WITH_A_PROMPT, some_of(OTHERS, 8))


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    options = {"max_total_tokens": 4000, "max_running_requests": 16, "max_penalised_requests": 5, "context_length": 256}
    with Live(check_invariants=True, enable_custom_logit_processor=True, **options) as live:
        yield live


def bounded(body: dict[str, Any]) -> dict[str, Any]:
    """The same body, but an output that would go on for ever stays short."""
    params = body.get("sampling_params")
    for each in params if isinstance(params, list) else [params]:
        if isinstance(each, dict):
            each.setdefault("max_new_tokens", 4)
            if each["max_new_tokens"] is None:
                each["max_new_tokens"] = 4
    return body


def send(url: str, body: dict[str, Any]) -> int:
    data = json.dumps(bounded(body)).encode("utf-8", "replace")
    headers = {"Content-Type": "application/json"}
    answer = requests.post(url + "/generate", data=data, headers=headers, timeout=60)
    if answer.status_code == 200:
        assert answer.content and b'"server_error"' not in answer.content, (body, answer.text)  # nor inside a stream
    else:
        assert 400 <= answer.status_code < 500 and answer.json()["error"]["message"], (body, answer.text)
    return answer.status_code


def drawn(number: int) -> list[dict[str, Any]]:
    """The same at every call."""
    bodies: list[dict[str, Any]] = []

    @settings(
        max_examples=number, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(BODIES)
    def draw(body: dict[str, Any]) -> None:
        bodies.append(body)

    draw()
    return bodies


def fuzz(server: Live, bodies: int) -> Counter[int]:
    roles = {role: process.pid for role, process in server.children().items()}
    with ThreadPoolExecutor(8) as pool:
        statuses = Counter(pool.map(lambda body: send(server.url, body), drawn(bodies)))
    assert {role: process.pid for role, process in server.children().items()} == roles, server.output()
    assert server.generate(text="still here", sampling_params={"max_new_tokens": 2}).status_code == 200
    state = server.state()
    busy = ("running_requests", "waiting_requests", "leased_tokens", "owned_tokens", "penalty_slots")
    assert {name: state[name] for name in busy} == dict.fromkeys(busy, 0)
    return statuses


def test_bodies_of_every_kind_harm_nobody(server: Live):
    statuses = fuzz(server, 300)
    assert statuses[200] > 15 and statuses[400] > 15, statuses


@pytest.mark.slow
@pytest.mark.timeout(3600)  # 33 s for each thousand on two cores with avx512_bf16
def test_ten_thousand_bodies_harm_nobody(server: Live):
    statuses = fuzz(server, 10_000)
    assert sum(statuses.values()) >= 10_000 and statuses[200] > 1000, statuses
