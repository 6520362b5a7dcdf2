"""What Stats says of prompts that wait: how many tokens, and how many of them are to be computed."""

from bench_top import BenchTop

SHARED = list(range(16))


def test_tokens_that_wait_are_counted_until_nobody_waits() -> None:
    top = BenchTop(total=64)
    top.add(1, [*SHARED, 40], 40)
    top.turn()
    top.turn()
    top.add(2, [*SHARED, 50, 51], 40)  # there is no memory for its output beside the first one's
    top.add(3, [60, 61, 62], 40)
    top.turn()
    stats = top.reporter.stats()
    assert stats.waiting_requests == 2 and stats.waiting_tokens == 21
    assert stats.waiting_uncached_tokens == 5
    top.abort(3)
    top.turn()
    assert top.reporter.stats().waiting_tokens == 18
    top.run()
    assert top.reporter.stats().waiting_tokens == top.scheduler.waiting.num_tokens == 0


def test_a_prompt_in_chunks_has_tokens_left() -> None:
    top = BenchTop(chunked_prefill_size=8)
    top.add(1, list(range(30)), 2)
    top.turn()
    left = top.reporter.stats().prefill_left_tokens
    assert 0 < left <= 22
    top.run()
    assert top.reporter.stats().prefill_left_tokens == 0
    assert top.reporter.stats().prefill_seconds > 0


def test_a_sequence_that_gave_its_memory_back_waits_as_retracted() -> None:
    top = BenchTop(rows=4, total=64, schedule_conservativeness=0.01)
    for uid in range(1, 5):
        top.add(uid, [uid * 10 + i for i in range(8)], 40)
    retracted = 0
    while len(top.finish) < 4:
        top.turn()
        stats = top.reporter.stats()
        retracted = max(retracted, stats.retracted_requests)
        assert stats.retracted_requests <= stats.waiting_requests
    assert retracted > 0 and top.scheduler.running.num_retractions > 0
