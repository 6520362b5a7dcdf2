"""What somebody who looks is told: the tree, who leases what, why requests wait. And what looking does not change."""

from typing import Any

import msgspec
import pytest
from bench_top import BenchTop

from ramet.ipc.control import HoldRequests, MatchPrefix, ReadNode, Unwatch, Watch
from ramet.ipc.live import LiveState, NodeTokens, PrefixFound
from ramet.ipc.messages import pack_ids
from ramet.runtime.cache.watched import TreeWatch

SHARED = list(range(40))


def asked(top: BenchTop, kind: Any, answer: Any, **more: Any) -> Any:
    top.control(kind, **more)
    top.turn()
    reply = top.replies[-1]
    return msgspec.json.decode(reply.body, type=answer) if reply.ok else reply.body


def look(top: BenchTop, begins: bool = True) -> LiveState:
    return asked(top, Watch, LiveState, begins=begins)


def run(top: BenchTop, uid: int, prompt: list[int], num_new: int = 1, **more: Any) -> None:
    top.add(uid, prompt, num_new, **more)
    top.run()


@pytest.fixture
def top() -> BenchTop:
    return BenchTop()


def test_a_shared_prefix_is_shown_once_with_two_children(top: BenchTop):
    run(top, 1, [*SHARED, 50, 51, 52])
    run(top, 2, [*SHARED, 60, 61])
    told = look(top).tree
    (above,) = (row for row in told.nodes if row.parent == 0)
    below = [row for row in told.nodes if row.parent == above.id]
    assert above.tokens == 40 and sorted(row.tokens for row in below) == [2, 3] and told.num_nodes == 3


def test_an_eviction_removes_a_node(top: BenchTop):
    run(top, 1, SHARED)
    (row,) = look(top).tree.nodes
    top.scheduler.control.flush()
    top.turn()
    told = look(top, begins=False).tree
    assert told.removed == [row.id] and told.num_nodes == 0 and not told.nodes


def test_a_part_that_is_evicted_leaves_a_shorter_node(top: BenchTop):
    run(top, 1, SHARED)
    (row,) = look(top).tree.nodes
    top.scheduler.cache._evict(15)
    (left,) = look(top, begins=False).tree.nodes
    assert left.id == row.id and left.tokens == 25


def test_only_what_has_changed_is_told_again(top: BenchTop):
    run(top, 1, SHARED)
    run(top, 2, [90, 91, 92])
    assert len(look(top).tree.nodes) == 2 and look(top, begins=False).tree.nodes == []
    run(top, 3, [90, 91, 92, 93])
    assert sorted(row.tokens for row in look(top, begins=False).tree.nodes) == [1, 3]


def test_a_running_request_is_where_its_lease_ends(top: BenchTop):
    run(top, 1, SHARED)
    top.add(7, [*SHARED, 50], 20, priority=2)
    top.turn()
    top.clock.advance(3.0)
    seen = look(top)
    (row,) = seen.running
    leased = next(node for node in seen.tree.nodes if node.id == row.node)
    assert (row.uid, row.state, row.priority, row.prompt_tokens, row.cached_tokens) == (7, "running", 2, 41, 40)
    assert row.age_s == 3.0 and row.computed_tokens >= 41 and row.output_tokens >= 1 and leased.locks == 1


def test_a_waiting_request_says_why():
    top = BenchTop(rows=1)
    top.add(1, SHARED, 50)
    top.turn()
    top.add(2, [80, 81], 5)
    top.turn()
    seen = look(top)
    (row,) = seen.waiting
    assert row.uid == 2 and row.state == "waiting" and "--max-running-requests" in row.reason
    assert seen.num_waiting == 1 and seen.reasons == {"rows": 1, "grammar": 0}


def test_a_request_that_waits_for_other_weights_is_told():
    top = BenchTop()
    top.control(HoldRequests, after_s=-1.0)
    top.add(1, SHARED, 50)
    top.turn()
    (row,) = look(top).waiting
    assert row.uid == 1 and "other weights" in row.reason
    top.control(HoldRequests, after_s=None)
    assert not any("other weights" in row.reason for row in look(top).waiting)


def test_those_beyond_the_rows_are_counted_by_reason():
    top = BenchTop(rows=1, deep_checks=False)
    for uid in range(1, 402):
        top.add(uid, [uid % 90], 9)
    top.turn()
    seen = look(top)
    assert len(seen.waiting) == 256 and seen.num_waiting == 400 and sum(seen.reasons.values()) == 400


def test_a_lease_of_a_client_is_told_with_its_end(top: BenchTop):
    run(top, 1, SHARED, prefix_lease_s=60)
    seen = look(top)
    (lease,) = seen.leases
    assert (lease.kind, lease.tokens, lease.ends_s) == ("client", 40, 60.0) and seen.num_leases == 1
    assert next(node for node in seen.tree.nodes if node.id == lease.node).locks == 1


def test_no_change_is_noted_while_nobody_looks(top: BenchTop):
    assert top.scheduler.cache.tree.watch is None
    look(top)
    assert top.scheduler.cache.tree.watch is not None
    asked(top, Unwatch, dict)
    assert top.scheduler.cache.tree.watch is None


def test_a_watch_that_nobody_takes_from_ends(top: BenchTop):
    watch = TreeWatch(top.scheduler.cache.tree, max_nodes=4)
    for uid in range(1, 20):
        run(top, uid, [uid, uid + 1])
    assert not watch.is_on and len(watch._changed) <= 17


def test_a_search_says_how_much_is_cached_and_where(top: BenchTop):
    run(top, 1, [*SHARED, 50, 51, 52])
    run(top, 2, [*SHARED, 60, 61])
    told = look(top).tree
    found = asked(top, MatchPrefix, PrefixFound, ids=pack_ids([*SHARED, 50, 51, 77]))
    lengths = {row.id: row.tokens for row in told.nodes}
    assert (found.num_tokens, found.cached_tokens, found.reused_tokens) == (43, 42, 42)
    assert [(lengths[number], common) for number, common in found.path] == [(40, 40), (3, 2)]


def test_a_search_leaves_the_order_of_use_as_it_is(top: BenchTop):
    run(top, 1, SHARED)
    run(top, 2, [90, 91])
    before = [(node.used, len(node.run)) for node in top.scheduler.cache.tree.nodes()]
    asked(top, MatchPrefix, PrefixFound, ids=pack_ids(SHARED[:20]))
    assert [(node.used, len(node.run)) for node in top.scheduler.cache.tree.nodes()] == before


def test_the_tokens_of_a_node_are_read_by_its_number(top: BenchTop):
    run(top, 1, SHARED)
    (row,) = look(top).tree.nodes
    assert asked(top, ReadNode, NodeTokens, node=row.id) == NodeTokens(SHARED, 40)
    assert b"no such node" in asked(top, ReadNode, NodeTokens, node=row.id + 1)
