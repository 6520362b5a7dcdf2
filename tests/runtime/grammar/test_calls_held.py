"""A model that would rather call something else: under the form of its parser it calls what is offered, or nothing.

The model writes its own text wherever the constraint allows the next token of it, and any other legal token elsewhere.
"""

import json
import random

import pytest
from constrained import allowed, compiled, ids_of, vocabulary
from jsonschema import Draft202012Validator

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.base import BackendName
from ramet.runtime.intake.parsers.structure import Part
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart, Offer, tool_parser_class

SCHEMA = {
    "type": "object",
    "properties": {"at": {"enum": ["sea", "sky", 3]}, "deep": {"type": "boolean"}},
    "required": ["at"],
    "additionalProperties": False,
}
EMPTY = {"type": "object", "properties": {}, "additionalProperties": False}
OFFERS = [Offer("look", SCHEMA), Offer("now", EMPTY)]
SCHEMAS = dict(OFFERS)
EVIL = {
    "hermes": [
        '<tool_call>\n{"name": "evil", "arguments": {}}', 'I <tool_call>{"name": "look", "arguments": {"at": 5}}',
    ],
    "llama3-json": [
        '{"name": "evil", "parameters": {}}', ' \n[{"name": "look", "parameters": {"at": "moon"}}]',
        'I <|python_tag|>{"name": "look", "parameters": {"at": 3}}; {"name": "evil"}',
        '<|python_tag|>{"name": "now", "parameters": {}}\n{"name": "look", "parameters": 3}',
    ],
    "mistral": ['[TOOL_CALLS][{"name": "evil"}]', 'I [TOOL_CALLS]evil{"at": 1}', '[TOOL_CALLS][{"arguments": {}}]'],
    "deepseek": [
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>evil<｜tool▁sep｜>{}", "I <｜tool▁calls▁begin｜>"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{\"at\": \"moon\"}\n```<｜tool▁call▁end｜>"
    ],
    "gpt-oss": [
        "<|channel|>commentary to=functions.evil<|message|>{}", '<|channel|>analysis<|message|>I <|start|>assistant'
        '<|channel|>commentary to=functions.look<|message|>{"at": "moon"}<|end|><|start|>assistant',
        '<|channel|>final<|message|>I <|end|><|start|>assistant to=functions.evil<|channel|>commentary<|message|>{}',
    ],
    "pythonic": ["[evil(at=1)]", "I <|python_start|>[look(at='moon')]", "[look(at='sea', near=1), now(a=2)]"],
}  # fmt: skip
CASES = [(name, text) for name, texts in EVIL.items() for text in texts]


def written(backend: BackendName, form: Part, wanted: str, rng: random.Random, most: int = 250) -> tuple[str, bool]:
    """An output, and whether it ended."""
    tag = json.dumps({"type": "structural_tag", "format": form})
    grammar, plan, tokens = (
        compiled(backend, ConstraintKind.STRUCTURAL_TAG, tag).start(),
        ids_of(wanted),
        list[int](),
    )
    while len(tokens) < most:
        legal = allowed(grammar)
        more = sorted(legal - vocabulary().eos_ids)
        if not more or (len(more) < len(legal) and not plan):
            return text_of(tokens), True
        token = plan.pop(0) if plan and plan[0] in legal else rng.choice(more)
        if plan and rng.random() < 0.2:
            plan.pop(0)  # it goes on where it can
        assert grammar.accept(token)
        tokens.append(token)
    return text_of(tokens), False


def text_of(tokens: list[int]) -> str:
    return b"".join(map(vocabulary().tokenizer.token_bytes, tokens)).decode("utf-8", "ignore")


def called(name: str, text: str) -> list[tuple[str, str]]:
    parser = tool_parser_class(name)(frozenset(SCHEMAS))
    parser.leading = name == "gpt-oss"
    calls = list[tuple[str, str]]()
    for event in [*parser.push(text), *parser.close()]:
        if isinstance(event, CallStart):
            calls.append((event.name, ""))
        elif isinstance(event, CallArguments):
            calls[-1] = (calls[-1][0], calls[-1][1] + event.text)
    return calls


@pytest.mark.parametrize("backend", ["llguidance", "xgrammar"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("name, wanted", CASES)
def test_only_offered_calls_are_made(name: str, wanted: str, forced: bool, seed: int, backend: BackendName) -> None:
    rng, parser = random.Random(seed), tool_parser_class(name)
    form = parser.calls_form(OFFERS, False) if forced else parser.text_form(OFFERS, False)
    text, ended = written(backend, form, wanted, rng)
    calls = called(name, text)
    for i, (tool, arguments) in enumerate(calls):
        assert tool in SCHEMAS, text
        if ended or i + 1 < len(calls):
            Draft202012Validator(SCHEMAS[tool]).validate(json.loads(arguments))
    assert calls or not forced or not ended
