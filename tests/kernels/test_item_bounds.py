"""What the CPU kernel takes for granted about the items it is given."""

from ramet.kernels.reference_cut import MAX_MEMBERS, MIN_PIECE


def test_every_query_of_an_item_sees_a_key_in_each_of_its_pieces():
    """The queries of an item end up to MAX_MEMBERS - 1 keys before it does, and the kernel divides by their sums.

    A last piece no longer than that would hold no key for the first query.
    """
    assert MIN_PIECE > MAX_MEMBERS
