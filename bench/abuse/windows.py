"""One window beside the streams: with a client, with burners, or with the streams alone. Knows no shape.

Burners replace a client: one process for the server, one for the tokenizer, one for what renders its chats, one for
what works for its constraints and one for the client, each of which burns what that process has used for the bodies of
the client's window, in as many pieces in as many seconds. The one for constraints has their processes' niceness. What
the streams cost the server and the tokenizer for each token is known from a window without a client, and is not burnt.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from ramet.bench.abuse import burner, client
from ramet.bench.abuse.burner import Burn, Burnt
from ramet.bench.abuse.client import Attack, Attacked
from ramet.bench.abuse.load import PROBE_S, RENDERER, TOKENIZER, AbuseLoad, probing, readers_cpu
from ramet.bench.abuse.ready import ServerReady
from ramet.bench.connections import ConnectionWindow, Streams, settled, window
from ramet.bench.server import CONSTRAINTS

CLIENT = "client"
SLIGHT_CLIENT = "client of slight bodies"  # beside burners (beside.py)
NICENESS_OF = {CONSTRAINTS: 10}  # at least; as runtime/workers/subordinate.py has it
CALM_WITHIN_S = 30.0  # the server must have ended what a client left
CALM_S = 0.25  # of an answer of /health
IDLE_SHARE = 0.1  # of a core: the streams send no texts
IDLE_OVER_S = 0.2


class Beside(NamedTuple):
    """One window, and what the readers used in it."""

    window: ConnectionWindow
    health_s: list[float]
    cpu_s: dict[str, float]  # by role
    num_tokens: int  # of the streams
    answers: dict[str, Attacked | Burnt]  # of the processes that worked

    @property
    def seconds(self) -> float:
        return self.window.end - self.window.start

    @property
    def attacked(self) -> Attacked | None:
        """None: no client attacked."""
        found = self.answers.get(CLIENT)
        return found if isinstance(found, Attacked) else None

    @property
    def burnt_s(self) -> dict[str, float]:
        return {name: found.cpu_s for name, found in self.answers.items() if isinstance(found, Burnt)}


async def beside(load: AbuseLoad, streams: Streams, asked: Mapping[str, Attack | Burn]) -> Beside:
    """A window in which a process works for each of these, once the server is calm."""
    starting = asyncio.gather(*map(_ready, asked.values()))
    processes, _ = await asyncio.gather(starting, asyncio.sleep(load.settle_s))
    await calm(load)
    before, num_tokens = readers_cpu(load.pid), streams.num_tokens
    for process in processes:
        process.go()
    async with probing(load.url) as health:
        ending = asyncio.gather(*(asyncio.to_thread(process.answer) for process in processes))
        spanned = await window(load.pid, load.window_s)
        answers = await ending  # late replies continue past the window, and so do the probes
    spanned = spanned._replace(end=max(spanned.end, time.perf_counter()))
    cpu_s = {role: used - before[role] for role, used in readers_cpu(load.pid).items()}
    return Beside(
        spanned, health, cpu_s, streams.num_tokens - num_tokens, dict(zip(asked, answers, strict=True))
    )  # fmt: skip


async def _ready(asked: Attack | Burn) -> ServerReady[Any]:
    if isinstance(asked, Attack):
        return await asyncio.to_thread(partial(ServerReady, client.MODULE, asked, Attacked))
    return await asyncio.to_thread(partial(ServerReady, burner.MODULE, asked, Burnt))


async def calm(load: AbuseLoad) -> None:
    """Wait until nothing is left to do of the window before, or for CALM_WITHIN_S."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CALM_WITHIN_S), probing(load.url) as health:
            await settled(load.url, load.streams)
            while not health or health[-1] > CALM_S or await _tokenising(load.pid):
                await asyncio.sleep(PROBE_S)


async def _tokenising(pid: int) -> bool:
    """Whether texts that a client left behind are still being tokenised or rendered."""
    before = readers_cpu(pid)
    await asyncio.sleep(IDLE_OVER_S)
    used = readers_cpu(pid)
    return sum(used[role] - before[role] for role in (TOKENIZER, RENDERER)) > IDLE_SHARE * IDLE_OVER_S


def burns_of(one: Beside, alone: Beside) -> dict[str, Burn]:
    """What burners have to do in the place of the client of this window. `alone`: a window with nothing of its work."""
    assert one.attacked is not None, "no client attacked, so there is nothing to burn"
    tokens = one.num_tokens / max(1, alone.num_tokens)
    used = {role: max(0.0, one.cpu_s[role] - alone.cpu_s[role] * tokens) for role in one.cpu_s}
    num = max(1, one.attacked.num_sent)
    seconds = {**used, CLIENT: one.attacked.cpu_s}
    return {role: Burn(cpu_s, num, one.seconds, NICENESS_OF.get(role, 0)) for role, cpu_s in seconds.items()}
