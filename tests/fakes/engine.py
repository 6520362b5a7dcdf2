"""An engine without processes: it answers a server's messages as tokenizer, scheduler and detokenizer together would.

Every message crosses the real wire format. Two modes: `auto` runs one step after the other by itself; otherwise a test
drives it with `step`. Tokens and texts follow formulas, so a test knows what must come.
"""

import asyncio
import os
import random
import time
from array import array
from collections.abc import Callable
from typing import Any

import msgspec
import orjson

from ramet.ipc.channel import Codec, encode
from ramet.ipc.control import (
    ContinueGeneration,
    Control,
    ControlReply,
    GetState,
    HoldRequests,
    LocateSequences,
    MatchPrefix,
    PauseGeneration,
    PlaceWeights,
    ReadNode,
    ReadWeights,
    ReleaseMemory,
    ResumeMemory,
    StartProfile,
    StopProfile,
    Unwatch,
    Watch,
)
from ramet.ipc.errors import ErrorRecord
from ramet.ipc.live import LiveState, NodeRow, NodeTokens, PrefixFound, SequenceRow, TreeChanges
from ramet.ipc.message import Message
from ramet.ipc.messages import (
    Abort,
    CallRefused,
    ChatTurn,
    ChoicesReply,
    Closed,
    ContextGroup,
    Detokenize,
    Detokenized,
    Finish,
    FinishKind,
    Generate,
    HiddenStates,
    Limits,
    Logprobs,
    MediaPlace,
    Opened,
    PromptReply,
    Rejected,
    Render,
    RenderChoices,
    RenderPrompt,
    RenderReply,
    Segment,
    Tokenize,
    Tokenized,
    TokenStep,
    ToScheduler,
    ToServer,
    ToTokenizer,
    pack_ids,
    unpack_ids,
)
from ramet.ipc.spec import HiddenMode, PoolingTask
from ramet.ipc.times import PrefillChunk, SequenceTimes, Span

VOCAB = 512
HIDDEN = 4
LIMITS = Limits(
    context_length=1024, max_total_tokens=4096, vocab_size=VOCAB, max_running_requests=8, hidden_size=HIDDEN
)
PIECES = ("Hi", "", " wörld", "🙂", "\n", ' "quoted" ', "日本", "\u0000")
TAIL = "…"  # what only the end makes certain
CACHED = 3
EOS = 2


def floats(values: list[float]) -> bytes:
    return array("f", values).tobytes()


def token_at(uid: int, i: int) -> int:
    return (uid * 7 + i) % VOCAB


def piece_at(uid: int, i: int) -> str:
    return PIECES[(uid + i) % len(PIECES)]


def text_of(uid: int, num: int) -> str:
    return "".join(piece_at(uid, i) for i in range(num)) + TAIL


def prompt_length(message: Generate) -> int:
    if message.content.embeds is not None:
        return len(message.content.embeds) // (4 * HIDDEN)
    return len(units_of(message))


def units_of(message: Generate) -> list[int]:
    """The prompt as numbers: its ids, or the bytes of its text."""
    content = message.content
    return unpack_ids(content.ids) if content.ids is not None else list((content.text or "").encode())


def state_of(message: Generate) -> list[float]:
    """The hidden state that is told of a prompt, for its last token as for the mean."""
    units = units_of(message)
    return [float(units[0] % 8), float(units[-1] % 8), float(len(units)), 1.0]


def logprob_of(message: Generate, token: int) -> float:
    """Of any token after a prompt."""
    return -(1 + (token + units_of(message)[-1]) % 5) / 2


def pieces_of(text: str, seed: int) -> list[str]:
    """The text in pieces of up to nine characters, some of them empty: an output for `FakeEngine.says`."""
    draw, pieces = random.Random(seed), list[str]()
    while text:
        size = draw.randint(0, 9)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def cut_somewhere(engine: "FakeEngine", text: str, seed: int) -> int:
    """Let the engine say this text in pieces, with some tail; how many of them one output gets."""
    draw = random.Random(seed)
    engine.says = [*pieces_of(text, seed), ""]
    engine.tail = draw.choice(("", "", "…", "</think>and", '"}}</tool_call>'))
    return draw.choice((len(engine.says), draw.randint(1, len(engine.says))))


def rendered(chat: dict[str, Any]) -> str:
    """A chat as this engine's template writes it."""
    return "".join(f"{message['role']}:{_shown(message.get('content'))}\n" for message in chat["messages"])


def _shown(content: Any) -> Any:
    """Of a chat with media, whose parts are texts and kinds."""
    if not isinstance(content, list) or all("text" in part for part in content):
        return content
    return "".join(part.get("text", f"<{part['type']}>") for part in content)


def score_at(units: list[int], i: int, token: int) -> float:
    """Log-probability of a token in the place of a prompt's i-th."""
    return -(1 + (token + units[i - 1]) % 5) / 2


def joined(segments: list[Segment]) -> str:
    """A prompt of the language as this engine writes it."""
    texts = list[str]()
    for segment in segments:
        match segment:
            case ChatTurn(role, content):
                texts.append(f"{role}:{joined(list(content))}\n"[: -1 if segment.open else None])
            case ContextGroup(contexts):
                texts += contexts
            case MediaPlace(kind):
                texts.append(f"<{kind.value}>")
            case str():
                texts.append(segment)
    return "".join(texts)


def live_state(nodes: list[NodeRow], begins: bool = True, waiting: tuple[SequenceRow, ...] = ()) -> LiveState:
    tokens = sum(node.tokens for node in nodes)
    tree = TreeChanges(begins, nodes, [], [], True, len(nodes), tokens, 0, 1)
    return LiveState(tree, 0, len(waiting), 0, [], list(waiting), {each.reason: 1 for each in waiting}, [])


class Door:
    """An outbox of the server whose messages the engine reads."""

    def __init__(self, engine: "FakeEngine", union: Any, worker: int) -> None:
        self._engine, self._codec, self._worker = engine, Codec[Any](union), worker

    def send(self, message: Message) -> None:
        self._engine.receive(self._codec.decode(encode(message)), self._worker)


class FakeEngine:
    def __init__(self, auto: bool = True, workers: int = 1) -> None:
        self.auto, self.is_paused = auto, False
        self.tokenizers = [Door(self, ToTokenizer, worker) for worker in range(workers)]
        self.scheduler = Door(self, ToScheduler, -1)
        self.sent: list[tuple[int, Any]] = []  # (tokenizer worker or -1, message)
        self.running: dict[int, Generate] = {}
        self.made: dict[int, int] = {}  # uid -> tokens so far
        self.came: dict[int, Span] = {}  # uid -> as if it had been tokenised then
        self.begun: dict[int, tuple[float, float]] = {}  # uid -> when its first step began and ended
        self.num_labels = HIDDEN  # of a classifier: so many numbers of a state are its own
        self.flush_ok = True
        self.weights_error = ""  # why weights cannot be read
        self.memory_error = ""  # why memory cannot be released or resumed
        self.auto_answer = True  # to Control
        self.state_body = b'{"running_requests": 0, "steps": 1}'
        self.live = live_state([])  # what whoever looks is told
        self.deliver: Any = None
        self.tokenize: Callable[[str], list[int]] = lambda text: list(text.encode())
        self.bos: int | None = None  # before every text that is tokenised with special tokens
        self.says: list[str] | None = None  # pieces of every output, which then stops by itself; None: the formula's
        self.prompt_end = ""  # of every rendered chat
        self.answers_renders = True
        self.tail = ""  # of every output that says something
        self.stop = Finish(FinishKind.STOP, matched=EOS)  # of every output that stops by itself
        self._codec: Codec[Any] = Codec(ToServer)
        self._turning = False
        self._watchers: list[tuple[type, int, asyncio.Future[None]]] = []

    async def saw(self, kind: type, times: int = 1) -> list[Any]:
        """The messages of this type, when that many have come."""
        if len(self.of_type(kind)) < times:
            watcher = asyncio.get_running_loop().create_future()
            self._watchers.append((kind, times, watcher))
            await watcher
        return self.of_type(kind)

    def tell(self, message: Message) -> None:
        self.deliver(self._codec.decode(encode(message)))

    def of_type(self, kind: type) -> list[Any]:
        return [message for _, message in self.sent if isinstance(message, kind)]

    def receive(self, message: Any, worker: int) -> None:
        self.sent.append((worker, message))
        for kind, times, watcher in self._watchers:
            if not watcher.done() and len(self.of_type(kind)) >= times:
                watcher.set_result(None)
        loop = asyncio.get_running_loop()
        match message:
            case Generate() if "REJECT" in (message.content.text or ""):
                error = ErrorRecord("text", "has 9999 tokens, must have at most 1023")
                loop.call_soon(self.tell, Rejected(message.uids, error))
            case Generate():
                for uid in message.uids:
                    self.running[uid], self.made[uid] = message, 0
                    self.came[uid] = Span(os.getpid(), time.monotonic(), time.monotonic())
                self._start()
            case Abort() if self.auto:
                loop.call_soon(self.abort, message.uids, message.message)
            case Tokenize():
                text = message.text if message.pair is None else f"{message.text}|{message.pair}"
                bos = [self.bos] if self.bos is not None and message.add_special_tokens else []
                loop.call_soon(self.tell, Tokenized(message.call, pack_ids([*bos, *self.tokenize(text)])))
            case Render() if self.answers_renders:
                loop.call_soon(self.render, message)
            case RenderPrompt() if self.answers_renders:
                loop.call_soon(self.render_prompt, message)
            case RenderChoices():
                loop.call_soon(self.render_choices, message)
            case Detokenize():
                ids = unpack_ids(message.ids)
                if max(ids, default=0) > 255:
                    error = ErrorRecord("tokens", "holds an id that is no byte")
                    loop.call_soon(self.tell, CallRefused(message.call, error))
                else:
                    loop.call_soon(self.tell, Detokenized(message.call, bytes(ids).decode("latin-1")))
            case StartProfile() | StopProfile():
                self.tell(ControlReply(message.call, self.flush_ok, b'{"path": "/p", "error": "not now"}'))
            case PauseGeneration() | ContinueGeneration():
                self.is_paused = isinstance(message, PauseGeneration)
                self.tell(ControlReply(message.call, True))
                self._start()
            case ReleaseMemory() | ResumeMemory():
                error = self.memory_error
                self.is_paused = isinstance(message, ReleaseMemory) != bool(error)
                self.tell(ControlReply(message.call, not error, orjson.dumps({"error": error})))
                self._start()
            case ReadWeights() if self.auto_answer:
                error = self.weights_error
                reply = ControlReply(message.call, not error, orjson.dumps({"error": error}))
                loop.call_soon(self.tell, reply)
            case HoldRequests():
                loop.call_soon(self.tell, ControlReply(message.call, True))
            case PlaceWeights():
                self.tell(TokenStep([], b"", weights=message.number))
                loop.call_soon(self.tell, ControlReply(message.call, True, b'{"num_paused_requests": 2}'))
            case _ if isinstance(message, Control) and self.auto_answer:
                loop.call_soon(self.answer, message)

    def render(self, message: Render) -> None:
        chat = orjson.loads(message.chat)
        text = rendered(chat) + self.prompt_end
        if "REJECT" in text:
            self.tell(CallRefused(message.call, ErrorRecord("messages", "has 9999 tokens")))
        else:
            whole = text if message.has_media else ""
            self.tell(RenderReply(message.call, pack_ids(list(text.encode())), text[-64:], whole))

    def render_prompt(self, message: RenderPrompt) -> None:
        text = joined(message.segments)
        if "REJECT" in text:
            self.tell(CallRefused(message.call, ErrorRecord("prompt[0]", "has 9999 tokens")))
        else:
            self.tell(PromptReply(message.call, text + self.prompt_end, pack_ids(list(text.encode()))))

    def render_choices(self, message: RenderChoices) -> None:
        ids, choices = (
            list(joined(message.segments).encode()),
            [pack_ids(list(text.encode())) for text in message.choices],
        )
        self.tell(ChoicesReply(message.call, pack_ids(ids), choices, len(ids), (), pack_ids([EOS]), (EOS,)))

    def step(self, uids: list[int] | None = None) -> None:
        """One token for each of these (all that run), opening and closing as a scheduler would."""
        chosen = [uid for uid in (uids if uids is not None else list(self.running)) if uid in self.running]
        first = [uid for uid in chosen if self.made[uid] == 0]
        began_s = time.monotonic()
        rows = [uid for uid in chosen if self.running[uid].spec.params.max_new_tokens > 0]
        tokens = [token_at(uid, self.made[uid]) for uid in rows]
        texts = [self._piece(uid, self.made[uid]) for uid in rows]
        opened = [self._opened(uid, self.running[uid]) for uid in first]
        scores = [self._scores(uid, token) for uid, token in zip(rows, tokens, strict=True) if self._asks(uid)]
        scores += [lists for uid in first for lists in self._prompt_scores(uid)]
        hidden = [states for uid in first for states in self._states(uid, self.running[uid])]
        for uid in rows:
            self.made[uid] += 1
        for uid in first:
            self.begun.setdefault(uid, (began_s, time.monotonic()))
        stopped = [uid for uid in chosen if self.says is not None and self.made[uid] >= len(self.says)]
        full = [uid for uid in chosen if self.made[uid] >= self.running[uid].spec.params.max_new_tokens]
        closed = [Closed(uid, self.stop, times=self._times(uid)) for uid in stopped]
        for uid in (uid for uid in full if uid not in stopped):
            closed.append(Closed(uid, Finish(FinishKind.LENGTH, length=self.made[uid]), times=self._times(uid)))
        ended = [each.uid for each in closed]
        tails = [self.tail if self.says is not None else TAIL if self.made[uid] else "" for uid in ended]
        for uid in ended:
            del self.running[uid]
        span = Span(os.getpid(), time.monotonic(), time.monotonic()) if closed else None
        self.tell(TokenStep(rows, pack_ids(tokens), opened, closed, scores, hidden, 0, texts, tails, span))

    def _times(self, uid: int) -> SequenceTimes:
        """In the order in which it happened."""
        came, (began_s, ended_s) = self.came.pop(uid), self.begun.pop(uid)
        chunks = (PrefillChunk(began_s, ended_s, 3),) if self.running[uid].traced else ()
        return SequenceTimes(os.getpid(), came.end_s, began_s, ended_s, time.monotonic(), came, chunks)

    def _piece(self, uid: int, i: int) -> str:
        return piece_at(uid, i) if self.says is None else self.says[i]

    def _opened(self, uid: int, message: Generate) -> Opened:
        ids = pack_ids(units_of(message)) if message.spec.returns_prompt else b""
        return Opened(uid, message.spec.detokenize_options, prompt_length(message), CACHED, ids)

    def _asks(self, uid: int) -> bool:
        return self.running[uid].spec.logprobs is not None

    def _scores(self, uid: int, token: int) -> Logprobs:
        """Of an output token and the chosen ones; there are no best ones."""
        message = self.running[uid]
        chosen = [logprob_of(message, each) for each in message.spec.logprobs.ids]
        own, texts = floats([logprob_of(message, token)]), {token: str(token)} if message.spec.logprobs.texts else {}
        return Logprobs(uid, False, pack_ids([token]), own, chosen=floats(chosen), texts=texts)

    def _prompt_scores(self, uid: int) -> list[Logprobs]:
        """Of the tokens of a prompt that is scored and not continued.

        The first, of which nothing is known, comes in a message of its own.
        """
        message, asked = self.running[uid], self.running[uid].spec.logprobs
        if asked is None or asked.start is None or message.spec.params.max_new_tokens:
            return []
        units = units_of(message)
        texts = {token: str(token) for token in units} if asked.texts else {}
        first = Logprobs(uid, True, pack_ids(units[asked.start :][:1]), floats([float("nan")]), texts=texts)
        places = range(asked.start + 1, len(units))
        values = floats([score_at(units, i, units[i]) for i in places])
        chosen = floats([score_at(units, i, token) for i in places for token in asked.ids])
        return [first, Logprobs(uid, True, pack_ids([units[i] for i in places]), values, chosen=chosen)]

    def _states(self, uid: int, message: Generate) -> list[HiddenStates]:
        if message.spec.hidden in (None, HiddenMode.ALL):
            return []
        made = state_of(message)
        if message.spec.pooling_task is PoolingTask.CLASSIFY:
            made = made[: self.num_labels]
        return [HiddenStates(uid, len(made), floats(made))]

    def close(self, uid: int, finish: Finish, tail: str = "") -> None:
        del self.running[uid]
        self.tell(TokenStep([], b"", closed=[Closed(uid, finish)], tails=[tail]))

    def fail(self, uid: int, status: int) -> None:
        self.close(uid, Finish.abort("", "broken", status=status))

    def abort(self, uids: list[int], message: str) -> None:
        for uid in uids:
            if uid in self.running:
                self.close(uid, Finish.abort("", message, status=0))

    def _start(self) -> None:
        if self.auto and not self._turning and not self.is_paused:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        if not self.is_paused:
            self.step()
        self._turning = False
        if self.running:
            self._start()

    def answer(self, message: Control) -> None:
        match message:
            case GetState():
                self.tell(ControlReply(message.call, True, self.state_body))
            case LocateSequences():
                place = {"state": "waiting", "reason": "no memory"}
                located = {"sequences": [place if uid in self.running else None for uid in message.uids]}
                self.tell(ControlReply(message.call, True, orjson.dumps(located)))
            case Watch():
                self.tell(ControlReply(message.call, True, msgspec.json.encode(self.live)))
            case Unwatch():
                self.tell(ControlReply(message.call, True))
            case MatchPrefix():
                ids = unpack_ids(message.ids)
                found = PrefixFound(len(ids), CACHED, CACHED, [(1, CACHED)])
                self.tell(ControlReply(message.call, True, msgspec.json.encode(found)))
            case ReadNode():
                known = message.node == 1
                body = NodeTokens(list(b"Hi"), 2) if known else {"error": "there is no such node"}
                self.tell(ControlReply(message.call, known, msgspec.json.encode(body)))
            case _:
                body = {"flushed": True} if self.flush_ok else {"error": "requests are running"}
                self.tell(ControlReply(message.call, self.flush_ok, orjson.dumps(body)))
