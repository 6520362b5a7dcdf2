"""Which prefixes that are being computed are worth waiting for."""

from itertools import takewhile

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.ipc.message import Uid
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.unpublished import MIN_SHARED, UnpublishedPrefixes
from tests.fakes.specs import make_spec

LENGTHS = st.integers(1, 2 * MIN_SHARED)


@st.composite
def prompts(draw: st.DrawFn) -> list[int]:
    """The same beginning, then an end of its own."""
    return [7] * draw(LENGTHS) + [draw(st.integers(8, 9))] * draw(st.integers(0, 3))


def num_shared(one: list[int], other: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@examples(30, 1000)
@given(st.lists(prompts(), max_size=4), prompts(), st.integers(0, 3))
def test_a_prompt_waits_for_as_much_as_it_shares_with_any_other(
    computing: list[list[int]], asked: list[int], matched: int
) -> None:
    unpublished = UnpublishedPrefixes(page_size=1)
    running = [
        Request(Uid(uid), np.array(ids, dtype=np.int32), make_spec(max_new_tokens=1), seed=0)
        for uid, ids in enumerate(computing, 1)
    ]
    unpublished.add([(request, ()) for request in running])
    shared = max((num_shared(ids, asked[:-1]) for ids in computing), default=0) - matched
    found = unpublished.worth_waiting(np.array(asked, dtype=np.int32), (), matched)
    assert found == (shared if shared >= MIN_SHARED else 0)
