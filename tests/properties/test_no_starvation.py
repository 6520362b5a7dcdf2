"""Nobody waits for ever, whatever arrives behind it: better prefixes, higher priorities, without end."""

from bench_top import BenchTop
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.runtime.scheduler.policy import AGED_EVERY

MAX_WAIT_S = 5.0
HEAD = list(range(40))  # what newcomers share, and what is in the tree
POLICIES = ("lpm", "dfs-weight", "fcfs", "lof", "random")
Newcomer = tuple[int, int, int]  # priority, tokens of HEAD, new tokens
NEWCOMERS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, len(HEAD)), st.integers(1, 3)), min_size=1, max_size=8)


class Stream:
    """A scheduler for which there is always something better to do."""

    def __init__(self, top: BenchTop, newcomers: list[Newcomer]) -> None:
        self.top, self._newcomers, self._num = top, newcomers, 0

    def turn(self) -> None:
        while len(self.top.scheduler.waiting) < 12:
            self._num += 1
            priority, shared, num_new = self._newcomers[self._num % len(self._newcomers)]
            uid = 1000 + self._num
            self.top.add(uid, [*HEAD[:shared], 90, uid % 90], num_new + 8, priority=priority)
            self.top.scheduler.receive(block=False)
        self.top.clock.advance(0.05)
        self.top.turn()


@given(
    st.sampled_from(POLICIES),
    st.integers(1, 3),
    NEWCOMERS,
    st.lists(st.integers(-2, 2), max_size=3),
    st.integers(0, 80),
)
@examples(12, 200)
def test_an_overdue_request_is_admitted_after_a_bounded_number_of_others(
    policy: str, rows: int, newcomers: list[Newcomer], older: list[int], before: int
) -> None:
    top = BenchTop(total=400, rows=rows, schedule_policy=policy, max_wait_s=MAX_WAIT_S, deep_checks=False)
    stream = Stream(top, newcomers)
    for _ in range(before):
        stream.turn()
    num_older = len(top.scheduler.waiting) + rows + len(older)  # those that run may be retracted
    for uid, priority in enumerate(older, 2):
        top.add(uid, [91, uid], 2, priority=priority)
        top.clock.advance(0.01)
    top.add(1, [92, 93, 94], 2, priority=-1)
    arrived_s, overdue_at = top.clock(), None
    bound = (num_older + 1) * (AGED_EVERY + rows)
    while 1 not in top.opened:
        stream.turn()
        if overdue_at is None and top.clock() - arrived_s > MAX_WAIT_S:
            overdue_at = len(top.opened)
        assert overdue_at is None or len(top.opened) - overdue_at <= bound, (policy, top.scheduler.where(1))
