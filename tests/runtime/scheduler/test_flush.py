"""A flush: nothing that was cached is found from its turn on, and the memory of much is free some turns later."""

from bench_top import BenchTop
from hash_runner import expected_output

from ramet.ipc.control import ContinueGeneration, FlushCache, PauseGeneration
from ramet.runtime.cache.prefix import MAX_FREED

NODES = 2 * MAX_FREED + 10
SHARED = [5, 6, 7, 8]


def full_top() -> BenchTop:
    """Each of many prompts has a node of its own in the cache, and nothing runs."""
    top = BenchTop(total=8 * NODES, deep_checks=False, check_invariants=False)
    for uid in range(1, NODES + 1):
        top.add(uid, [*SHARED, uid % 250, uid // 250], 0)
    top.run()
    assert top.scheduler.cache.tree.num_nodes > 2 * MAX_FREED
    top.deep_checks = True
    return top


def test_the_memory_of_a_large_cache_is_free_some_turns_later_when_the_flush_is_answered() -> None:
    top = full_top()
    top.control(FlushCache)
    top.turn()
    turns = 1
    while not top.replies:
        assert not top.scheduler.waits  # for a message
        before = top.scheduler.cache.tree.num_nodes
        top.turn()
        turns += 1
        assert before - top.scheduler.cache.tree.num_nodes <= MAX_FREED
    assert turns == 3 and top.replies[0].ok and top.scheduler.waits
    assert top.reporter.state()["free_tokens"] == 8 * NODES


def test_a_request_that_comes_while_memory_is_freed_runs_and_finds_nothing() -> None:
    top = full_top()
    top.control(FlushCache)
    top.turn()
    top.add(NODES + 1, [*SHARED, 1, 0, 9], 6)
    top.run()
    assert top.opened[NODES + 1].cached_tokens == 0
    assert top.tokens[NODES + 1] == expected_output([*SHARED, 1, 0, 9], 6)


def test_what_a_waiting_request_had_found_is_looked_up_again_after_a_flush() -> None:
    top = BenchTop(total=64)
    top.add(1, [*SHARED, 9], 2)
    top.run()
    top.add(2, [*SHARED, 10], 50)
    top.turn()
    top.add(3, [*SHARED, 9, 11], 50)  # has to wait for memory
    top.turn()
    waiting = top.scheduler.waiting.get(3)
    assert waiting is not None and waiting.match.length
    top.control(PauseGeneration, retract=True)
    top.turn()
    top.control(FlushCache)
    top.turn()
    assert top.replies[-1].ok
    top.control(ContinueGeneration)
    top.turn()
    assert waiting.match.length == 0
    top.run()
    assert top.tokens[3] == expected_output([*SHARED, 9, 11], 50)
