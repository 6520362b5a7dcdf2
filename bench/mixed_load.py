"""A small model of a day's requests: every kind that a server receives, drawn from a seed.

Decides what each kind of request asks and how its client behaves (reads everything, disconnects early, opens a new
connection). Measures nothing. Cached values are drawn from small sets, so that a long run fills the caches.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import aiohttp
import orjson

WORDS = ["river", "stone", "cloud", "tree", "house", "light", "water", "night", "garden", "road", "bird", "song"]
HEADS = 8  # different system messages that chats share
SCHEMAS = 16  # different constraints
SHORT, LONG = (4, 40), (200, 600)  # words of a prompt
REPLY_CHARS = 500  # of a reply that was not expected, which are kept
LEFT_AFTER = 3  # pieces of a stream that a client reads before it disconnects

Body = dict[str, Any]


class MixedRequest(NamedTuple):
    path: str
    body: Body | None  # None: a GET
    leaves: bool = False  # whether the client disconnects after the first pieces of the stream
    statuses: tuple[int, ...] = (200,)  # the expected statuses


def words(draw: random.Random, lengths: tuple[int, int] = SHORT) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(*lengths)))


def sampling(draw: random.Random) -> Body:
    return {"max_new_tokens": draw.randint(4, 48), "temperature": draw.choice((0.0, 0.8))}


def text(draw: random.Random) -> MixedRequest:
    return MixedRequest("/generate", {"text": words(draw), "sampling_params": sampling(draw)})


def long_text(draw: random.Random) -> MixedRequest:
    return MixedRequest("/generate", {"text": words(draw, LONG), "sampling_params": sampling(draw)})


def several(draw: random.Random) -> MixedRequest:
    return MixedRequest("/generate", {"text": words(draw), "sampling_params": {**sampling(draw), "n": 3}})


def scored(draw: random.Random) -> MixedRequest:
    more = {"return_logprob": True, "top_logprobs_num": 4}
    return MixedRequest("/generate", {"text": words(draw), "sampling_params": sampling(draw), **more})


def constrained(draw: random.Random) -> MixedRequest:
    number = draw.randrange(SCHEMAS)
    schema = {"type": "object", "properties": {f"field_{number}": {"type": "integer"}}, "required": [f"field_{number}"]}
    params = {**sampling(draw), "json_schema": orjson.dumps(schema).decode()}
    return MixedRequest("/generate", {"text": words(draw), "sampling_params": params})


def stopped(draw: random.Random) -> MixedRequest:
    params = {**sampling(draw), "stop": draw.sample(WORDS, k=2), "frequency_penalty": 0.5}
    return MixedRequest("/v1/completions", {"model": "default", "prompt": words(draw), **_as_completion(params)})


def chat(draw: random.Random) -> MixedRequest:
    messages = [{"role": "system", "content": f"You are helper {draw.randrange(HEADS)} of this house."}]
    messages.append({"role": "user", "content": words(draw)})
    body = {"model": "default", "messages": messages, "max_tokens": draw.randint(4, 48), "stream": True}
    return MixedRequest("/v1/chat/completions", body)


def left(draw: random.Random) -> MixedRequest:
    params = {"max_new_tokens": 400, "ignore_eos": True}
    return MixedRequest("/generate", {"text": words(draw), "sampling_params": params, "stream": True}, leaves=True)


def stored(draw: random.Random) -> MixedRequest:
    return MixedRequest("/v1/responses", {"model": "default", "input": words(draw), "max_output_tokens": 16})


def counted(draw: random.Random) -> MixedRequest:
    return MixedRequest("/v1/tokenize", {"model": "default", "prompt": words(draw)})


def wrong(draw: random.Random) -> MixedRequest:
    body = {"text": words(draw), "sampling_params": {"top_p": 1 + draw.random()}}
    return MixedRequest("/generate", body, statuses=(400,))


def scraped(_: random.Random) -> MixedRequest:
    return MixedRequest("/metrics", None)


def watched(_: random.Random) -> MixedRequest:
    return MixedRequest("/v1/loads", None)


KINDS: dict[Callable[[random.Random], MixedRequest], int] = {  # the number of each kind in a hundred requests
    text: 20, chat: 20, long_text: 6, several: 5, scored: 6, constrained: 8, stopped: 8, left: 8, stored: 5,
    counted: 5, wrong: 4, scraped: 3, watched: 2,
}  # fmt: skip
NEW_CONNECTION = 0.2  # the share of requests that open a connection of their own


def _as_completion(params: Body) -> Body:
    return {("max_tokens" if name == "max_new_tokens" else name): value for name, value in params.items()}


class MixedLoad:
    """Requests to one server at a mean rate, at most `most` at once.

    The load begins with a peak of `most` requests, so that memory which a peak leaves in use (such as prepared steps
    for each number of rows) is in use from then on.
    """

    def __init__(self, url: str, rate: float, seed: int, most: int = 64) -> None:
        self._url, self._rate, self._draw, self._most = url, rate, random.Random(seed), most
        self._free = asyncio.Semaphore(most)
        self.answered: Counter[str] = Counter()  # by kind
        self.failed: Counter[str] = Counter()  # by kind and the status or error that was returned instead
        self.replies: dict[str, str] = {}  # the first reply of each of `failed`

    async def run(self, seconds: float) -> None:
        """Returns when the last request has ended."""
        loop = asyncio.get_running_loop()
        ends_s, open_tasks = loop.time() + seconds, set[asyncio.Task[None]]()
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(self._url, connector=connector, timeout=timeout) as session:
            num = 0
            while loop.time() < ends_s:
                await self._free.acquire()
                num += 1
                (kind,) = self._draw.choices(list(KINDS), weights=list(KINDS.values()))
                task = asyncio.create_task(self._one(session, kind.__name__, kind(self._draw)))
                open_tasks.add(task)
                task.add_done_callback(open_tasks.discard)
                if num >= self._most:
                    await asyncio.sleep(self._draw.expovariate(self._rate))
            await asyncio.gather(*open_tasks)

    async def _one(self, session: aiohttp.ClientSession, kind: str, asked: MixedRequest) -> None:
        headers = {"Connection": "close"} if self._draw.random() < NEW_CONNECTION else {}
        method, data = ("GET", None) if asked.body is None else ("POST", orjson.dumps(asked.body))
        try:
            reply = b""
            async with session.request(method, asked.path, data=data, headers=headers) as response:
                if asked.leaves and response.status in asked.statuses:
                    for _ in range(LEFT_AFTER):
                        await response.content.readany()
                    response.close()
                else:
                    reply = await response.read()
            if response.status in asked.statuses:
                self.answered[kind] += 1
            else:
                self._fails(f"{kind}: {response.status}", reply.decode(errors="replace"))
        except aiohttp.ClientError as error:
            self._fails(f"{kind}: {type(error).__name__}", str(error))
        finally:
            self._free.release()

    def _fails(self, what: str, reply: str) -> None:
        self.failed[what] += 1
        self.replies.setdefault(what, reply[:REPLY_CHARS])
