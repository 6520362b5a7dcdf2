"""What every handler is given, and a line of the table of routes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from ramet.ipc.messages import Limits
from ramet.ipc.params import SamplingParams, shown
from ramet.ipc.paths import SocketFolder
from ramet.runtime.config import Args
from ramet.runtime.engine_client.adapters import AdapterNames
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.engine_client.recording import RequestRecording
from ramet.runtime.engine_client.trace_context import TraceContext
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.chat import Style
from ramet.runtime.metrics.table import Metrics
from ramet.runtime.server.http.response_store import ResponseStore
from ramet.runtime.server.http.session_tree import Sessions
from ramet.runtime.text.labels import Labels
from ramet.runtime.text.pooling import Pooling

ANY_MODEL = "default"  # for clients that must send some name


class Traces(Protocol):
    """Which requests are traced, and where their spans go."""

    def begin(self, path: str, trace: TraceContext, start_s: float) -> RequestRecording | None: ...


class ModelNames(NamedTuple):
    """What a request may call the model, and its adapters."""

    served: str
    first: str  # of the start: weights that are loaded later may bring another
    adapters: AdapterNames


class Served(NamedTuple):
    """What reading a body needs to know: the model as it is served at that moment. It can go to another process."""

    names: ModelNames
    defaults: SamplingParams  # sampling parameters that a request leaves out
    limits: Limits
    style: Style
    processors_on: bool  # requests may bring a logit processor


@dataclass(frozen=True, slots=True)
class Service:
    args: Args
    client: EngineClient
    metrics: Metrics
    defaults: SamplingParams  # sampling parameters that a request leaves out
    started: int  # Unix time in seconds
    pooling: Pooling  # of embeddings whose request names none
    labels: Labels  # of a classifier
    style: Style  # how the model writes tool calls and reasoning
    responses: ResponseStore
    known_ids: dict[str, tuple[int, ...]] = field(default_factory=dict)  # text -> its ids; filled by lookups
    traces: Traces | None = None  # None: nobody is sent any
    heals_unasked: bool = False  # text prompts of /generate that do not say
    sockets: SocketFolder | None = None  # with the rings of the processes; None: there is one process alone
    check_moves: Callable[[], None] = lambda: None  # raises ServerError if a process hangs: see server/liveness.py
    sessions: Sessions = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "sessions", Sessions(int(self.args.serve.sessions_mb * (1 << 20)), self.args.share_per_key)
        )

    @property
    def served(self) -> "Served":
        """What is served now."""
        client, processors_on = self.client, self.args.execute.enable_custom_logit_processor
        names = ModelNames(client.admin.weights.model_name, self.args.model_name, client.admin.adapters)
        return Served(names, self.defaults, client.limits, self.style, processors_on)


@dataclass(slots=True)
class Front:
    """What answers: the service, once there is one."""

    args: Args
    metrics: Metrics
    service: Service | None = None  # None: the engine is starting


class Access(Enum):
    """Who may ask: the key that is needed, and what a page of another site may ask of a server without keys."""

    OPEN = auto()  # anybody, by any name of this server
    SCRAPE = auto()  # the same for monitors; where clients have keys of their own, the admin key
    READ = auto()  # API key; such a page can send the request, but its browser keeps the reply from it
    USE = auto()  # API key; generates, or changes what one client has: refused to such a page
    WATCH = auto()  # admin key; shows what the server does for all; for such a page as READ
    ADMIN = auto()  # admin key; changes the server, or computes what it shows: refused to such a page


class Route(NamedTuple):
    methods: tuple[str, ...]
    handler: Callable[[Service, web.Request], Awaitable[web.StreamResponse]]
    body: Any = None  # struct of the request's body
    reply: Any = None  # type of a whole reply; None: not JSON, or any object
    event: Any = None  # type of an event of a stream, where there is one
    access: Access = Access.USE


class Operation(NamedTuple):
    """What a method does under a name: `tail` follows the name in the path."""

    method: str
    tail: str
    reply: Any


class Named(NamedTuple):
    """A path that ends in a name, which may hold slashes."""

    methods: tuple[str, ...]
    handler: Callable[[Service, web.Request, str], Awaitable[web.StreamResponse]]
    operations: tuple[Operation, ...]
    access: Access = Access.USE


def check_model(service: Service, name: str | None) -> str:
    """The name to answer with. A client may leave it out; another model's name is a 404."""
    names = service.served.names
    if name not in (None, names.served, names.first, ANY_MODEL):
        raise unknown_model(names, name)
    return names.served


class ChosenModel(NamedTuple):
    answered: str  # the name to answer with
    adapter: str | None  # that the name asks for


def read_model(names: ModelNames, name: str | None) -> ChosenModel:
    """As `check_model`, where a name may be that of an adapter, or MODEL:ADAPTER."""
    of_model = (names.served, names.first, ANY_MODEL)
    if name is None or name in of_model:
        return ChosenModel(names.served, None)
    base, has_both, adapter = name.rpartition(":")
    if (has_both and base not in of_model) or adapter not in names.adapters:
        raise unknown_model(names, name)
    return ChosenModel(name, adapter)


def unknown_model(names: ModelNames, name: str | None) -> ClientError:
    fact = f"is {shown(name)}, this server serves {names.served!r}"
    if name in names.adapters.paths:
        fact = f"is {shown(name)}, an adapter, and adapters are not built for this endpoint"
    elif names.adapters.paths:
        fact += f"; {names.adapters.words}"
    return ClientError("model", fact, status=404, code="model_not_found")
