"""The order in which pages are given out."""

import numpy as np
import pytest

from ramet.runtime.cache.prefix import PageAllocator


@pytest.mark.parametrize("order", [[7, 3, 5, 4], [3, 4, 5, 7], [7, 5, 4, 3]])
def test_what_is_freed_at_once_is_given_from_its_lowest_page_on(order: list[int]) -> None:
    pages = PageAllocator(8, 1)
    assert pages.allocate(8).tolist() == list(range(1, 9))  # type: ignore[union-attr]
    pages.free(np.array([1, 2], np.int32))
    pages.free(np.array(order, np.int32))
    assert pages.allocate(5).tolist() == [3, 4, 5, 7, 1]  # type: ignore[union-attr]
    assert pages.num_free == 1
