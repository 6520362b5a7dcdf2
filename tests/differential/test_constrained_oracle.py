"""Greedy output under a constraint equals transformers' with every other token forbidden, jumps or not.

What is legal is asked of somebody else than the runtime: for patterns of the automaton of bytes, token by token; for
schemas of the library itself.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from llguidance import LLMatcher, LLTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parent))
from oracle import TIE, Oracle

from ramet.runtime.grammar.byte_fsm import build_byte_fsm
from ramet.runtime.llm import LLM
from ramet.runtime.text.tokenizer import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from tiny_model import make_tiny

PROMPTS = [[5, 9, 300], [17] * 40, list(range(20, 53))]
PATTERNS = [
    r"(ab|ac)+ is (true|false)\.",
    r"[0-9]{1,3}(\.[0-9]{1,3}){3}",
    r"Name: [A-Z][a-zé]{2,9}\nAge: [1-9][0-9]",
    r"[^a-z]{5,9}",
]
SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 5}, "town": {"enum": ["Paris", "Rome"]}},
        "required": ["name", "town"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "integer", "minimum": 10, "maximum": 99}, "minItems": 2, "maxItems": 3},
]
Legal = Callable[[list[int]], list[int]]  # an output -> the tokens that may follow; [] after its end


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("tiny"), vocab=512, context=512, hidden=64, layers=2, heads=4, kv_heads=2)


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Oracle:
    return Oracle.load(folder)


def by_bytes(tokenizer: Tokenizer, pattern: str) -> Legal:
    fsm = build_byte_fsm(pattern)
    after: dict[int, list[int]] = {}  # tokens that may follow a state
    spelled = {token: tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)}
    texts = {token: text for token, text in spelled.items() if text and token not in tokenizer.special_ids}

    def legal(output: list[int]) -> list[int]:
        if output and output[-1] in tokenizer.eos_ids:
            return []
        state = fsm.walk(fsm.start, b"".join(texts[token] for token in output))
        assert state is not None
        if state not in after:
            after[state] = [token for token, text in texts.items() if fsm.walk(state, text) is not None]
        return after[state] + (sorted(tokenizer.eos_ids) if fsm.accepts(state) else [])

    return legal


def by_library(folder: Path, tokenizer: Tokenizer, grammar: str) -> Legal:
    matchers = LLTokenizer(str(folder / "tokenizer.json"), eos_token=sorted(tokenizer.eos_ids))

    def legal(output: list[int]) -> list[int]:
        if output and output[-1] in tokenizer.eos_ids:
            return []
        matcher = LLMatcher(matchers, grammar)
        assert matcher.consume_tokens(output)
        bits = torch.frombuffer(bytearray(matcher.compute_bitmask()), dtype=torch.uint8)
        return torch.nonzero(bits[:, None] >> torch.arange(8) & 1).matmul(torch.tensor([8, 1])).tolist()

    return legal


@torch.inference_mode()
def expected(oracle: Oracle, prompt: list[int], legal: Legal, eos_ids: frozenset[int], most: int) -> list[int]:
    """The best legal token, again and again. No two are so close that rounding could choose."""
    output: list[int] = []
    while len(output) < most and (allowed := legal(output)):
        if set(allowed) <= eos_ids:
            allowed = [min(allowed)]  # of several ends, where nothing else may follow, the first one is taken
        logits = oracle.model(torch.tensor([prompt + output])).logits[0, -1]
        best = logits[allowed].topk(min(2, len(allowed)))
        assert len(allowed) == 1 or float(best.values[0] - best.values[1]) > TIE / 10, "a tie: take another seed"
        output.append(allowed[int(best.indices[0])])
    return output


def outputs(folder: Path, asked: dict[str, Any], **options: Any) -> Iterator[list[int]]:
    with LLM(str(folder), dtype="float32", max_total_tokens=4096, random_seed=0, **options) as llm:
        for reply in llm.generate(PROMPTS, {"temperature": 0, "max_new_tokens": 40, **asked}):
            yield reply["output_ids"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_leaves_the_best_token_that_the_automaton_allows(folder: Path, oracle: Oracle, pattern: str) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    legal = by_bytes(tokenizer, pattern)
    want = [expected(oracle, prompt, legal, tokenizer.eos_ids, 40) for prompt in PROMPTS]
    for backend in ("xgrammar", "outlines"):
        assert list(outputs(folder, {"regex": pattern}, grammar_backend=backend)) == want, backend


@pytest.mark.parametrize("jump_forward", ["off", "ff"])
@pytest.mark.parametrize("overlap", ["off", "on"])
@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_schema_leaves_the_best_token_that_the_library_allows(
    folder: Path, oracle: Oracle, schema: dict[str, Any], jump_forward: str, overlap: str
) -> None:
    options = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)
    tokenizer = Tokenizer.from_folder(folder)
    legal = by_library(folder, tokenizer, grammar)
    want = [expected(oracle, prompt, legal, tokenizer.eos_ids, 40) for prompt in PROMPTS]
    assert list(outputs(folder, {"json_schema": schema}, jump_forward=jump_forward, overlap=overlap)) == want
