"""Leases of clients in process."""

import math
from typing import Any

import pytest

from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM

PROMPT = "All happy families are alike; each unhappy family is unhappy in its own way."
NOTHING = {"max_new_tokens": 0}


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(runner="scripted", max_total_tokens=512, context_length=256)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, "long", True])
def test_a_time_that_is_none_is_refused_by_name(llm: LLM, value: Any):
    with pytest.raises(ClientError, match=r"^prefix_lease_s is "):
        llm.generate(PROMPT, NOTHING, prefix_lease_s=value)


def test_a_prefix_is_held_until_it_is_given_back(llm: LLM):
    def cached_after_others() -> int:
        for i in range(4):
            llm.generate([[i * 50 + j for j in range(200)]], {"max_new_tokens": 1})
        return llm.generate(PROMPT, NOTHING)[0]["meta_info"]["cached_tokens"]

    tokens = llm.generate(PROMPT, NOTHING, prefix_lease_s=600)[0]["meta_info"]["prompt_tokens"]
    assert cached_after_others() == tokens - 1  # the last one is always computed
    llm.generate(PROMPT, NOTHING, prefix_lease_s=0)
    assert cached_after_others() == 0


def test_a_cached_prefix_is_held_for_calls_that_come_later(llm: LLM):
    prefix = "Facts that many prompts begin with."
    llm.cache_prefix(prefix, 600)
    for i in range(4):
        llm.generate([[i * 50 + j for j in range(200)]], {"max_new_tokens": 1})
    meta = llm.generate(prefix + " Then", NOTHING)[0]["meta_info"]
    assert meta["cached_tokens"] >= len(llm.tokenize(prefix)) - 1
    with pytest.raises(ClientError, match="prefix_lease_s"):
        llm.cache_prefix(prefix, -1)
