"""8 and 4 bits a weight, or 8 a key, on the bundled model: what it answers and how likely its texts are."""

import math
import random
from typing import Any

import pytest
from samples import slow

from ramet.runtime.llm import LLM
from scripts.demo_model.cases import Reply, all_cases

CASES = random.Random(0).sample(all_cases(), 200)


def answers(llm: LLM, num: int = len(CASES)) -> list[Reply]:
    """To the first `num` of the cases."""
    params = [{"temperature": 0, "max_new_tokens": case.max_new_tokens} for case in CASES[:num]]
    replies = llm.generate([case.prompt for case in CASES[:num]], params)
    reasons = [reply["meta_info"]["finish_reason"] for reply in replies]
    return [
        Reply(r["text"], w["matched"] if w["type"] == "stop" else None) for r, w in zip(replies, reasons, strict=True)
    ]


def num_right(replies: list[Reply]) -> int:
    return sum(case.is_right(reply) for case, reply in zip(CASES, replies, strict=True))


def perplexity(llm: LLM, texts: list[str]) -> float:
    replies = llm.generate(texts, {"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0)
    values = [
        value for reply in replies for value, *_ in reply["meta_info"]["input_token_logprobs"] if value is not None
    ]
    assert len(values) > 5000
    return math.exp(-sum(values) / len(values))


@pytest.fixture(scope="module")
def plain() -> Any:
    """Its answers, and the perplexity of the prompts with them."""
    with LLM(random_seed=0, log_level="error") as llm:
        replies = answers(llm)
        texts = [case.prompt + reply.text for case, reply in zip(CASES, replies, strict=True)]
        return num_right(replies), texts, perplexity(llm, texts)


@pytest.mark.parametrize(
    ("options", "points", "less_likely"),
    [
        ({"quantization": "int8"}, 2, 0.01),
        slow(({"quantization": "int8wo"}, 2, 0.01)),
        ({"quantization": "int4"}, 4, 0.05),
        slow(({"kv_cache_dtype": "int8"}, 2, 0.01)),
        slow(({"quantization": "int8", "kv_cache_dtype": "int8"}, 2, 0.01)),
    ],
    ids=str,
)
def test_it_answers_as_well_and_finds_texts_as_likely(
    plain: Any, options: dict[str, Any], points: int, less_likely: float
) -> None:
    right, texts, likely = plain
    with LLM(random_seed=0, log_level="error", **options) as llm:
        assert 100 * abs(num_right(answers(llm)) - right) <= points * len(CASES)
        assert abs(perplexity(llm, texts) / likely - 1) < less_likely


@pytest.mark.parametrize(
    "options",
    [{"quantization": "int8"}, {"quantization": "int8wo"}, {"quantization": "int4"}, {"kv_cache_dtype": "int8"}],
    ids=str,
)
def test_outputs_are_the_same_prepared_and_not(options: dict[str, Any]) -> None:
    found = []
    for unprepared in (False, True):
        with LLM(random_seed=0, log_level="error", disable_cuda_graph=unprepared, **options) as llm:
            found.append([reply.text for reply in answers(llm, 40)])
    assert found[0] == found[1]
