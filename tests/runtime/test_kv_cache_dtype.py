"""Keys and values of 8 bits: the same answers however requests are cached, cut, retracted and put together."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hub_configs import HUB

from ramet.runtime.cache.pool import KVPool, KVShape, bytes_per_token
from ramet.runtime.config import make_args
from ramet.runtime.engine import startup
from ramet.runtime.engine.devices.cpu import CpuDevice
from ramet.runtime.errors import ConfigError
from ramet.runtime.llm import LLM
from ramet.runtime.models.registry import parse_shape
from scripts.demo_model.cases import all_cases

PROMPTS = [case.prompt for case in all_cases()[:200:10]]
GREEDY = {"temperature": 0, "max_new_tokens": 40, "ignore_eos": True}


def made(**options: Any) -> LLM:
    return LLM(random_seed=0, log_level="error", num_threads=1, dtype="float32", kv_cache_dtype="int8", **options)


def answers(llm: LLM) -> list[list[int]]:
    return [reply["output_ids"] for reply in llm.generate(PROMPTS, GREEDY)]


@pytest.fixture(scope="module")
def plain() -> Iterator[list[list[int]]]:
    with made(disable_radix_cache=True, disable_cuda_graph=True) as llm:
        yield answers(llm)


@pytest.mark.parametrize("page_size", [1, 16])
def test_cached_prefixes_change_nothing(plain: list[list[int]], page_size: int) -> None:
    with made(page_size=page_size) as llm:
        assert answers(llm) == plain
        assert answers(llm) == plain  # of what is cached


def test_chunks_and_retraction_change_nothing(plain: list[list[int]]) -> None:
    with made(max_total_tokens=512, schedule_conservativeness=0.01, chunked_prefill_size=16) as llm:
        assert answers(llm) == plain
        assert llm.state()["retractions"] > 0


def test_the_reference_answers_the_same(plain: list[list[int]]) -> None:
    with made(attention_backend="reference") as llm:
        assert answers(llm) == plain


def test_parallel_contexts_are_those_of_the_reference() -> None:
    found = []
    for backend in ("auto", "reference"):
        with made(attention_backend=backend) as llm:
            pieces = ["Maria is 34 years old. ", "She lives in Lisbon. ", "Her dog is called Rex. "]
            before, *contexts = (llm.tokenize(text, False) for text in ("Facts:\n", *pieces))
            after = llm.tokenize("\nWhere does Maria live?", False)
            ids = [*before, *(token for context in contexts for token in context), *after]
            for _ in range(2):
                (reply,) = llm.generate(ids, GREEDY, contexts=[[len(before), *map(len, contexts)]])
                found.append(reply["output_ids"])
    assert found[0] == found[1] == found[2] == found[3]


def test_a_pool_takes_the_memory_that_is_planned_for_it() -> None:
    sizes = dict(layers=[KVShape.of(2, 32)] * 3)
    for dtype, size in ((torch.int8, 36), (torch.bfloat16, 64), (torch.float32, 128)):
        pool = KVPool(max_total_tokens=15, page_size=1, dtype=dtype, device=torch.device("cpu"), **sizes)
        taken = sum(tensor.nbytes for tensor in (*pool.keys, *pool.values))
        assert taken == 16 * bytes_per_token(dtype=dtype, **sizes) == 16 * 2 * 3 * 2 * size


def test_the_same_memory_holds_more_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuDevice, "available_bytes", lambda _: 30 << 30)
    shape = parse_shape(HUB["Llama-3.1-8B"])  # heads of 128
    tokens = [
        startup.plan_of(make_args(kv_cache_dtype=cache), shape, torch.bfloat16, CpuDevice()).max_total_tokens
        for cache in ("auto", "int8")
    ]
    assert tokens[1] / tokens[0] == pytest.approx(256 / 132, rel=1e-3)


def test_gathered_prefixes_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"--kv-cache-dtype is int8.*gather"):
        made(attention_backend="gather")


def test_float8_without_scales_in_plain_torch() -> None:
    """What kernels for a GPU are compared with; no kernel for a CPU reads it."""
    options = {"random_seed": 0, "log_level": "error", "num_threads": 1, "dtype": "float32", "kv_cache_dtype": "fp8"}
    with pytest.raises(ConfigError, match="--kv-cache-dtype is fp8, which no kernel for a CPU reads: use int8"):
        LLM(**options)
    with LLM(attention_backend="reference", **options) as llm:
        first, again = answers(llm), answers(llm)
        assert first == again
        texts = [reply["text"] for reply in llm.generate(PROMPTS, {"temperature": 0, "max_new_tokens": 16})]
    with LLM(**options | {"kv_cache_dtype": "auto"}) as llm:
        plain = [reply["text"] for reply in llm.generate(PROMPTS, {"temperature": 0, "max_new_tokens": 16})]
    assert sum(map(str.__eq__, texts, plain)) >= 0.8 * len(PROMPTS)
