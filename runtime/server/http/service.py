"""What every handler needs to know of its server. Holds, decides nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from ramet.ipc.params import SamplingParams
from ramet.runtime.config import Args
from ramet.runtime.engine_client.handle import EngineHandle
from ramet.runtime.intake.chat import Style
from ramet.runtime.metrics import Metrics
from ramet.runtime.server.http.response_store import ResponseStore
from ramet.runtime.text.pooling import Pooling


@dataclass(frozen=True, slots=True)
class Service:
    args: Args
    client: EngineHandle
    metrics: Metrics
    defaults: SamplingParams  # what a client that names no parameter gets
    started: int  # Unix time in seconds
    pooling: Pooling  # how an embedding is made where its client does not say
    style: Style  # how the model writes tool calls and reasoning
    responses: ResponseStore
    first_tokens: dict[str, int] = field(default_factory=dict)  # of words that were looked up, which never change


Handler = Callable[[Service, web.Request], Awaitable[web.StreamResponse]]
