"""How the server process ends if the engine never sends its limits: with its exit code, or with the error."""

import asyncio
from pathlib import Path

import pytest

from ramet.ipc import paths
from ramet.ipc.channel import Sender
from ramet.ipc.message import Message
from ramet.ipc.messages import Drain, PeerDied
from ramet.ipc.paths import SocketFolder
from ramet.runtime.config import make_args
from ramet.runtime.server import process


async def served_until(folder: SocketFolder, message: Message) -> int:
    """The exit code of a server whose first message is `message`."""
    args = make_args(runner="scripted", port=0)
    listener = process.bind(args.serve)
    sender = Sender(folder.address(paths.SERVER))
    try:
        return await process._serve(args, folder, listener, lambda: sender.send(message))
    finally:
        sender.close()
        listener.close()


@pytest.mark.parametrize(("message", "code"), [(Drain(1.0), 0), (PeerDied("scheduler", -9), 1)])
def test_a_server_that_never_got_its_limits_ends_with_its_code(message: Message, code: int) -> None:
    folder = SocketFolder.create()
    try:
        assert asyncio.run(asyncio.wait_for(served_until(folder, message), 120)) == code
    finally:
        folder.remove()


def test_what_goes_wrong_at_the_start_is_what_is_raised(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    async def start(folder: SocketFolder) -> None:
        args = make_args(runner="scripted", port=0)
        with process.bind(args.serve) as listener:
            await process._serve(args, folder, listener, fail)

    folder = SocketFolder.create()
    try:
        with pytest.raises(OSError, match="No space left"):
            asyncio.run(start(folder))
    finally:
        folder.remove()
