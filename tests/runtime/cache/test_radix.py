"""Drawings of the radix tree: split, share, lock, evict, and the nine steps of the paper's Figure 6."""

import numpy as np
from drawing import draw, drawing, ids
from effort import num_lines
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.runtime.cache.radix import RadixTree


def tree_of(*texts: str, page_size: int = 1) -> RadixTree:
    tree, slot = RadixTree(page_size), 0
    for text in texts:
        tree.insert(ids(text), np.arange(slot, slot + len(text), dtype=np.int32))
        slot += len(text)
    return tree


def test_sharing_splits_an_edge_where_it_differs():
    assert draw(tree_of("hello-world", "hello-there")) == drawing("""
        hello-
          there
          world
    """)


def test_match_returns_the_slots_of_the_first_inserter():
    tree = tree_of("abcd", "abxy")
    _, slots = tree.match(ids("abxyz"))
    assert slots.tolist() == [0, 1, 6, 7]


def test_insert_tells_how_much_was_there():
    tree = tree_of("abcd")
    assert tree.insert(ids("abef"), np.arange(4, dtype=np.int32))[1] == 2
    assert tree.insert(ids("ab"), np.arange(2, dtype=np.int32))[1] == 2


def test_match_length_changes_nothing():
    tree = tree_of("abcd")
    before = draw(tree)
    assert tree.match_length(ids("abzz")) == 2
    assert draw(tree) == before


def test_split_keeps_locks():
    tree = tree_of("abcd")
    node, _ = tree.match(ids("abcd"))
    tree.lock(node)
    tree.insert(ids("abxy"), np.arange(4, dtype=np.int32))
    assert draw(tree) == drawing("""
        ab *
          cd *
          xy
    """)
    tree.unlock(node)
    assert draw(tree) == drawing("""
        ab
          cd
          xy
    """)
    assert tree.locked_tokens == 0 and tree.evictable_tokens == 6


def test_pages_are_never_cut():
    tree = tree_of("aaaabbbb", "aaaabbxx", page_size=4)
    assert draw(tree) == drawing("""
        aaaa
          bbbb
          bbxx
    """)
    assert tree.match_length(ids("aaaabbb")) == 4


def test_eviction_takes_the_least_recently_used_leaf_first():
    tree = tree_of("axx", "ayy", "azz")
    tree.match(ids("axx"))
    freed = tree.evict(2)
    assert sorted(np.concatenate(freed).tolist()) == [4, 5]  # "yy"
    assert draw(tree) == drawing("""
        a
          xx
          zz
    """)


def test_eviction_takes_no_more_than_it_must():
    tree = tree_of("abcdefgh", page_size=1)
    freed = tree.evict(3)
    assert np.concatenate(freed).tolist() == [5, 6, 7]
    assert draw(tree) == "abcde" and tree.evictable_tokens == 5
    paged = tree_of("abcdefgh", page_size=4)
    assert np.concatenate(paged.evict(1)).tolist() == [4, 5, 6, 7]  # a page is the least
    assert draw(paged) == "abcd" and paged.match_length(ids("abcdefgh")) == 4


def test_what_somebody_waits_for_is_evicted_after_all_else():
    tree = tree_of("axx", "ayy", "azz")
    node = tree.want(ids("axxx"))
    tree.match(ids("ayy"))
    tree.match(ids("azz"))
    assert sorted(np.concatenate(tree.evict(4)).tolist()) == [4, 5, 7, 8]  # "yy" and "zz"
    assert draw(tree) == drawing("""
        a
          xx
    """)
    tree.unwant(node)
    assert not any(each.wanted for each in tree.nodes())
    assert sum(map(len, tree.evict(3))) == 3


def test_nobody_waits_any_longer_for_what_is_used_again_in_its_turn():
    tree = tree_of("axx", "ayy")
    tree.unwant(tree.want(ids("axx")))
    tree.match(ids("ayy"))
    assert np.concatenate(tree.evict(2)).tolist() == [1, 2]  # "xx", which was used before "yy"


def test_half_an_edge_may_be_waited_for():
    tree = tree_of("abcd", "xy")
    node = tree.want(ids("abzz"))
    tree.match(ids("abcd"))
    assert [freed.tolist() for freed in tree.evict(4)] == [[4, 5], [2, 3]]  # "xy", then "cd"
    tree.insert(ids("abe"), np.arange(10, 13, dtype=np.int32))
    tree.unwant(node)
    assert not any(each.wanted for each in tree.nodes())


def test_what_was_waited_for_and_evicted_leaves_no_count_behind():
    tree = tree_of("abcd")
    first, second = tree.want(ids("ab")), tree.want(ids("abcd"))
    tree.evict(2)
    assert draw(tree) == "ab"
    tree.insert(ids("xx"), np.arange(20, 22, dtype=np.int32))
    tree.insert(ids("ay"), np.arange(30, 32, dtype=np.int32))  # splits what both have waited for
    tree.unwant(second)
    assert [each.wanted for each in tree.nodes()].count(1) == 2  # "a" and "b" of the first
    tree.unwant(first)
    assert not any(each.wanted for each in tree.nodes())


def test_a_locked_path_survives_any_eviction():
    tree = tree_of("abc", "abd", "x")
    node, _ = tree.match(ids("abc"))
    tree.lock(node)
    tree.evict(100)
    assert draw(tree) == drawing("""
        ab *
          c *
    """)
    assert tree.evictable_tokens == 0


def test_namespaces_share_nothing():
    tree = RadixTree(1)
    tree.insert(ids("abc"), np.arange(3, dtype=np.int32), ("a",))
    assert tree.match_length(ids("abc"), ("b",)) == 0
    assert tree.match_length(ids("abc"), ("a", "")) == 0
    assert tree.match_length(ids("abc"), ("a",)) == 3


def test_forgotten_namespaces_leave_nothing_behind():
    tree = RadixTree(1)
    for i in range(100):
        tree.insert(ids("abc"), np.arange(3, dtype=np.int32), (str(i),))
        tree.evict(3)
    assert not list(tree.nodes()) and not tree._roots


def test_the_heap_of_leaves_does_not_grow_without_eviction():
    tree = tree_of("abc", "abd")
    for _ in range(10_000):
        node, _ = tree.match(ids("abc"))
        tree.lock(node)
        tree.unlock(node)
    assert len(tree._order) < 200


def test_figure_6_of_the_paper_in_nine_steps():
    """Two chats, a batch of few-shot questions and a self-consistency sampling; memory ends at steps 5, 8 and 9."""
    tree, next_slot = RadixTree(1), 0

    def serve(text: str) -> None:
        nonlocal next_slot
        tree.insert(ids(text), np.arange(next_slot, next_slot + len(text), dtype=np.int32))
        next_slot += len(text)

    # (1) empty
    assert draw(tree) == ""

    # (2) prompt and answer of the first chat are one edge
    serve("system;u:hello;a:hi;")
    assert draw(tree) == drawing("""
        system;u:hello;a:hi;
    """)

    # (3) its second turn hangs below
    serve("system;u:hello;a:hi;u:story;a:once;")
    assert draw(tree) == drawing("""
        system;u:hello;a:hi;
          u:story;a:once;
    """)

    # (4) a second chat shares the system prompt: node b splits
    serve("system;v:what;a:not;")
    assert draw(tree) == drawing("""
        system;
          u:hello;a:hi;
            u:story;a:once;
          v:what;a:not;
    """)

    # (5) the second chat goes on; node c, the least recently used leaf, is evicted for it
    tree.evict(len("u:story;a:once;"))
    serve("system;v:what;a:not;v:now;a:yes;")
    assert draw(tree) == drawing("""
        system;
          u:hello;a:hi;
          v:what;a:not;
            v:now;a:yes;
    """)

    # (6) a few-shot question shares nothing with the chats
    serve("examples;q:1;A")
    assert draw(tree) == drawing("""
        examples;q:1;A
        system;
          u:hello;a:hi;
          v:what;a:not;
            v:now;a:yes;
    """)

    # (7) a batch of more questions with the same examples: node e splits
    serve("examples;q:2;B")
    serve("examples;q:3;C")
    assert draw(tree) == drawing("""
        examples;q:
          1;A
          2;B
          3;C
        system;
          u:hello;a:hi;
          v:what;a:not;
            v:now;a:yes;
    """)

    # (8) the first chat speaks again; all of the second chat (g and h) is what was used longest ago
    node, _ = tree.match(ids("system;u:hello;a:hi;"))
    tree.lock(node)
    tree.evict(len("v:now;a:yes;") + len("v:what;a:not;"))
    serve("system;u:hello;a:hi;u:bye;a:ciao;")
    tree.unlock(node)
    assert draw(tree) == drawing("""
        examples;q:
          1;A
          2;B
          3;C
        system;
          u:hello;a:hi;
            u:bye;a:ciao;
    """)

    # (9) more answers to question 2 are sampled; for them the other questions and the last turn go (i, k and l)
    tree.match(ids("examples;q:2;B"))  # the answer it has is one of those asked for
    node, _ = tree.match(ids("examples;q:2;"))
    tree.lock(node)
    tree.evict(len("1;A") + len("3;C") + len("u:bye;a:ciao;"))
    for answer in ("X", "Y", "Z"):
        serve("examples;q:2;" + answer)
    tree.unlock(node)
    assert draw(tree) == drawing("""
        examples;q:
          2;
            B
            X
            Y
            Z
        system;
          u:hello;a:hi;
    """)


BEGINNINGS = st.text("ab", max_size=6)


@given(st.lists(BEGINNINGS, max_size=6), BEGINNINGS, st.lists(BEGINNINGS, max_size=4), st.sampled_from([1, 2]))
@examples(60, 2000)
def test_to_match_several_that_begin_alike_is_to_match_each(
    known: list[str], before: str, afters: list[str], page_size: int
):
    tree = tree_of(*(text[: len(text) - len(text) % page_size] for text in known), page_size=page_size)
    before = before[: len(before) - len(before) % page_size]
    found = tree.match_lengths(ids(before), [ids(after) for after in afters], ())
    assert found == [tree.match_length(ids(before + after)) for after in afters]


def test_what_is_dropped_is_found_no_more_and_goes_before_any_leaf():
    tree = tree_of("abcd", "abxy", "qr")
    kept, _ = tree.match(ids("abcd"))
    tree.lock(kept)
    tree.drop_unlocked()
    assert (tree.match_length(ids("abcd")), tree.match_length(ids("abxy")), tree.match_length(ids("qr"))) == (4, 2, 0)
    tree.insert(ids("qr"), np.array([20, 21], dtype=np.int32))
    tree.match(ids("qr"))
    assert tree.evictable_tokens == 2 + 2 + 2
    assert sorted(np.concatenate(tree.evict(4)).tolist()) == [6, 7, 8, 9]
    assert not tree.dropped and tree.match_length(ids("qr")) == 2


def test_nodes_that_are_dropped_are_removed_some_at_a_time_however_many_a_node_has_below_it():
    def lines_of_each(num: int) -> float:
        tree = tree_of("a")
        for at in range(num):
            tree.insert(np.array([97, 1000 + at], dtype=np.int32), np.array([0, 10 + at], dtype=np.int32))
        tree.drop_unlocked()
        lines = num_lines(lambda: tree.take_dropped(10))
        assert tree.num_nodes == num - 9  # the one above all of them counts
        return lines

    assert lines_of_each(4000) == lines_of_each(40)
