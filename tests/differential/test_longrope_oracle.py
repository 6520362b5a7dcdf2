"""longrope: a sequence beyond the trained length has other keys from its first token on, as in transformers' generate.

The trained length is 48 tokens. A sequence that comes to 49 is computed anew, whatever others in its batch do.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from oracle import Oracle
from tiny_families import VOCABULARY, make_family

from ramet.runtime.llm import LLM

TRAINED, NUM_NEW = 48, 14
LENGTHS = [1, 20, 40, 46, 47, 48, 49, 50, 75, 110, 20, 48]
PARAMS = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}


class Case:
    def __init__(self, folder: Path) -> None:
        self.folder, self.oracle = folder, Oracle.load(folder)
        rng = np.random.default_rng(7)
        self.prompts = [rng.integers(0, VOCABULARY, n).tolist() for n in LENGTHS]
        self.expected = [self.oracle.greedy(prompt, NUM_NEW) for prompt in self.prompts]

    def llm(self, **options: Any) -> LLM:
        settled = {"dtype": "float32", "check_invariants": True, "random_seed": 0, "max_total_tokens": 1024}
        return LLM(model_path=str(self.folder), **{"num_threads": 1, **settled, **options})

    def check(self, llm: LLM, **more: Any) -> list[dict[str, Any]]:
        replies: list[dict[str, Any]] = llm.generate(self.prompts, PARAMS, **more)
        for prompt, reply, expected in zip(self.prompts, replies, self.expected, strict=True):
            again = lambda p, n: llm.generate([p], {**PARAMS, "max_new_tokens": n})[0]["output_ids"]  # noqa: E731
            self.oracle.check(prompt, reply["output_ids"], expected, again)
        assert self.oracle.ties < 0.01 * self.oracle.positions
        return replies


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(make_family(tmp_path_factory.mktemp("longrope"), "phi3-longrope"))


WAYS: list[dict[str, Any]] = [
    {"attention_backend": "reference", "page_size": 16, "chunked_prefill_size": 7},
    {"page_size": 16},
    {"chunked_prefill_size": 7},
    {"disable_cuda_graph": True, "disable_radix_cache": True},
    {"num_threads": 2, "overlap": "on"},
    {"max_running_requests": 2, "prefix_cache": "list"},
]


@pytest.mark.parametrize("options", WAYS, ids=lambda options: "-".join(options))
def test_greedy_equals_transformers_below_at_and_above_the_trained_length(case: Case, options: dict[str, Any]) -> None:
    """All in one batch; cold, then warm."""
    llm = case.llm(**options)
    for _ in range(2):
        case.check(llm)


def test_a_sequence_that_outgrows_it_is_no_retraction(case: Case) -> None:
    replies = case.check(case.llm())
    assert [reply["meta_info"]["num_retractions"] for reply in replies] == [0] * len(replies)


def test_memory_that_runs_out_changes_nothing(case: Case) -> None:
    replies = case.check(case.llm(max_total_tokens=160, schedule_conservativeness=0.01))
    assert sum(reply["meta_info"]["num_retractions"] for reply in replies) > 0


def test_what_shorter_sequences_have_cached_is_no_prefix_of_longer_ones(case: Case) -> None:
    llm, prompt = case.llm(), case.prompts[9]
    for length, cached in ((20, 0), (40, 20), (TRAINED + 1, 0), (60, TRAINED + 1), (30, 29), (60, 59)):
        params = {"temperature": 0, "max_new_tokens": 1, "ignore_eos": True}
        (reply,) = llm.generate([prompt[:length]], params)
        assert reply["meta_info"]["cached_tokens"] == cached
        assert reply["output_ids"] == case.oracle.greedy(prompt[:length], 1)[0]


def test_logprobs_are_those_that_each_token_was_drawn_with(case: Case) -> None:
    llm = case.llm()
    for at in (3, 5, 8):
        prompt = case.prompts[at]
        (reply,) = llm.generate([prompt], PARAMS, return_logprob=True)
        asked: Any = dict(do_sample=False, eos_token_id=None, pad_token_id=0, max_new_tokens=NUM_NEW)
        out = case.oracle.model.generate(
            torch.tensor([prompt]), **asked, output_logits=True, return_dict_in_generate=True
        )
        rows = torch.log_softmax(torch.cat(out.logits).float(), -1)
        want = rows[range(NUM_NEW), reply["output_ids"]].tolist()
        got = [value for value, _, _ in reply["meta_info"]["output_token_logprobs"]]
        assert got == pytest.approx(want, abs=1e-4)


def test_a_constraint_and_a_stream_go_on_beyond_it(case: Case) -> None:
    """The text of a stream only grows, and every token is allowed by its grammar."""
    llm, prompt = case.llm(), case.prompts[3]
    pattern = "[a-d]{5}(abcdefgh|x){1,4}"
    (free,) = llm.generate([prompt], {"temperature": 0, "max_new_tokens": 40, "regex": pattern})
    *_, last = llm.stream(prompt, {"temperature": 0, "max_new_tokens": 40, "regex": pattern})
    assert last["text"] == free["text"] and len(free["output_ids"]) > 5
    (whole,) = case.llm(jump_forward="off").generate(
        [prompt], {"temperature": 0, "max_new_tokens": 40, "regex": pattern}
    )
    assert whole["output_ids"] == free["output_ids"]


def test_a_context_up_to_the_trained_length_has_no_boundary(case: Case) -> None:
    llm = case.llm(context_length=TRAINED)
    (reply,) = llm.generate([case.prompts[2]], {**PARAMS, "max_new_tokens": 8})
    assert reply["output_ids"] == case.expected[2][0][:8]


def test_parallel_contexts_are_refused(case: Case) -> None:
    (reply,) = case.llm().generate([case.prompts[1]], PARAMS, contexts=[(2, 5, 5)])
    refused = reply["meta_info"]["finish_reason"]
    assert refused["status_code"] == 400
    assert refused["message"].startswith(
        "contexts need a model whose keys stay, this one's are others beyond 48 tokens"
    )
