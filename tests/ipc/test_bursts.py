"""Other tasks of the server run between messages that arrive together."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ramet.ipc.channel import BURST, BURST_BYTES, AsyncReceiver, Sender
from ramet.ipc.messages import Detokenized

NUM = 3 * BURST


@pytest.mark.parametrize(("num_bytes", "at_once"), [(8, BURST), (BURST_BYTES // 2, 2), (2 * BURST_BYTES, 1)])
def test_a_burst_ends_after_some_messages_or_after_their_bytes(tmp_path: Path, num_bytes: int, at_once: int) -> None:
    async def main() -> None:
        inbox: AsyncReceiver[Any] = AsyncReceiver(address := f"ipc://{tmp_path}/in", Detokenized)
        sender, got, turns = Sender(address), list[int](), 0

        async def tick() -> None:
            nonlocal turns
            while len(got) < NUM:
                turns += 1
                await asyncio.sleep(0)

        for call in range(NUM):
            sender.send(Detokenized(call, "a" * num_bytes))
        reading = asyncio.ensure_future(inbox.deliver_to(lambda message: got.append(turns)))
        await tick()
        reading.cancel()
        most = max(got.count(turn) for turn in set(got))
        assert len(got) == NUM and most <= at_once
        sender.close()
        inbox.close()

    asyncio.run(main())
