"""What one reply may hold."""

import asyncio
import gc

import pytest

from ramet.runtime.engine_client.prompt import MAX_NUMBERS
from ramet.runtime.engine_client.submission import Submission
from ramet.runtime.errors import ClientError


def test_a_reply_that_grows_too_large_ends_with_an_error():
    async def check() -> None:
        submission = Submission(streaming=False, arrival_s=0.0)
        submission.num_open = 2
        submission.hold(MAX_NUMBERS)
        assert submission.error is None
        submission.hold(1)
        with pytest.raises(ClientError, match=f"more than {MAX_NUMBERS}"):
            await submission.finished()

    asyncio.run(check())


def test_a_gathering_that_is_given_up_leaves_nothing_to_log() -> None:
    logged: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
        never = asyncio.get_running_loop().create_future()
        submission = Submission(False, 0.0)
        asking = asyncio.ensure_future(submission.during(asyncio.gather(never)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        for _ in range(3):
            await asyncio.sleep(0)
        del never
        gc.collect()

    asyncio.run(main())
    assert logged == []
