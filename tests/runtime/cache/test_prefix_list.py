"""The list of prefixes: what is copied for whom, what it costs in memory, and that nothing is copied for nobody."""

import numpy as np
from drawing import ids

from ramet.runtime.cache.prefix import Lease, PageAllocator, PrefixCache
from ramet.runtime.cache.prefix_list import ListCache, make_cache


def cache_of(*texts: str, pages: int = 40) -> ListCache:
    """Each text was computed by a request that has ended."""
    cache = make_cache("list", PageAllocator(pages, 1), True)
    assert isinstance(cache, ListCache)
    for text in texts:
        run(cache, text)
    return cache


def run(cache: PrefixCache, text: str) -> list[tuple[list[int], list[int]]]:
    """A request from its admission to its end. Returns what was copied for it."""
    tokens = ids(text)
    lease, prefix = cache.acquire(tokens, ())
    own = cache.allocate(len(tokens) - lease.length)
    assert own is not None
    copies = [(source.tolist(), target.tolist()) for source, target in cache.take_copies()]
    cache.release(cache.publish(lease, tokens, np.concatenate([prefix, own]))[0])
    return copies


def entries(cache: ListCache) -> list[str]:
    return [bytes(node.run.astype(np.uint8)).decode() for node in cache.tree.nodes()]


def test_what_two_sequences_share_is_kept_twice():
    cache = cache_of("hello-world", "hello-there")
    assert entries(cache) == ["hello-world", "hello-there"]
    assert cache.tree_tokens == 22


def test_the_longest_prefix_of_any_entry_is_copied():
    cache = cache_of("abXXX", "abcdY")
    second = next(node.slots.tolist() for node in cache.tree.nodes() if len(node.run) and node.run[2] == ord("c"))
    [(source, target)] = run(cache, "abcdZ")
    assert source == second[:4] and not set(target) & set(source)


def test_a_request_extends_its_own_entry():
    cache = cache_of()
    lease, _ = cache.acquire(ids("abc"), ())
    slots = cache.allocate(6)
    lease, _ = cache.publish(lease, ids("abc"), slots[:3])
    lease, _ = cache.publish(lease, ids("abcdef"), slots)
    assert entries(cache) == ["abcdef"] and lease.length == 6 == cache.tree.locked_tokens


def test_a_copy_that_nobody_needs_is_not_made():
    cache = cache_of("abcdef")
    lease, _ = cache.acquire(ids("abcxyz"), ())
    assert entries(cache) == ["abcdef", "abc"]
    cache.release(lease)  # the request was refused: memory is short
    assert entries(cache) == ["abcdef"] and cache.take_copies() == [] and cache.free_tokens == 34


def test_without_memory_for_a_copy_nothing_is_found():
    cache = cache_of("abcdefgh", pages=10)
    assert cache.peek(ids("abcdefghi"), ()) == 8
    lease, prefix = cache.acquire(ids("abcdefghi"), ())
    assert lease.length == len(prefix) == 0
    assert cache.allocate(9) is not None  # the entry goes, and the request can run


def test_a_shortened_lease_publishes_nothing_more():
    cache = cache_of()
    lease, _ = cache.acquire(ids("abcdef"), ())
    slots = cache.allocate(6)
    lease, _ = cache.publish(lease, ids("abcdef"), slots)
    shorter = cache.shorten(lease, ids("abcd"))
    cache.release(lease)
    kept, duplicates = cache.publish(shorter, ids("abcdZZZ"), np.arange(7, dtype=np.int32))
    assert kept == shorter == Lease(4, (), shorter.node) and not len(duplicates)
    assert entries(cache) == ["abcdef"] and cache.tree.locked_tokens == 6


def test_namespaces_are_kept_apart():
    cache = cache_of("abcdef")
    assert cache.peek(ids("abcdef"), ("other",)) == 0


def test_switched_off_it_is_no_list():
    assert not make_cache("list", PageAllocator(4, 1), False).enabled


def test_what_several_find_is_what_each_finds_and_nothing_of_it_is_leased_for_them():
    cache = cache_of("hello-world", "hello-there")
    lease, _ = cache.acquire_all(ids("hello-world"), ())
    found = cache.peek_each(ids("hello-"), [ids("wor"), ids("there"), ids("you")], ())
    assert found == ([9, 11, 6], 0)
    cache.release(lease)


def test_a_tree_counts_what_others_lease_of_several_once():
    cache = make_cache("tree", PageAllocator(40, 1), True)
    for text in ("hello-world", "hello-there"):
        run(cache, text)
    lease, _ = cache.acquire_all(ids("hello-wo"), ())
    found = cache.peek_each(ids("hell"), [ids("o-world"), ids("o-there"), ids("o-you")], ())
    assert found == ([11, 11, 6], 8)
    cache.release(lease)
