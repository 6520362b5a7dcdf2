"""What one reply may hold."""

import asyncio

import pytest

from ramet.runtime.engine_client.submission import MOST_NUMBERS, Submission
from ramet.runtime.errors import ClientError


def test_a_reply_that_grows_too_large_ends_with_an_error():
    async def check() -> None:
        submission = Submission(streaming=False, arrival_s=0.0)
        submission.num_open = 2
        submission.hold(MOST_NUMBERS)
        assert submission.error is None
        submission.hold(1)
        with pytest.raises(ClientError, match=f"more than {MOST_NUMBERS}"):
            await submission.finished()

    asyncio.run(check())
