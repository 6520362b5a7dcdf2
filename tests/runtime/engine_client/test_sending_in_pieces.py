"""A request of many prompts is sent in pieces, between which others are served."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import groupby

import pytest

from ramet.ipc.content import Content
from ramet.ipc.messages import Abort, Generate
from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.access.owner import Owner
from ramet.runtime.config import make_args
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.engine_client.prompt import BYTES_AT_ONCE, SEQUENCES_AT_ONCE, Prompt
from ramet.runtime.errors import ClientError
from ramet.runtime.metrics.table import Metrics
from tests.fakes.engine import LIMITS, FakeEngine
from tests.fakes.specs import make_spec

NUM = 4 * SEQUENCES_AT_ONCE
WORKERS = 2
MANY = [Prompt("many", make_spec(), Content("a"))] * NUM


def asked(check: Callable[[EngineClient, FakeEngine], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = FakeEngine(auto=False, workers=WORKERS)
        client = EngineClient(engine.tokenizers, engine.scheduler, LIMITS, Metrics(), make_args())
        engine.deliver = client.deliver
        await check(client, engine)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("prompts", "pieces"),
    [
        (MANY, [SEQUENCES_AT_ONCE] * 4),
        ([MANY[0]._replace(content=Content("a" * (BYTES_AT_ONCE // 2)))] * 5, [2, 2, 1]),
        ([Prompt("n", make_spec(n=SEQUENCES_AT_ONCE), Content("a"))] * 3, [1, 1, 1]),
        (MANY[:1], [1]),
    ],
)
def test_workers_read_each_piece_before_the_next_is_sent(prompts: list[Prompt], pieces: list[int]) -> None:
    async def check(client: EngineClient, engine: FakeEngine) -> None:
        with client.open(streaming=False) as submission:
            await client.send_in_pieces(prompts, submission)
            kinds = [isinstance(message, Generate) for _, message in engine.sent]
            assert [len(list(each)) for is_prompt, each in groupby(kinds) if is_prompt] == pieces
            assert kinds.count(False) == WORKERS * (len(pieces) - 1)  # a question to each worker

    asked(check)


def test_another_request_is_sent_between_pieces_and_both_count_from_the_start() -> None:
    async def check(client: EngineClient, engine: FakeEngine) -> None:
        with client.open(streaming=False) as many, client.open(streaming=False) as one:
            sending = asyncio.ensure_future(client.send_in_pieces(MANY, many))
            await engine.saw(Generate)
            assert client.num_waiting == NUM + 1
            client.send([Prompt("one", make_spec(), Content("b"))], one)
            await sending
            assert client.num_waiting == NUM + 1
        texts = [message.content.text for message in engine.of_type(Generate)]
        assert texts.index("b") == SEQUENCES_AT_ONCE

    asked(check)


def test_a_request_that_is_ended_while_it_is_sent_sends_no_more() -> None:
    async def check(client: EngineClient, engine: FakeEngine) -> None:
        with pytest.raises(ClientError, match="not wanted"), client.open(streaming=False, rid="many") as many:
            sending = asyncio.ensure_future(client.send_in_pieces(MANY, many))
            await engine.saw(Generate)
            client.abort("many", "not wanted")
            await sending
        assert len(engine.of_type(Generate)) == SEQUENCES_AT_ONCE
        assert sum(len(abort.uids) for abort in engine.of_type(Abort)) >= SEQUENCES_AT_ONCE
        for uid in list(engine.running):
            engine.abort([uid], "")
        assert client.num_open == client.num_waiting == 0

    asked(check)


@pytest.mark.parametrize("name", ["", "key"])
def test_prompts_are_weighed_and_marked_a_piece_at_a_time(name: str) -> None:
    async def check(client: EngineClient, engine: FakeEngine) -> None:
        OWNER.set(Owner(name))
        turns = 0

        async def tick() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        with client.open(streaming=False) as submission:
            sending = asyncio.ensure_future(client.send_in_pieces(MANY, submission))
            await engine.saw(Generate)
            assert turns >= 2 * (NUM // SEQUENCES_AT_ONCE - 1)
            await sending
        ticking.cancel()
        sent = engine.of_type(Generate)
        assert len(sent) == NUM and {each.spec.key_name for each in sent} == {name}

    asked(check)
