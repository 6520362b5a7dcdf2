"""A client that leaves with thousands of sequences: they end a piece at a time, and others are served in between."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ramet.ipc.content import Content
from ramet.ipc.messages import Abort
from ramet.runtime.config import make_args
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.engine_client.prompt import SEQUENCES_AT_ONCE, Prompt
from ramet.runtime.metrics.table import Metrics
from tests.fakes.engine import LIMITS, FakeEngine
from tests.fakes.specs import make_spec

NUM = 2 * SEQUENCES_AT_ONCE + 3


def asked(check: Callable[[EngineClient, FakeEngine], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = FakeEngine(auto=False)
        client = EngineClient(engine.tokenizers, engine.scheduler, LIMITS, Metrics(), make_args())
        engine.deliver = client.deliver
        await check(client, engine)

    asyncio.run(main())


def pieces(engine: FakeEngine) -> list[int]:
    return [len(message.uids) for message in engine.of_type(Abort)]


def test_a_few_hundred_are_ended_at_each_turn_of_the_event_loop_and_the_first_at_once() -> None:
    async def check(client: EngineClient, engine: FakeEngine) -> None:
        with client.open(streaming=True) as submission:
            client.send([Prompt("many", make_spec(), Content("a"))] * NUM, submission)
            sequences = submission.sequences
        sent = [pieces(engine)]
        for _ in range(4):
            await asyncio.sleep(0)
            sent.append(pieces(engine))
        one, two, three = [SEQUENCES_AT_ONCE], [SEQUENCES_AT_ONCE] * 2, [*[SEQUENCES_AT_ONCE] * 2, 3]
        assert [len(each) for each in sent] == sorted(len(each) for each in sent)
        assert sent[0] == one and two in sent and sent[-1] == three
        assert all(sequence.texts is None for sequence in sequences)
        assert sorted(uid for each in engine.of_type(Abort) for uid in each.uids) == [each.uid for each in sequences]

    asked(check)


def test_what_ends_meanwhile_is_forgotten_and_is_no_error() -> None:
    async def check(client: EngineClient, engine: FakeEngine) -> None:
        with client.open(streaming=False) as submission:
            client.send([Prompt("many", make_spec(), Content("a"))] * NUM, submission)
            uids = [sequence.uid for sequence in submission.sequences]
        engine.abort(uids, "")
        assert client.num_open == client.num_waiting == 0
        for _ in range(4):
            await asyncio.sleep(0)
        assert client.num_open == 0 and pieces(engine) == [SEQUENCES_AT_ONCE]

    asked(check)


@pytest.mark.parametrize("num", [1, SEQUENCES_AT_ONCE])
def test_few_end_before_the_block_is_left(num: int) -> None:
    async def check(client: EngineClient, engine: FakeEngine) -> None:
        with client.submit([Prompt("few", make_spec(), Content("a"))] * num, streaming=False):
            pass
        assert pieces(engine) == [num] and not client.background._tasks

    asked(check)
