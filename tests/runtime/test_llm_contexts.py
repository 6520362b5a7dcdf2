"""`LLM.generate(ids, contexts=...)`: what it reads, what it refuses by name, constraints on what follows contexts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM

GREEDY = {"temperature": 0, "max_new_tokens": 24}


@pytest.fixture(scope="module", params=["off", "on"])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    options: dict[str, Any] = {"num_threads": 1, "random_seed": 1, "log_level": "error", "check_invariants": True}
    with LLM(max_total_tokens=4096, overlap=request.param, **options) as made:
        yield made


def asked_of(llm: LLM) -> tuple[list[int], list[list[int]]]:
    pieces = ["Maria is 34 years old. ", "She lives in Lisbon. ", "Her dog is called Rex. "]
    before, *contexts = (llm.tokenize(text, False) for text in ("Facts:\n", *pieces))
    after = llm.tokenize("\nWhere does Maria live?", False)
    ids = [*before, *(token for context in contexts for token in context), *after]
    return ids, [[len(before), *map(len, contexts)]]


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_groups_may_be_lists_tuples_or_arrays(llm: LLM, kind: Any):
    ids, contexts = asked_of(llm)
    (expected,) = llm.generate(ids, GREEDY, contexts=contexts)
    (reply,) = llm.generate(kind(ids), GREEDY, contexts=kind(contexts))
    assert reply["output_ids"] == expected["output_ids"] and reply["meta_info"]["cached_tokens"] > 0
    (without,) = llm.generate(ids, GREEDY, contexts=None)
    assert without["meta_info"]["prompt_tokens"] == reply["meta_info"]["prompt_tokens"] == len(ids)


def test_samples_and_streams_are_as_the_reply(llm: LLM):
    ids, contexts = asked_of(llm)
    (alone,) = llm.generate(ids, GREEDY, contexts=contexts)
    several = llm.generate(ids, {**GREEDY, "n": 3}, contexts=contexts)
    assert [reply["text"] for reply in several] == [alone["text"]] * 3
    assert list(llm.stream(ids, GREEDY, contexts=contexts))[-1]["text"] == alone["text"]


@pytest.mark.parametrize("pattern", ["(Lisbon|Oslo|Rex), [0-9]{2}", "The answer is: [a-z]{3,9}\\."])
def test_what_follows_contexts_keeps_to_a_constraint(llm: LLM, pattern: str):
    ids, contexts = asked_of(llm)
    (cold,) = llm.generate(ids, {**GREEDY, "regex": pattern}, contexts=contexts)
    assert re.fullmatch(pattern, cold["text"])
    (again,) = llm.generate(ids, {**GREEDY, "regex": pattern}, contexts=contexts)
    assert again["output_ids"] == cold["output_ids"]
    asked = {"return_logprob": True, "logprob_start_len": 0}
    (scored,) = llm.generate(ids, {**GREEDY, "regex": pattern}, contexts=contexts, **asked)
    assert scored["output_ids"] == cold["output_ids"]
    assert [token for _, token, _ in scored["meta_info"]["input_token_logprobs"]] == ids


@pytest.mark.parametrize(
    ("contexts", "said"),
    [
        ("5", "contexts is '5'"),
        ([5], "contexts[0] is 5"),
        ([[5, 2.5]], "contexts[0][1] is 2.5"),
        ([[5]], "contexts[0] is [5]"),
        ([[5, 1000]], "ends at token 1005"),
    ],
)
def test_what_is_no_group_is_refused_by_its_place(llm: LLM, contexts: Any, said: str):
    ids, _ = asked_of(llm)
    with pytest.raises(ClientError, match=re.escape(said)):
        llm.generate(ids, GREEDY, contexts=contexts)


def test_contexts_are_of_one_prompt_of_ids(llm: LLM):
    ids, contexts = asked_of(llm)
    for prompts in ("a text", [ids, ids]):
        with pytest.raises(ClientError, match="one prompt of token ids"):
            llm.generate(prompts, GREEDY, contexts=contexts)


def test_a_client_cannot_hold_a_prompt_with_contexts(llm: LLM):
    ids, contexts = asked_of(llm)
    with pytest.raises(ClientError, match="prefix_lease_s"):
        llm.generate(ids, GREEDY, contexts=contexts, prefix_lease_s=5)


def test_the_example_of_the_page_runs(llm: LLM):
    page = Path(__file__).resolve().parents[2] / "docs" / "contexts.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    names: dict[str, Any] = {"llm": llm}
    exec(compile(example, str(page), "exec"), names)
    assert names["reply"]["meta_info"]["prompt_tokens"] == len(names["ids"])
