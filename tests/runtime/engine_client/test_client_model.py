"""EngineClient under any order of events: texts arrive whole, and counts return to zero."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.ipc.content import Content
from ramet.ipc.errors import ErrorRecord
from ramet.ipc.messages import Abort, Finish, FinishKind, Rejected
from ramet.runtime.config import make_args
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.submission import Submission
from ramet.runtime.errors import RametError
from ramet.runtime.metrics.table import Metrics
from tests.fakes.engine import LIMITS, FakeEngine, piece_at
from tests.fakes.specs import make_spec

# what happens, and a number that chooses whom it happens to
EVENTS = st.lists(
    st.tuples(st.sampled_from(["submit", "step", "read", "leave", "stop", "fail", "reject"]), st.integers(0, 99)),
    max_size=60,
)


@dataclass
class Handler:
    """A request's reader: what it has read so far, by uid."""

    submission: Submission
    block: ExitStack
    texts: dict[int, str] = field(default_factory=dict)
    failed: bool = False

    async def read(self) -> bool:
        """Read what is there without waiting; whether everything has ended."""
        reading = asyncio.ensure_future(self.submission.next())
        await asyncio.sleep(0)
        if not reading.done():
            reading.cancel()
            return False
        try:
            fresh = reading.result()
        except RametError:
            self.failed = True
            return True
        for sequence in fresh:
            texts, tokens = sequence.take()
            assert len(texts) == len(tokens)
            self.texts[sequence.uid] = self.texts.get(sequence.uid, "") + "".join(texts) + sequence.tail
        return not fresh


async def play(events: list[tuple[str, int]]) -> None:
    engine = FakeEngine(auto=False, workers=2)
    client = EngineClient(engine.tokenizers, engine.scheduler, LIMITS, Metrics(), make_args())
    engine.deliver = client.deliver
    handlers: list[Handler] = []
    made: dict[int, int] = {}  # uid -> tokens the engine made while it ran
    stopped: set[int] = set()  # ended with a tail

    def end(uid: int, finish: Finish, tail: str = "") -> None:
        made[uid] = engine.made[uid]
        engine.close(uid, finish, tail)

    for kind, number in events:
        uids = sorted(engine.running)
        uid = uids[number % len(uids)] if uids else 0
        match kind:
            case "submit":
                block = ExitStack()
                prompts = [Prompt("r", make_spec(n=1 + number % 3), Content("a")) for _ in range(1 + number % 2)]
                handlers.append(Handler(block.enter_context(client.submit(prompts, streaming=True)), block))
            case "step":
                engine.step(uids[number % 5 :])
            case "read" if handlers:
                await handlers[number % len(handlers)].read()
            case "leave" if handlers:
                handlers.pop(number % len(handlers)).block.close()
            case "stop" if uids:
                stopped.add(uid)
                end(uid, Finish(FinishKind.STOP, matched="x"), "!")
            case "fail" if uids:
                end(uid, Finish.abort("", "broken", status=500))
            case "reject" if uids and not engine.made[uid]:
                del engine.running[uid]
                engine.tell(Rejected([uid], ErrorRecord("text", "is too long")))
    for uid in sorted(engine.running):
        stopped.add(uid)
        end(uid, Finish(FinishKind.STOP), "!")
    for handler in handlers:
        while not await handler.read():
            pass
        if not handler.failed:
            for sequence in handler.submission.sequences:
                uid = sequence.uid
                assert uid in stopped
                assert handler.texts[uid] == "".join(piece_at(uid, i) for i in range(made[uid])) + "!"
        handler.block.close()
    assert client.num_open == client.num_waiting == 0
    await client.requests.none_left()
    went = {uid for abort in engine.of_type(Abort) for uid in abort.uids}
    assert all(worker >= 0 for worker, message in engine.sent if isinstance(message, Abort)) and went <= set(
        engine.made
    )


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_any_order_of_events_ends_with_whole_texts_and_nothing_left(events: list[tuple[str, int]]) -> None:
    asyncio.run(play(events))
