"""The trie of choices holds what every choice needs, and no token twice."""

from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.runtime.language.trie import Trie, TrieLeaf

IDS = st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple)
EACH = st.lists(IDS, min_size=1, max_size=8)


def test_only_leaves_are_computed_each_from_where_it_leaves_the_one_before() -> None:
    trie = Trie.of([(1, 2, 3), (1, 2), (1, 4, 5), (1, 2)])
    assert trie.leaves == [TrieLeaf((1, 2, 3), 0), TrieLeaf((1, 4, 5), 1)]
    assert trie.choices == [0, 2]
    assert trie.ways == [(0, 3), (0, 2), (1, 3), (0, 2)]


def test_behind_every_leaf_something_is_computed() -> None:
    trie = Trie.of([(1, 2), (1,), (3,)], behind=(9,))
    assert trie.leaves == [TrieLeaf((1, 2, 9), 0), TrieLeaf((3, 9), 0)]
    assert trie.ways == [(0, 2), (0, 1), (1, 1)]


@examples(200, 2000)
@given(EACH, st.sampled_from([(), (0,), (9,)]))
def test_every_choice_is_read_from_a_leaf_that_begins_with_it(each: list[tuple[int, ...]], behind: tuple[int, ...]):
    trie = Trie.of(each, behind)
    computed: list[tuple[int, ...]] = []  # of each leaf: what it shares with the one before, and its own
    known: tuple[int, ...] = ()
    for leaf in trie.leaves:
        assert known[: leaf.start] == leaf.ids[: leaf.start] and leaf.start < len(leaf.ids) - len(behind)
        known = known[: leaf.start] + leaf.ids[leaf.start :]
        computed.append(known)
    for ids, (leaf, length) in zip(each, trie.ways, strict=True):
        assert computed[leaf][:length] == ids and len(computed[leaf]) >= length + len(behind)
    nodes = {ids[:i] for ids in each for i in range(1, len(ids) + 1)}
    num = sum(len(leaf.ids) - leaf.start for leaf in trie.leaves)
    assert num == len(nodes) + len(behind) * len(trie.leaves)  # each node once
    for at, first in enumerate(trie.choices):
        assert first == min(i for i, (leaf, _) in enumerate(trie.ways) if leaf == at)
