"""What every handler is given: the options, the engine and what the server holds."""

from dataclasses import dataclass, field

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
    defaults: SamplingParams  # sampling parameters that a request leaves out
    started: int  # Unix time in seconds
    pooling: Pooling  # of embeddings whose request names none
    style: Style  # how the model writes tool calls and reasoning
    responses: ResponseStore
    first_tokens: dict[str, int] = field(default_factory=dict)  # word -> id of its first token; filled by lookups
