"""What runs the calls of programs: one interface, and a record of what each service can do.

Decides how a call looks to a backend and what its answer holds. A backend lives on one event loop, `loop`, on which all
of its coroutines run; programs reach it through the executor alone.
"""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ramet.frontend.backends.held import HeldPrefixes
from ramet.frontend.choices import token_length_normalized
from ramet.frontend.errors import Unsupported
from ramet.frontend.ir import Begin, Expr, Gen, Held, Media, Select
from ramet.frontend.loop import check_wait, language_loop
from ramet.frontend.media import check_file
from ramet.frontend.prompt import Prompt
from ramet.ipc.loop_thread import LoopThread
from ramet.ipc.params import SamplingParams
from ramet.ipc.waits import waited

OnText = Callable[[str], None]  # gets each new piece of an output's text
_HELD: "weakref.WeakKeyDictionary[object, HeldPrefixes]" = weakref.WeakKeyDictionary()
CACHED_S = 60.0  # of a prefix whose reader is not known
NEUTRAL = SamplingParams()  # a parameter with this value asks for nothing


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a service can do. A program that asks for more is refused by name, before any call of that node."""

    completion: bool = True  # goes on with any text
    chat: bool = True  # reads turns
    continues: bool = True  # goes on inside a turn that has text already
    any_turn: bool = True  # goes on in any turn, and reads text outside of turns; else in the assistant's alone
    roles: frozenset[str] | None = None  # turns that it reads; None: all of ir.ROLES
    held: frozenset[str] = frozenset()  # kinds of ir.Held: regex, json_schema, ebnf, structural_tag
    dtype: bool = True  # gen(dtype=...)
    select: Literal["scored", "drawn", ""] = "scored"  # by log-probabilities of each choice; the model names one; not
    sampling: frozenset[str] | None = None  # names of ipc/params.py that are honoured; None: all
    options: frozenset[str] | None = None  # other fields of gen() that are honoured; None: all
    most_stops: int | None = None
    media: frozenset[str] = frozenset()  # image, video, audio
    num_frames: bool = True  # of a film are chosen by the program
    prefixes: bool = False  # holds a prefix on demand (`hold`)
    follow_ups: bool = False  # keeps for a moment what a program goes on with
    contexts: bool = False  # computes parallel contexts apart from each other
    thoughts: bool = True  # separates them
    renders: bool = False  # gives a chat as the text that its model reads

    @property
    def media_roles(self) -> frozenset[str] | None:
        """Turns that may have media; None: all, and what is outside of turns."""
        return None if self.any_turn else frozenset({"user"})


class PromptPlace(NamedTuple):
    """Where in its prompt a call stands. `role`: of the open turn, "" outside of turns."""

    role: str = ""
    has_turns: bool = False
    turn_has_text: bool = False
    text_outside: bool = False  # beside turns, as far as it is known yet


class CallFollowUp(NamedTuple):
    """Whose next call goes on where a call ends: one state of a program. `kind`: which function it runs."""

    program: str
    state: int
    kind: str = ""


class GenCall(NamedTuple):
    """One call of the model, complete: the run's defaults are in it. `follow_up`: it is expected."""

    sampling: Mapping[str, Any]  # by the names of ipc/params.py, checked
    options: Mapping[str, Any] = {}  # other fields of /generate
    held: Held | None = None
    kind: type | None = None  # what `dtype` asked for
    thoughts: str | None = None  # see ir.Gen
    follow_up: CallFollowUp | None = None

    @property
    def num_samples(self) -> int:
        return int(self.sampling.get("n", 1))


class SelectCall(NamedTuple):
    choices: tuple[str, ...]
    method: Any  # a name of choices.METHODS, or a ChoicesSamplingMethod
    temperature: float
    options: Mapping[str, Any] = {}
    follow_up: CallFollowUp | None = None


@dataclass(slots=True)
class Completion:
    """One output. `text` is what is appended to the prompt."""

    text: str
    meta: dict[str, Any] = field(default_factory=dict)  # as /generate has it: finish_reason, prompt_tokens, ...
    thought: str | None = None  # where thoughts were to be separated


@dataclass(slots=True)
class SelectedChoice:
    index: int
    meta: dict[str, Any] = field(default_factory=dict)


class Backend(ABC):
    """One service. `name` stands in errors."""

    name: str
    capabilities: Capabilities
    reads_files = True  # those of media

    @property
    def loop(self) -> LoopThread:
        """Where its coroutines run."""
        return language_loop()

    @property
    def service(self) -> object:
        """Which other backends may be the same service, in this process."""
        return self

    @property
    def prefix_holds(self) -> HeldPrefixes:
        """The prefixes that the service holds for this process."""
        return _HELD.setdefault(self.service, HeldPrefixes())

    @abstractmethod
    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None = None) -> list[Completion]:
        """`call.num_samples` outputs. `on_text`: of the first one, as it grows. Raises BackendError and ClientError."""

    async def select(self, prompt: Prompt, call: SelectCall) -> SelectedChoice:
        """Raises BackendError and ClientError."""
        raise Unsupported(self.name, "select", "has no scores of texts")

    async def hold(self, prompt: Prompt, seconds: float) -> None:
        """Compute the prompt now and keep it for that long; 0: no longer. Only with `capabilities.prefixes`."""
        raise Unsupported(self.name, "a hint", "holds no prefixes")

    def cache_prefix(self, prefix: str, seconds: float = CACHED_S) -> None:
        """Compute a text now and keep it in the prefix cache for that long. Only with `capabilities.prefixes`."""
        self.compute_prefix(Prompt().extended(prefix), seconds)

    def compute_prefix(self, prompt: Prompt, seconds: float = CACHED_S) -> None:
        """The same of a prompt with turns."""
        check_wait(self.loop)
        waited(self.loop.start(self.prefix_holds.keep(self.hold, prompt, seconds)))

    async def end(self, programs: list[str]) -> None:
        """They make no further call. Only with `capabilities.follow_ups`."""
        raise Unsupported(self.name, "a hint", "keeps nothing for programs")

    async def render(self, prompt: Prompt) -> str:
        """The text that the model reads. Only with `capabilities.renders`."""
        raise Unsupported(self.name, "the text of a chat", "does not show what its model reads")

    async def flush_cache(self) -> None:
        """Forget every cached prefix."""
        raise Unsupported(self.name, "flush_cache", "has no cache that can be flushed")

    async def server_info(self) -> dict[str, Any]:
        """What the server says of itself: its model, options, limits, counters."""
        raise Unsupported(self.name, "get_server_info", "does not tell of itself")

    async def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give back what it holds: connections, files."""

    def check_gen(self, node: Gen, sampling: Mapping[str, Any], place: PromptPlace) -> None:
        """Raises Unsupported for what this service does not do. `sampling`: the node's own, and the run's defaults."""
        can, what = self.capabilities, f"gen({node.name!r})" if node.name else "gen"
        if node.kind is not None:
            if not can.dtype:
                self._refuse(what, f"has no outputs of dtype {node.kind.__name__}")
        elif node.held is not None and node.held.kind not in can.held:
            self._refuse(what, f"cannot keep an output to {node.held.kind}")
        if node.thoughts is not None and not can.thoughts:
            self._refuse(what, "does not separate thoughts")
        self._check_place(what, place)
        for name, value in sampling.items():
            of_dtype = name == "stop" and node.kind is not None  # the values of types end by themselves
            if not self.honours(name) and value != getattr(NEUTRAL, name) and not of_dtype:
                self._refuse(f"{what}: {name}", "has no such parameter")
        for name in node.options:
            if can.options is not None and name not in can.options:
                self._refuse(f"{what}: {name}", "has no such parameter")
        stops = () if node.kind is not None else sampling.get("stop", ())
        if can.most_stops is not None and len(stops) > can.most_stops:
            self._refuse(f"{what}: stop", f"takes at most {can.most_stops} texts, and here are {len(stops)}")

    def honours(self, name: str) -> bool:
        """Whether a sampling parameter is sent."""
        return self.capabilities.sampling is None or name in self.capabilities.sampling

    def check_select(self, node: Select, place: PromptPlace) -> None:
        can, what = self.capabilities, f"select({node.name!r})" if node.name else "select"
        if not can.select:
            self._refuse(what, "has no choice between texts")
        if can.select == "drawn" and node.method != token_length_normalized:
            self._refuse(
                what, "names a choice and gives no scores, which a choices_method other than the default reads"
            )
        for name in node.options:
            known = self.honours(name) if name == "sampling_seed" else can.options is None or name in can.options
            if not known:
                self._refuse(f"{what}: {name}", "has no such parameter")
        if node.temperature > 0 and not self.honours("temperature"):
            self._refuse(f"{what}: temperature", "has no such parameter")
        self._check_place(what, place)

    def check_turn(self, turn: Begin) -> None:
        """Raises Unsupported."""
        if self.capabilities.roles is not None and turn.role not in self.capabilities.roles:
            self._refuse(f"a turn of {turn.role}", f"reads turns of {', '.join(sorted(self.capabilities.roles))} only")

    def _check_place(self, what: str, place: PromptPlace) -> None:
        can = self.capabilities
        if not place.has_turns and not can.completion:
            self._refuse(what, f"takes chats only: call {what.partition('(')[0]} inside assistant()")
        if place.has_turns and not can.chat:
            self._refuse(what, "reads no turns of a chat")
        if place.has_turns and not can.any_turn:
            if place.role != "assistant":
                here = f"a turn of {place.role}" if place.role else "no turn"
                self._refuse(what, f"writes turns of the assistant only, and here is {here}")
            if place.text_outside:
                self._refuse(what, "reads no text outside of turns: put it inside system() or user()")
        if place.turn_has_text and not can.continues:
            fact = "cannot go on inside a turn that has text already"
            self._refuse(what, f"{fact}; with @function(num_api_spec_tokens=N) one call makes the whole turn")

    def check_media(self, node: Media, place: PromptPlace) -> None:
        """Raises Unsupported, and ClientError for a file that is not there."""
        can = self.capabilities
        if node.kind not in can.media:
            self._refuse(node.kind, f"takes no {node.kind} input")
        if can.media_roles is not None and place.role not in can.media_roles:
            here = f"a turn of {place.role}" if place.role else "no turn"
            takes = f"takes media in turns of {', '.join(sorted(can.media_roles))} only"
            self._refuse(node.kind, f"{takes}, and here is {here}")
        if "num_frames" in node.options and not can.num_frames:
            self._refuse("video: num_frames", "has no such parameter")
        if self.reads_files and not isinstance(node.source, Expr):
            check_file(node.kind, node.source)

    def _refuse(self, what: str, why: str) -> None:
        raise Unsupported(self.name, what, why)
