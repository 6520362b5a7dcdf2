"""The lines a process prints."""

import logging

from ramet.runtime.log import LOGGER, SchedulerLoad, request_line, setup, step_line


def test_a_prefill_line_tells_what_the_cache_saved_and_a_decode_line_does_not() -> None:
    load, facts = SchedulerLoad(9, 3, 250, 1000), {"num_sequences": 4, "new_tokens": 512}
    prefill = step_line("Prefill", load, cached_tokens=64, **facts)
    decode = step_line("Decode", load, cached_tokens=0, tokens_per_s=12.34, **facts)
    assert prefill == (
        "Prefill batch: 4 seqs, 512 new tokens, 64 cached tokens, pool 250/1000 (25.0 %), 9 running, 3 waiting"
    )
    assert decode == "Decode batch: 4 seqs, 512 new tokens, pool 250/1000 (25.0 %), 9 running, 3 waiting, 12.3 tokens/s"


def test_an_empty_pool_is_no_division_by_zero() -> None:
    line = step_line("Decode", SchedulerLoad(0, 0, 0, 0), num_sequences=0, new_tokens=0, cached_tokens=0)
    assert "0.0 %" in line


def test_a_request_line_is_one_line() -> None:
    line = request_line(
        "r", params="top_k=5", prompt_tokens=3, cached_tokens=2, completion_tokens=4, latency_s=0.25, ending="length"
    )
    assert line == "Request r: length, 3 prompt tokens (2 cached), 4 new tokens, 0.250 s, top_k=5"


def test_setup_prints_the_process_the_level_and_nothing_below_it(capsys) -> None:
    before = LOGGER.handlers[:], LOGGER.level, LOGGER.propagate
    try:
        setup("warning", "scheduler")
        setup("warning", "scheduler")  # a second call must not print everything twice
        logging.getLogger("ramet").info("hidden")
        logging.getLogger("ramet").warning("shown")
    finally:
        LOGGER.handlers[:], LOGGER.propagate = before[0], before[2]
        LOGGER.setLevel(before[1])
    (line,) = capsys.readouterr().err.splitlines()
    assert "scheduler" in line and "WARNING" in line and line.endswith("shown")
