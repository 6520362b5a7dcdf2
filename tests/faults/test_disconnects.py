"""Many streams at once, half of which hang up at random moments: the others finish right and nothing is left behind."""

import asyncio
import json
import random
from collections.abc import Iterator

import aiohttp
import psutil
import pytest
from live import Live
from samples import slow

PROMPTS = ["Hello", "The moon", "One two three", "Grüße aus", "def f(x):", "Paris is", "a b c d e f", "2 + 2 ="]
NUM_NEW = 24


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(max_total_tokens=60000, dtype="float32", check_invariants=True, max_running_requests=128) as live:
        yield live


async def read_whole(session: aiohttp.ClientSession, url: str, prompt: str) -> str:
    """A stream read to its end."""
    body = {"text": prompt, "stream": True, "sampling_params": sampling(NUM_NEW)}
    text, reason = "", None
    async with session.post(url + "/generate", json=body) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                text, reason = event["text"], event["meta_info"]["finish_reason"]
    assert reason == {"type": "length", "length": NUM_NEW}
    return text


async def hang_up(session: aiohttp.ClientSession, url: str, prompt: str, after: int) -> None:
    """A stream of thousands of tokens, left after `after` lines (0: before its headers)."""
    body = {"text": prompt, "stream": True, "sampling_params": sampling(3900)}
    if after == 0:
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.05):
                async with session.post(url + "/generate", json=body) as response:
                    await response.content.read()
        return
    async with session.post(url + "/generate", json=body) as response:
        for _ in range(after):
            await response.content.readline()
        response.close()


def sampling(num_new: int) -> dict[str, object]:
    return {"temperature": 0, "max_new_tokens": num_new, "ignore_eos": True}


async def one_round(server: Live, expected: dict[str, str], streams: int, seed: int) -> None:
    rng = random.Random(seed)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(120)) as session:
        jobs, wanted = [], []
        for i in range(streams):
            prompt = PROMPTS[i % len(PROMPTS)]
            if i % 2:
                jobs.append(hang_up(session, server.url, prompt, rng.choice([0, 1, 2, 5, 20, 41])))
            else:
                jobs.append(read_whole(session, server.url, prompt))
            wanted.append(None if i % 2 else expected[prompt])
        assert list(await asyncio.gather(*jobs)) == wanted


def settle(server: Live) -> int:
    """Scheduler steps until nothing runs any more, from now on."""
    state = server.state()
    first = state["steps"]
    while state["running_requests"] or state["waiting_requests"]:
        assert state["steps"] - first < 50, state
        state = server.state()
    assert state["leased_tokens"] == 0 == state["owned_tokens"]
    return state["steps"] - first


def footprint(server: Live) -> dict[str, tuple[int, int]]:
    """Resident bytes and open files of every process."""
    return {role: (p.memory_info().rss, p.num_fds()) for role, p in server.children().items()}


@pytest.mark.parametrize("streams", [64, slow(256)])
def test_disconnects_harm_nobody_and_leave_nothing_over_three_rounds(server: Live, streams: int):
    expected = {p: server.generate(text=p, sampling_params=sampling(NUM_NEW)).json()["text"] for p in PROMPTS}
    prints: list[dict[str, tuple[int, int]]] = []
    for seed in range(3):
        asyncio.run(one_round(server, expected, streams, seed))
        settle(server)
        prints.append(footprint(server))
    for role, (rss, fds) in prints[-1].items():
        assert fds <= prints[0][role][1] + 2, (role, prints)
        assert rss < prints[0][role][0] + 24e6, (role, prints)
    assert all(psutil.pid_exists(child.pid) for child in server.children().values())
