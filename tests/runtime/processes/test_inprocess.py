"""The engine on threads of one process: what its parts do when one of them fails, and that none of them stays."""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ramet.ipc.content import Content
from ramet.ipc.messages import Chat, RenderReply, Stats, pack_ids
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.config import BUNDLED_MODEL, Args, make_args, resolve
from ramet.runtime.engine.batch import Batch, LoadedRunner, Pending
from ramet.runtime.engine.scripted import ScriptedRunner
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.engine_client.places import FieldPlaces
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.errors import ClientError, ConfigError, EngineClosed, EngineFailed, ServerError
from ramet.runtime.processes.inprocess import InProcessEngine
from ramet.runtime.processes.threads import MAX_WAITING, Arrivals
from ramet.runtime.scheduler.process.start import make_runner
from ramet.runtime.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.from_folder(BUNDLED_MODEL)
LONG = SamplingParams(max_new_tokens=3000, ignore_eos=True)


def scripted() -> ScriptedRunner:
    return ScriptedRunner(TOKENIZER.vocab_size, 4096, 1 << 16, 64)


class PermittedRunner(ScriptedRunner):
    """Each of its steps waits for a permit, and raises once `fails` is true."""

    def __init__(self) -> None:
        super().__init__(TOKENIZER.vocab_size, 4096, 1 << 16, 64)
        self.permits, self.fails = threading.Semaphore(0), False

    def launch(self, batch: Batch) -> Pending:
        self.permits.acquire()
        if self.fails:
            raise RuntimeError("the device fell off")
        return super().launch(batch)


def prompt(text: str = "a", params: SamplingParams = LONG, **fields: Any) -> Prompt:
    return Prompt("r", RequestSpec(params), Content(text), **fields)


async def whole(client: EngineClient, *prompts: Prompt, as_batch: bool = False) -> list[int]:
    """How many tokens each sequence got."""
    with client.submit(prompts, streaming=False, as_batch=as_batch) as submission:
        return [sequence.num_generated for sequence in await submission.finished()]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0)


def started(
    test: Callable[[EngineClient], Coroutine[Any, Any, None]],
    load: Callable[[], LoadedRunner] = scripted,
    args: Args | None = None,
) -> None:
    """Run the test against an engine; afterwards its threads have gone."""
    before = set(threading.enumerate())

    async def main() -> None:
        engine = await InProcessEngine.start(args or make_args(log_level="error"), TOKENIZER, load)
        try:
            await test(engine.client)
        finally:
            await engine.close()
            assert set(threading.enumerate()) <= before

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_failure_on_the_schedulers_thread_ends_every_open_call_and_every_later_one() -> None:
    runner = PermittedRunner()

    async def check(client: EngineClient) -> None:
        calls = [asyncio.create_task(whole(client, prompt(text))) for text in "abc"]
        await until(lambda: client.num_open == 3)
        # answered behind the prompts: none of them is tokenized later than the steps below
        await client.text.tokenize("a")
        for _ in range(20):
            runner.permits.release()
        await until(lambda: not client.num_waiting)  # they run: a flush has to wait
        waiting = asyncio.create_task(client.admin.flush_cache(1000))
        await asyncio.sleep(0)  # it is sent
        runner.fails = True
        runner.permits.release()
        for call in (*calls, waiting):
            with pytest.raises(EngineFailed, match="scheduler failed: RuntimeError: the device fell off"):
                await call
        with pytest.raises(EngineFailed):
            await whole(client, prompt())
        with pytest.raises(EngineFailed):
            await client.admin.state()
        with pytest.raises(EngineFailed):
            await client.text.tokenize("a")

    started(check, lambda: runner)


def test_what_the_loading_raises_comes_out_of_the_start_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())

    def load() -> LoadedRunner:
        raise ConfigError("--model-path is nowhere")

    with pytest.raises(ConfigError, match="nowhere"):
        asyncio.run(InProcessEngine.start(make_args(), TOKENIZER, load))
    assert set(threading.enumerate()) <= before


def test_a_start_that_is_cancelled_leaves_no_thread_once_the_model_is_loaded() -> None:
    before = set(threading.enumerate())
    loading, go_on = threading.Event(), threading.Event()

    def load() -> LoadedRunner:
        loading.set()
        go_on.wait()
        return scripted()

    async def main() -> None:
        starting = asyncio.create_task(InProcessEngine.start(make_args(), TOKENIZER, load))
        await asyncio.to_thread(loading.wait)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(main())
    go_on.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
    assert set(threading.enumerate()) <= before


def test_a_closed_engine_ends_open_calls_with_its_error() -> None:
    async def main() -> None:
        engine = await InProcessEngine.start(make_args(), TOKENIZER, scripted)
        call = asyncio.create_task(whole(engine.client, prompt()))
        await engine.client.text.tokenize("a")  # answered behind the prompt
        await engine.close()
        with pytest.raises(EngineClosed):
            await call
        with pytest.raises(EngineClosed):
            await whole(engine.client, prompt())

    asyncio.run(main())


def test_a_batch_is_refused_whole_before_any_of_it_runs() -> None:
    async def check(client: EngineClient) -> None:
        bad = prompt("", places=FieldPlaces("text[2]"))
        with pytest.raises(ClientError, match=r"text\[2\] is ''") as caught:
            await whole(client, prompt("a"), prompt("b"), bad, prompt("c"), as_batch=True)
        assert caught.value.place == "text[2]"
        await until(lambda: client.num_open == client.num_waiting == 0)  # each of its sequences has been refused
        assert b'"steps":0' in (await client.admin.state()).body

    started(check)


def test_cancelling_a_call_frees_what_it_held() -> None:
    async def check(client: EngineClient) -> None:
        call = asyncio.create_task(whole(client, prompt("a"), prompt("b")))
        while b'"running_requests":2' not in (await client.admin.state()).body:
            pass
        call.cancel()
        reply = await client.admin.flush_cache(1000)  # once nothing runs
        assert reply.ok and client.num_open == 0
        state = (await client.admin.state()).body
        assert b'"owned_tokens":0' in state and b'"leased_tokens":0' in state

    started(check)


def test_the_queue_s_limit_and_the_deadline_hold_in_process_too() -> None:
    async def check(client: EngineClient) -> None:
        num_prompts = 2 + client.limits.max_running_requests
        with client.submit([prompt()] * num_prompts, streaming=False) as submission:
            with pytest.raises(ServerError, match="queue is full"):
                await whole(client, prompt())
            with pytest.raises(ServerError, match=r"within 0\.05 s"):
                await submission.finished()

    started(check, args=make_args(log_level="error", max_queued_requests=2, request_timeout_s=0.05))


def test_numbers_of_a_reply_have_no_bound_in_process() -> None:
    async def check(client: EngineClient) -> None:
        with client.submit([prompt(params=SamplingParams(max_new_tokens=1))], streaming=False) as submission:
            submission.hold(1 << 40)
            assert submission.error is None
            await submission.finished()

    started(check)


def test_one_wake_up_of_the_loop_delivers_all_that_is_waiting() -> None:
    async def main() -> None:
        loop, got = asyncio.get_running_loop(), list[Any]()
        wakes = 0
        soon = loop.call_soon_threadsafe

        def counted(*args: Any) -> Any:
            nonlocal wakes
            wakes += 1
            return soon(*args)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        arrivals = Arrivals(loop, got.append)
        sent = [Stats(*[i] * 12) for i in range(1000)]
        for each in sent:
            arrivals.send(each)
        await asyncio.sleep(0)
        assert got == sent and wakes == 1

    asyncio.run(main())


def test_messages_that_can_wait_come_with_the_next_that_cannot_or_when_many_wait():
    async def main() -> None:
        loop, got = asyncio.get_running_loop(), list[Any]()
        sent = [Stats(*[i] * 12) for i in (1, 2, 3)]
        arrivals = Arrivals(loop, got.append, can_wait=lambda message: message != sent[2])
        for each in sent[:2]:
            arrivals.send(each)
        await asyncio.sleep(0)
        assert got == []
        arrivals.send(sent[2])
        await asyncio.sleep(0)
        assert got == sent
        for _ in range(MAX_WAITING):
            await asyncio.sleep(0)
            assert got == sent
            arrivals.send(sent[0])
        await asyncio.sleep(0)
        assert got == sent + [sent[0]] * MAX_WAITING

    asyncio.run(main())


def test_tokens_that_nobody_streams_arrive_some_steps_at_a_time_and_those_of_a_stream_at_once():
    runner = PermittedRunner()

    async def test(client: EngineClient) -> None:
        params = SamplingParams(max_new_tokens=3 * MAX_WAITING, ignore_eos=True)
        with client.submit([prompt(params=params)], streaming=False) as submission:
            seen, sequence = set[int](), submission.sequences[0]
            for _ in range(3 * MAX_WAITING):
                runner.permits.release()
            while submission.num_open:
                seen.add(sequence.num_generated)
                await asyncio.sleep(0)
            assert len(seen) < 10, seen
        with client.submit([prompt(params=params)], streaming=True) as submission:
            assert client.requests.num_streams == 1
            sequence = submission.sequences[0]
            for step in range(1, 1 + 3 * MAX_WAITING):
                runner.permits.release()
                await until(lambda step=step: sequence.num_generated == step)
        assert client.requests.num_streams == 0

    started(test, lambda: runner)


WITHOUT_END = (
    "{% if ends %}{{ messages[0].content }}{% else %}{% for x in [1] | slice(10 ** 12) %}{% endfor %}{% endif %}"
)


def test_a_chat_without_end_keeps_nobody_waiting_and_ends_with_the_engine(tmp_path: Path) -> None:
    (tmp_path / "without_end.jinja").write_text(WITHOUT_END)
    calls: list[asyncio.Task[RenderReply]] = []

    async def test(client: EngineClient) -> None:
        turns = [{"role": "user", "content": "the fox"}]
        calls.append(asyncio.create_task(client.text.render(msgspec.json.encode(Chat(turns)))))
        ended = await client.text.render(msgspec.json.encode(Chat(turns, kwargs={"ends": True})))
        assert ended.ids == pack_ids(TOKENIZER.encode("the fox"))
        assert await whole(client, prompt(params=SamplingParams(max_new_tokens=3, ignore_eos=True))) == [3]
        assert not calls[0].done()

    template = str(tmp_path / "without_end.jinja")
    started(test, args=make_args(log_level="error", chat_template=template, chat_template_timeout_s=600))
    assert isinstance(calls[0].exception(), EngineClosed)


def test_no_folder_for_media_is_raised_by_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = resolve(make_args(model_path="bundled:vision", max_total_tokens=1024, num_threads=1))
    tokenizer = Tokenizer.from_folder(args.tokenizer_folder)

    def load() -> LoadedRunner:
        runner = make_runner(args, tokenizer, lambda *_: None)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
        return runner

    async def start() -> None:
        await InProcessEngine.start(args, tokenizer, load)

    with pytest.raises(ConfigError, match=r"no folder for prepared media .*nowhere.*; set TMPDIR"):
        asyncio.run(start())
