"""The state of one output, on every backend."""

import random

import numpy as np
import pytest
from constrained import NAMES, SIZE, allowed, backend, compiled, ids_of, takes, vocabulary

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.base import Grammar

REGEX, JSON, TAGS = ConstraintKind.REGEX, ConstraintKind.JSON_SCHEMA, ConstraintKind.STRUCTURAL_TAG
SCHEMA = """{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
"age": {"type": "integer"}, "tags": {"type": "array", "items": {"enum": ["a", "bc", "<|im_end|>"]}, "maxItems": 3}},
"required": ["name", "age", "tags"], "additionalProperties": false}"""
ANY_STRINGS = '{"type": "object", "additionalProperties": {"type": "string"}}'
TAG = f"""{{"type": "structural_tag", "format": {{"type": "tags_with_separator", "separator": ";", "at_least_one": true,
"tags": [{{"begin": "<data>", "content": {{"type": "json_schema", "json_schema": {SCHEMA}}}, "end": "</data>"}}]}}}}"""
CASES = [(REGEX, r"(ab|a)c{1,3}[^x]"), (REGEX, r"\d{3}-\w+"), (JSON, SCHEMA), (TAGS, TAG)]
each_backend = pytest.mark.parametrize("name", NAMES)
each_case = pytest.mark.parametrize(("kind", "text"), CASES, ids=["alternatives", "classes", "object", "tags"])


def walk(grammar: Grammar, rng: random.Random, num_steps: int) -> list[int]:
    """Random legal tokens, the end among them last."""
    taken = []
    for _ in range(num_steps):
        token = rng.choice(sorted(allowed(grammar)))
        assert grammar.accept(token)
        taken.append(token)
        if token in vocabulary().eos_ids:
            break
    return taken


def ended(taken: list[int]) -> bool:
    return taken[-1] in vocabulary().eos_ids


@each_backend
@each_case
def test_accept_keeps_to_the_mask(name, kind, text):
    grammar = compiled(name, kind, text).start()
    rng = random.Random(1)
    for _ in range(12):
        legal = allowed(grammar)
        for token in rng.sample(range(SIZE), 200):
            probe = grammar.fork()
            if token in legal:
                assert probe.accept(token)
            elif not probe.accept(token):
                assert allowed(probe) == legal
        if ended(walk(grammar, rng, 1)):
            break


@each_backend
@each_case
def test_a_refused_token_changes_nothing(name, kind, text):
    grammar = compiled(name, kind, text).start()
    for _ in range(6):
        legal = allowed(grammar)
        refused = [t for t in range(SIZE) if t not in legal and not grammar.fork().accept(t)]
        assert refused and not any(map(grammar.accept, refused))
        assert allowed(grammar) == legal
        if ended(walk(grammar, random.Random(2), 1)):
            break


@each_backend
@each_case
def test_rollback_takes_back_tokens_and_the_end(name, kind, text):
    rng = random.Random(3)
    grammar = compiled(name, kind, text).start()
    masks = [allowed(grammar)]
    for _ in range(60):
        taken = walk(grammar, rng, 1)
        masks.append(allowed(grammar))
        if ended(taken):
            break
    for num_tokens in (1, 2):
        grammar.rollback(num_tokens)
        del masks[-num_tokens:]
        assert allowed(grammar) == masks[-1]


@each_backend
def test_the_end_can_be_taken_back(name):
    for end in sorted(vocabulary().eos_ids):
        grammar = compiled(name, REGEX, "ab?").start()
        assert all(map(grammar.accept, ids_of("a")))
        before = allowed(grammar)
        assert grammar.accept(end)
        assert allowed(grammar) == vocabulary().eos_ids and not grammar.accept(end)
        grammar.rollback(1)
        assert allowed(grammar) == before
        assert all(map(grammar.accept, ids_of("b")))


@each_backend
@each_case
def test_a_fork_goes_its_own_way(name, kind, text):
    grammar = compiled(name, kind, text).start()
    before = allowed(grammar)
    other = grammar.fork()
    walk(other, random.Random(4), 3)
    assert allowed(grammar) == before


@each_backend
def test_every_end_token_is_legal_exactly_where_the_output_may_end(name):
    ends = vocabulary().eos_ids
    assert len(ends) == 2
    grammar = compiled(name, REGEX, "a{2,3}").start()
    seen = []
    for _ in range(3):
        seen.append((grammar.may_end, grammar.must_end, allowed(grammar) & ends))
        assert all(map(grammar.accept, ids_of("a")))
    seen.append((grammar.may_end, grammar.must_end, allowed(grammar)))
    nothing: set[int] = set()
    assert seen == [(False, False, nothing), (False, False, nothing), (True, False, ends), (True, True, ends)]


@each_backend
@pytest.mark.parametrize(("kind", "text"), [(REGEX, "(?s).*"), (JSON, ANY_STRINGS)])
def test_control_tokens_and_padding_are_never_legal(name, kind, text):
    tokenizer = vocabulary().tokenizer
    never = {*tokenizer.added_tokens.values(), *range(tokenizer.vocab_size, SIZE)} - vocabulary().eos_ids
    grammar = compiled(name, kind, text).start()
    for piece in ["", '{"', "a", '": "', "b <|im_end", "|>"]:
        assert all(map(grammar.accept, ids_of(piece)))
        assert not allowed(grammar) & never
        assert not any(map(grammar.fork().accept, never))


@each_backend
def test_a_batch_of_masks_is_the_masks_one_by_one(name):
    grammars = [compiled(name, kind, text).start() for kind, text in CASES]
    for grammar in grammars:
        walk(grammar, random.Random(5), 2)
    ended = compiled(name, REGEX, "a").start()
    assert all(map(ended.accept, [*ids_of("a"), min(vocabulary().eos_ids)]))
    grammars.append(ended)
    rows = [6, 0, 2, 4, 5]
    bits = np.full((7, -(-SIZE // 32)), 7, np.int32)
    backend(name).fill_masks(grammars, rows, bits)
    alone = np.zeros_like(bits[0])
    for grammar, row in zip(grammars, rows, strict=True):
        grammar.fill_mask(alone)
        assert (bits[row] == alone).all()
    assert (bits[[1, 3]] == 7).all()


@each_backend
@each_case
def test_forced_tokens_are_the_only_legal_ones(name, kind, text):
    rng = random.Random(6)
    for _ in range(5):
        grammar = compiled(name, kind, text).start()
        for _ in range(80):
            forced = grammar.forced()
            assert not set(forced) & vocabulary().eos_ids
            for token in forced:
                assert allowed(grammar) == {token}
                assert grammar.accept(token)
            if grammar.must_end:
                break
            walk(grammar, rng, 1)


@each_backend
def test_forced_text_is_what_every_output_goes_on_with(name):
    grammar = compiled(name, REGEX, r"(abcdef|abcxyz)\d").start()
    text = grammar.forced_text()
    assert b"abc".startswith(text)
    assert grammar.accept(ids_of("a")[0])
    assert b"bc".startswith(grammar.forced_text())


@each_backend
@pytest.mark.parametrize(
    ("whitespace", "taken", "refused"),
    [
        (
            "single-space",
            ['{"a": 1, "b": [1, 2]}'],
            ['{"a":1,"b":[1,2]}', '{"a": 1, "b": [1,2]}', '{ "a": 1, "b": []}'],
        ),
        ("compact", ['{"a":1,"b":[1,2]}'], ['{"a": 1, "b": [1, 2]}', '{"a":1,"b":[1, 2]}']),
        (
            "flexible",
            ['{"a":1,"b":[1,2]}', '{"a": 1, "b": [1, 2]}', '{\n  "a": 1,\n  "b": []\n}'],
            ['{"a": 1,, "b": []}'],
        ),
    ],
)
def test_white_space_is_as_asked_for(name, whitespace, taken, refused):
    schema = """{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items":
        {"type": "integer"}}}, "required": ["a", "b"], "additionalProperties": false}"""
    ready = compiled(name, JSON, schema, whitespace)
    assert [text for text in taken if not takes(ready, text)] == []
    assert [text for text in refused if takes(ready, text)] == []


@each_backend
def test_properties_come_in_the_schemas_order(name):
    schema = """{"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "null"}}, "required": ["a"],
        "additionalProperties": false}"""
    ready = compiled(name, JSON, schema)
    assert takes(ready, '{"b": null, "a": null}')
    assert takes(ready, '{"a": null}')
    assert not takes(ready, '{"a": null, "b": null}')
