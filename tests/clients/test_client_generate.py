"""/generate as programs post to it: each kind of constraint, where the model would write something else."""

import json
import re
from typing import Any

import pytest
import requests
from asked import CAPITAL, PLACED, TEXT
from live import Live

TAG = {"type": "structural_tag", "format": {"type": "tag", "begin": "<is>",
       "content": {"type": "regex", "pattern": "[A-Z][a-z]{2,9}"}, "end": "</is>"}}  # fmt: skip
KEPT: list[tuple[dict[str, Any], str]] = [
    ({"regex": "[0-9]{4} m"}, "[0-9]{4} m"),
    ({"ebnf": 'root ::= "It is " [A-Z] [a-z]{2,9} "."'}, r"It is [A-Z][a-z]{2,9}\."),
    ({"structural_tag": TAG}, "<is>[A-Z][a-z]{2,9}</is>"),
    ({"structural_tag": json.dumps(TAG)}, "<is>[A-Z][a-z]{2,9}</is>"),
    ({"json_schema": {"const": 7}}, "7"),
]


def generate(server: Live, text: str, **params: Any) -> dict[str, Any]:
    body = {"text": text, "sampling_params": {"temperature": 0, "max_new_tokens": 60, **params}}
    reply = requests.post(server.url + "/generate", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


@pytest.mark.parametrize("grammar_backend", ["llguidance", "xgrammar", None])
@pytest.mark.parametrize("params, kept", KEPT)
def test_an_output_keeps_to_what_is_asked_for(server: Live, params: dict[str, Any], kept: str, grammar_backend: Any):
    answer = generate(server, CAPITAL, grammar_backend=grammar_backend, **params)
    assert re.fullmatch(kept, answer["text"]), answer["text"]
    assert answer["meta_info"]["finish_reason"]["type"] == "stop"


def test_the_backend_that_is_named_is_the_one_that_constrains(server: Live):
    lark = {"temperature": 0, "ebnf": 'start: "yes" | "no"'}  # of the three only llguidance reads it
    assert generate(server, CAPITAL, grammar_backend="llguidance", **lark)["text"] in ("yes", "no")
    for name in ("xgrammar", "outlines"):
        body = {"text": CAPITAL, "sampling_params": {"grammar_backend": name, **lark}}
        reply = requests.post(server.url + "/generate", json=body, timeout=60)
        assert reply.status_code == 400 and name in reply.text


@pytest.mark.parametrize("schema", [PLACED, json.dumps(PLACED)], ids=["object", "text"])
def test_an_output_keeps_to_a_schema(server: Live, schema: Any):
    text = generate(server, TEXT, json_schema=schema)["text"]
    assert json.loads(text).keys() == PLACED["properties"].keys() and json.loads(text)["city"] in ("Oslo", "Paris")


def test_each_prompt_keeps_to_a_constraint_of_its_own(server: Live):
    params = [{"max_new_tokens": 20, **asked} for asked in ({"regex": "yes|no"}, {"regex": "[0-9]{2}"}, {})]
    reply = requests.post(server.url + "/generate", json={"text": [CAPITAL] * 3, "sampling_params": params}, timeout=60)
    first, second, free = (each["text"] for each in reply.json())
    assert first in ("yes", "no") and re.fullmatch("[0-9]{2}", second) and free not in ("yes", "no")
