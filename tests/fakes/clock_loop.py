"""An event loop whose clock a test moves forward: deadlines of a minute pass at once, and nobody sleeps."""

import asyncio


class ClockLoop(asyncio.SelectorEventLoop):
    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def forward(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClockLoop)
    loop.ahead_s += seconds
