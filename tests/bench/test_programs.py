"""The paper's workloads as programs: every call that a trace means is made, with its lengths, and counted."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ramet.bench.programs import common, paper
from ramet.bench.programs.catalogue import BY_NAME, WORKLOADS
from ramet.bench.programs.common import VARIANTS, Figures, make_llm
from ramet.bench.programs.record import RecordingLLM
from ramet.bench.programs.words import write_model

REQUESTS = {  # of that many programs, without the interpreter's hints; what the trace gives decides where it is a range
    "mmlu": (3, 3), "hellaswag": (2, 8), "gsm8k": (3, 3), "generative-agents": (3, 3), "multi-chain": (2, 12),
    "tree-of-thought": (1, 30), "tips": (1, 10), "judge": (1, 7), "documents": (2, 2), "long-json": (1, 4),
    "json-fields": (1, 5), "json-character": (2, 2), "chat-short": (2, 8), "chat-long": (1, 4), "retrieval": (3, 3),
    "skeleton-of-thought": (2, 10), "in-batch": (3, 3), "unshared": (2, 2), "shared-1024-own-256": (2, 2),
    "articles-5x2": (4, 4),
}  # fmt: skip
OUTPUTS = {"mmlu": 3, "documents": 32, "long-json": 48, "unshared": 512, "multi-chain": None}


@pytest.fixture(scope="module")
def llms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("words")
    write_model(folder)
    started: dict[Any, RecordingLLM] = {}

    def of(variant: str) -> RecordingLLM:
        switches = VARIANTS[variant].engine
        if switches not in started:
            started[switches] = make_llm(folder, switches, scripted=True, scripted_step_ms=0.0, scripted_token_us=0.0)
        return started[switches]

    yield of
    for llm in started.values():
        llm.close()


def run(llms: Any, name: str, num: int, variant: str = "all", **more: Any) -> Figures:
    switches = replace(VARIANTS[variant], **more)
    return common.run(llms(variant), BY_NAME[name], num, switches, at_once=BY_NAME[name].at_once)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_program_makes_the_calls_of_its_trace(llms: Any, name: str):
    num, requests = REQUESTS[name]
    figures = run(llms, name, num, hints=False)
    assert (figures.programs, figures.requests) == (num, requests)
    assert OUTPUTS.get(name) in (None, figures.output_tokens)
    assert figures.cached_tokens <= figures.best_cached_tokens


def test_an_agent_thinks_before_each_move_and_at_the_end(llms: Any):
    agents = BY_NAME["react"].trace(3)
    assert run(llms, "react", 3, hints=False).requests == sum(len(agent.moves) + 1 for agent in agents)


def test_hints_are_requests_too(llms: Any):
    assert run(llms, "judge", 1).requests == run(llms, "judge", 1, hints=False).requests + 1


def test_what_is_found_and_what_is_computed_are_all_prompts(llms: Any):
    figures = run(llms, "gsm8k", 5, hints=False)
    assert figures.cached_tokens + figures.prefill_tokens == figures.prompt_tokens
    assert figures.cached_tokens == figures.best_cached_tokens == 4 * 850


def test_a_program_alone_finds_all_that_can_be_found(llms: Any):
    """Nobody else drives its prefixes out, and each of its calls comes back to what the calls before left."""
    for name in ("chat-long", "long-json", "react", "tips"):
        figures = run(llms, name, 1, hints=False)
        assert figures.cached_tokens == figures.best_cached_tokens > 0, name


def test_without_a_cache_nothing_is_found(llms: Any):
    figures = run(llms, "gsm8k", 3, "no cache")
    assert figures.cached_tokens == 0 and figures.best_cached_tokens == 2 * 850
    assert figures.prefill_tokens == figures.prompt_tokens


def test_a_list_finds_what_a_tree_finds_where_there_is_room(llms: Any):
    tree, as_list = (run(llms, "gsm8k", 4, variant, hints=False) for variant in ("all", "no tree"))
    assert tree.cached_tokens == as_list.cached_tokens > 0


def test_without_parallelism_a_program_has_one_call_at_a_time(llms: Any):
    steps = [run(llms, "judge", 1, hints=False, parallel=parallel).steps for parallel in (True, False)]
    assert steps[1] > 3 * steps[0]


def test_jump_forward_saves_steps_of_a_form(llms: Any):
    assert run(llms, "json-character", 1).steps < run(llms, "json-character", 1, "no jump-forward").steps


def test_names_are_unique_and_every_switch_is_one_of_the_engine_or_of_a_run():
    assert len(BY_NAME) == len(WORKLOADS)
    assert {name for name, each in VARIANTS.items() if each.engine == VARIANTS["all"]} == {
        "all", "no hints", "no parallelism",
    }  # fmt: skip


def test_the_bench_writes_a_line_and_says_whether_the_hit_rates_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    lines = tmp_path / "programs.jsonl"
    argv = ["--hit-rates", "--workload", "gsm8k", "--programs", "3", "--variant", "fcfs"]
    assert paper.main([*argv, "--output-file", str(lines)]) == 0
    record = json.loads(lines.read_text())
    assert record["runner"] == "scripted" and set(record["workloads"]["gsm8k"]) == {"all", "fcfs"}
    assert record["all"]["mean_of_best"] == record["all"]["least_of_best"] == 1.0
    printed = capsys.readouterr().out
    assert "all: 100.0% of the best possible hit rate on average" in printed and "holds" in printed
