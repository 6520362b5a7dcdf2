"""Pauses in process: another thread may pause, and have what waits go on."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(runner="scripted", max_total_tokens=512, context_length=256)


@pytest.mark.parametrize("mode", ["in_place", "retract"])
def test_a_call_waits_for_the_end_of_a_pause(llm: LLM, mode: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        llm.pause_generation(mode)
        call = pool.submit(llm.generate, "a", {"max_new_tokens": 3, "ignore_eos": True})
        while llm.state()["waiting_requests"] == 0:
            pass
        assert llm.state()["paused"] and not call.done()
        llm.continue_generation()
        assert len(call.result()[0]["output_ids"]) == 3


def test_an_abort_ends_calls_that_wait(llm: LLM) -> None:
    with ThreadPoolExecutor(1) as pool:
        llm.pause_generation("in_place")
        call = pool.submit(llm.generate, "a", {"max_new_tokens": 3})
        while llm.state()["waiting_requests"] == 0:
            pass
        llm.pause_generation()
        assert call.result()[0]["meta_info"]["finish_reason"]["message"] == "aborted by /pause_generation"
        llm.continue_generation()


def test_another_mode_is_refused_by_name(llm: LLM) -> None:
    with pytest.raises(ClientError, match=r"^mode is 'keep', must be one of abort, retract, in_place$"):
        llm.pause_generation("keep")
