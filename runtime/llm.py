"""The whole runtime inside one process: `LLM(...).generate(prompts)`. A handle as the server's, on threads of its own.

Decides how calls look to a program. Calls come from any thread and any event loop, and run in one batch; each becomes a
coroutine on the event loop of the engine. Whoever waits may be interrupted: what was asked then ends, others go on.
"""

import asyncio
import json
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from ramet.ipc.control import ControlReply, MemoryTag
from ramet.ipc.loop_thread import LoopThread
from ramet.ipc.messages import unpack_ids
from ramet.ipc.owned import NotCopied
from ramet.ipc.params import shown
from ramet.runtime.config import Args, make_args, resolve
from ramet.runtime.engine_client.client import MAX_FLUSH_WAIT_S, EngineClient
from ramet.runtime.engine_client.pauses import PauseMode
from ramet.runtime.engine_client.submission import Prompt, Submission
from ramet.runtime.engine_client.submission import Sequence as Output
from ramet.runtime.errors import ClientError, ConfigError, EngineClosed
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.calls import Defaults
from ramet.runtime.intake.chat import Style, style_of
from ramet.runtime.intake.classes import ClassifyFields, class_numbers, read_classified
from ramet.runtime.intake.embeddings import EmbedFields, read_inputs, vector_of
from ramet.runtime.intake.programs import ChatCall, TextOrIds, pack_any, plain, read_chats, read_prompt, read_prompts
from ramet.runtime.intake.reading import Reader, Reading, Thoughts
from ramet.runtime.intake.reply import GenerateReply, GrowingReply, chat_reply, fields_of, longs_of, made_in_turn
from ramet.runtime.intake.scores import ScoreFields, label_scores, read_pairs
from ramet.runtime.language.calls import LanguageCalls
from ramet.runtime.llm_language import ProgramCalls
from ramet.runtime.processes.inprocess import InProcessEngine
from ramet.runtime.processes.threads import quiet_at_exit
from ramet.runtime.replies.long_list import Listed, LongList, parts_of
from ramet.runtime.scheduler.process import make_runner
from ramet.runtime.text.defaults import sampling_defaults
from ramet.runtime.text.healing import check_healing
from ramet.runtime.text.labels import Labels, read_labels
from ramet.runtime.text.pooling import Pooling, read_pooling
from ramet.runtime.text.tokenizer import Tokenizer
from ramet.runtime.weights import ahead

T = TypeVar("T")
Reply = dict[str, Any]
Params = dict[str, Any] | Sequence[dict[str, Any] | None] | None


class LLM(NotCopied):
    """Options are those of `ramet serve`: LLM("FOLDER", page_size=16). For any number of threads and event loops."""

    only_one = "it owns an engine; share the object among threads, or make another one with LLM(llm.args)"

    def __init__(self, model: Args | str | os.PathLike[str] | None = None, **options: Any) -> None:
        """`model` is a model folder, or all options at once; without it the bundled model is loaded."""
        if isinstance(model, str | os.PathLike):
            options["model_path"] = os.fspath(model)
        elif not isinstance(model, Args | None):
            raise ConfigError(f"model is {shown(model)}, must be a model folder")
        self.args = args = resolve(model if isinstance(model, Args) else make_args(**options))
        ahead.begin(args.model, args.model_folder)
        self.startup: list[tuple[str, float]] = []  # phase, seconds
        self.tokenizer = tokenizer = Tokenizer.from_folder(args.tokenizer_folder, args.model_folder)
        tokenizer.log_notes()
        check_healing(args, tokenizer)
        startup = self.startup  # the engine must not hold this object, or it would never be collected
        self._loop = LoopThread("ramet-loop", _engine_closed)
        try:
            load = lambda: make_runner(args, tokenizer, lambda name, seconds: startup.append((name, seconds)))  # noqa: E731
            engine = self._loop.run(InProcessEngine.start(args, tokenizer, load))
        except BaseException as error:
            self._loop.close(_nothing(), wait=isinstance(error, Exception))
            raise
        self._handle = engine.client
        self._defaults = Defaults(
            sampling_defaults(args.model_folder, args.model.sampling_defaults),
            self._handle.limits,
            args.execute.enable_custom_logit_processor,
            args.heals_unasked,
        )
        # called by close, when this object is collected, or when Python ends, whichever comes first
        self._close = weakref.finalize(self, _close, self._loop, engine)
        quiet_at_exit(EngineClosed)

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Open calls end with EngineClosed, as will later ones; threads end, and the model is dropped."""
        self._close()

    @property
    def loop(self) -> LoopThread:
        """The engine's event loop: what waits there for the engine hands nothing from thread to thread."""
        return self._loop

    @cached_property
    def _style(self) -> Style:
        return style_of(self.args)

    @cached_property
    def _pooling(self) -> Pooling:
        return read_pooling(self.args.model_folder)

    @cached_property
    def _labels(self) -> Labels:
        return read_labels(self.args)

    # -- generate ---------------------------------------------------------------------------------------------------

    def generate(
        self, prompts: TextOrIds | Sequence[TextOrIds], sampling_params: Params = None, **extras: Any
    ) -> list[Reply]:
        """Texts or token ids in; one reply like /generate's for every sample of every prompt, prompt by prompt.

        A prompt of embeddings is a floating array [tokens, hidden size]. `extras` are fields of /generate:
        return_logprob, logprob_start_len, top_logprobs_num, token_ids_logprob, return_text_in_logprobs, priority,
        extra_key, cache_salt, custom_logit_processor, lora_path, return_hidden_states, return_routed_experts,
        routed_experts_start_len, prefix_lease_s, grammar_backend, token_healing, image_data, video_data and audio_data,
        where bytes, paths, pictures of Pillow and arrays may stand as well (docs/media.md). `contexts` are the parallel
        contexts of one prompt of token ids: of each group the index of its first token, then the length of each context
        (docs/contexts.md). Raises ClientError for what cannot be asked; what fails while it runs has a finish_reason of
        type abort.
        """
        asked = read_prompts(prompts, sampling_params, extras, self._defaults)
        return [_made(GrowingReply(output).whole()) for output in self._run(self._finished(asked))]

    async def agenerate(
        self, prompts: TextOrIds | Sequence[TextOrIds], sampling_params: Params = None, **extras: Any
    ) -> list[Reply]:
        """As `generate`, from any event loop. Cancelling it ends what it asked for."""
        asked = read_prompts(prompts, sampling_params, extras, self._defaults)
        done = await self._elsewhere(self._finished(asked))
        return [await made_in_turn(GrowingReply(output).whole()) for output in done]

    def stream(
        self, prompt: TextOrIds, sampling_params: dict[str, Any] | None = None, **extras: Any
    ) -> Iterator[Reply]:
        """Replies with cumulative text as it grows. Leaving the loop early aborts the request. `extras` as above."""
        asked = read_prompt(prompt, sampling_params, extras, self._defaults)
        yield from self._streamed(Stream(self._handle, _sending(asked)))

    async def astream(
        self, prompt: TextOrIds, sampling_params: dict[str, Any] | None = None, **extras: Any
    ) -> AsyncIterator[Reply]:
        """As `stream`, from any event loop."""
        stream = Stream(self._handle, _sending(read_prompt(prompt, sampling_params, extras, self._defaults)))
        try:
            while replies := await self._elsewhere(stream.next()):
                for reply in replies:
                    yield reply
        finally:
            self._loop.soon(stream.leave)

    def chat(
        self,
        messages: Sequence[dict[str, Any]] | Sequence[Sequence[dict[str, Any]]],
        sampling_params: Params = None,
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        tool_choice: str | dict[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        reasoning_effort: str | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        documents: Sequence[dict[str, Any]] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        separate_reasoning: bool = True,
        **extras: Any,
    ) -> list[Reply]:
        """One chat, or a list of chats; a reply for every sample of every chat, chat by chat.

        A reply is {"message", "finish_reason", "meta_info"}. The message is that of /v1/chat/completions: role,
        content, reasoning, and tool_calls where there are any; it may stand in the next turn's messages as it is.
        finish_reason is "stop", "length", "tool_calls" or "abort". meta_info is as `generate` has it, with
        `reasoning_tokens`.
        Arguments mean what the fields of /v1/chat/completions mean, sampling_params and `extras` what those of
        `generate` mean; without max_new_tokens an output may go on to the context's end. Raises ClientError.
        """
        fields = {
            "tools": tools,
            "tool_choice": tool_choice,
            "reasoning_effort": reasoning_effort,
            "chat_template_kwargs": chat_template_kwargs,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
        }
        thoughts = Thoughts.STREAMED if separate_reasoning else Thoughts.IN_TEXT
        asked = read_chats(
            messages, sampling_params, fields, extras, self._defaults, self._style, parallel_tool_calls, thoughts
        )
        return [chat_reply(output, Reader(reading)) for output, reading in self._run(self._chats(asked))]

    def stream_chat(
        self, messages: Sequence[dict[str, Any]], sampling_params: dict[str, Any] | None = None, **extras: Any
    ) -> Iterator[Reply]:
        """As `stream`, of one chat by the model's template: the text is all that the model writes, thoughts as well."""
        asked = read_chats(
            [messages], sampling_params, {}, extras, self._defaults, self._style, thoughts=Thoughts.IN_TEXT
        )
        yield from self._streamed(Stream(self._handle, partial(_send_chat, asked[0])))

    def _streamed(self, stream: "Stream") -> Iterator[Reply]:
        try:
            while replies := self._run(stream.next()):
                yield from replies
        finally:
            self._loop.soon(stream.leave)

    # -- numbers ----------------------------------------------------------------------------------------------------

    def embed(
        self,
        input: TextOrIds | Sequence[TextOrIds],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        prompt_name: str | None = None,
    ) -> list[list[float]]:
        """A vector for each text or list of token ids, as /v1/embeddings makes them. Raises ClientError.

        pooling: "mean" of all tokens, "last" or "cls"; normalize: to length 1; prompt_name: which of the folder's
        prompts stands before each text; by default all are what the model's folder says. dimensions: only the first
        numbers of each vector.
        """
        given = {"input": plain("input", input), "pooling": pooling, "normalize": normalize, "dimensions": dimensions}
        fields = convert({**given, "prompt_name": prompt_name}, EmbedFields)
        asked, used = read_inputs("", fields, self._pooling, self._handle.limits)
        return [vector_of(output.pooled, used, dimensions).tolist() for output in self._run(self._whole(asked))]

    def classify(
        self, input: TextOrIds | Sequence[TextOrIds], *, use_activation: bool | None = None
    ) -> list[list[float]]:
        """The probability of each label for each text or list of token ids, as /v1/classify has it; `labels` are their
        names. use_activation=False: the classifier's own numbers, such as a reward. Raises ClientError.
        """
        fields = convert({"input": plain("input", input), "use_activation": use_activation}, ClassifyFields)
        asked = read_classified("", "input", fields.input, self._labels, self._handle.limits)
        done = self._run(self._whole(asked))
        return [class_numbers(output.pooled, self._labels, use_activation) for output in done]

    @property
    def labels(self) -> list[str]:
        """Of a classifier, in the order of its numbers."""
        return [self._labels.name_of(index) for index in range(self._handle.limits.num_labels)]

    def score(
        self,
        query: TextOrIds,
        items: TextOrIds | Sequence[TextOrIds],
        label_token_ids: Sequence[int],
        *,
        apply_softmax: bool = False,
        item_first: bool = False,
    ) -> list[list[float]]:
        """For each item the probability of each label after query and item, as /v1/score has it. Raises ClientError.

        Texts are joined as texts and ids as ids. apply_softmax: the scores of an item add up to 1. item_first: the
        query follows the item.
        """
        given = {"query": query, "items": items, "label_token_ids": label_token_ids}
        given = {name: plain(name, value) for name, value in given.items()}
        fields = convert({**given, "apply_softmax": apply_softmax, "item_first": item_first}, ScoreFields)
        asked = read_pairs("", fields, self._handle.limits)
        return [label_scores(output, fields.apply_softmax) for output in self._run(self._whole(asked))]

    # -- the language -----------------------------------------------------------------------------------------------

    @property
    def language(self) -> ProgramCalls:
        """The calls of the language: `await llm.language.select({"prompt": [...], "choices": [...]})`."""
        return ProgramCalls(LanguageCalls(self._handle, self._defaults, self._style), self._loop)

    @property
    def placeholders(self) -> dict[str, str]:
        """What stands for a piece of each kind of media that the model takes ("image", "video", "audio") in a text."""
        return {kind.value: token.placeholder for kind, token in self._handle.limits.media.items()}

    @property
    def has_chat_template(self) -> bool:
        return self._style.has_template

    # -- text and ids -----------------------------------------------------------------------------------------------

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text, as a prompt has them. Raises ClientError."""
        _check_type("text", text, str, "a string")
        _check_type("add_special_tokens", add_special_tokens, bool, "True or False")
        return unpack_ids(self._run(self._handle.tokenize(text, add_special_tokens)).ids)

    def detokenize(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Raises ClientError."""
        _check_type("skip_special_tokens", skip_special_tokens, bool, "True or False")
        packed = pack_any("tokens", ids, self._handle.limits.vocab_size)
        return self._run(self._handle.detokenize(packed, skip_special_tokens))

    # -- adapters ---------------------------------------------------------------------------------------------------

    def load_lora_adapter(self, name: str, path: str, *, pinned: bool = False, load_inplace: bool = False) -> None:
        """From its end on `lora_path=name` gets the adapter of this folder. Raises ClientError.

        pinned: it keeps its slot, whoever waits for one. load_inplace: it may take the place of one of that name.
        """
        self._run(self._handle.load_adapter(name, path, pinned=pinned, replaces=load_inplace))

    def unload_lora_adapter(self, name: str) -> None:
        """Returns when the requests that have it are done. Raises ClientError."""
        self._run(self._handle.unload_adapter(name))

    # -- beside it --------------------------------------------------------------------------------------------------

    @property
    def resolved(self) -> dict[str, Any]:
        """What the options that were left open came to: device, dtype, num_threads, max_total_tokens and others."""
        found: dict[str, Any] = json.loads(self._handle.limits.resolved)
        return found

    def state(self) -> dict[str, Any]:
        """The scheduler's counters between two steps: what /get_server_info has in `internal_states`."""
        found: dict[str, Any] = json.loads(self._run(self._handle.state()).body)
        return found

    def phase_seconds(self) -> dict[str, float]:
        """Seconds spent in each part of all steps so far, and their number."""
        state = self.state()
        return {**state["phase_seconds"], "steps": float(state["steps"])}

    def cache_prefix(self, prefix: str, seconds: float = 60.0) -> None:
        """Compute a text now and keep it in the prefix cache for that long. Raises ClientError."""
        sampling = {"max_new_tokens": 0}
        body = {"prompt": [prefix], "sampling_params": sampling, "prefix_lease_s": seconds, "token_healing": False}
        self._run(self.language.generate(body))

    def flush_cache(self, timeout_s: float = 60.0) -> None:
        """Forget every cached prefix, once nothing runs or waits. Raises ClientError if that takes longer."""
        seconds = plain("timeout_s", timeout_s)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_FLUSH_WAIT_S:
            raise ClientError(
                "timeout_s", f"is {shown(timeout_s)}, must be a number of seconds in [0, {MAX_FLUSH_WAIT_S:g}]"
            )
        reply: ControlReply = self._run(self._handle.flush_cache(float(seconds)))
        if not reply.ok:
            raise ClientError("flush_cache", f"found requests still running after {seconds:g} s", status=409)

    def pause_generation(self, mode: str = "abort") -> None:
        """Returns when no step runs any more; what is asked from now on waits until `continue_generation`.

        mode: "abort" ends every open call now, "retract" computes them again later, "in_place" keeps what they have.
        """
        modes = [each.value for each in PauseMode]
        if mode not in modes:
            raise ClientError("mode", f"is {shown(mode)}, must be one of {', '.join(modes)}")
        self._run(self._handle.pauses.pause(PauseMode(mode)))

    def continue_generation(self) -> None:
        """Compute again what waits."""
        self._run(self._handle.pauses.go_on())

    def update_weights_from_disk(self, model_path: str, weight_version: str | None = None) -> None:
        """Serve other weights of the same model (docs/administration.md): calls that run end with those they began
        with, unless generation is paused. Raises ClientError; then nothing has changed.
        """
        _check_type("model_path", model_path, str, "the path of a folder")
        _check_type("weight_version", weight_version, str | None, "a string or None")
        self._run(self._handle.update_weights(model_path, weight_version))

    def release_memory_occupation(self, tags: Sequence[str] | None = None) -> None:
        """Give memory back to the system: of "weights", "kv_cache" and "cuda_graph", or all. What is asked from now on
        waits until it is resumed. Raises ClientError while something runs; then nothing has changed.
        """
        self._run(self._handle.release_memory(_tags(tags)))

    def resume_memory_occupation(self, tags: Sequence[str] | None = None) -> None:
        """Take it again. Raises ClientError; then all of it stays released."""
        self._run(self._handle.resume_memory(_tags(tags)))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait on the calling thread for what runs on the engine's event loop."""
        return self._loop.run(coroutine)

    async def _elsewhere(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait on the caller's event loop for what runs on the engine's."""
        return await asyncio.wrap_future(self._loop.start(coroutine))

    # -- on the engine's event loop ---------------------------------------------------------------------------------

    async def _finished(self, prompts: list[Prompt]) -> list[Output]:
        with self._handle.open(streaming=False, as_batch=True) as submission:
            await self._handle.send_with_media(prompts, submission)
            return await submission.finished()

    async def _chats(self, calls: list[ChatCall]) -> list[tuple[Output, Reading]]:
        """Every sequence that ended, with how it is read."""
        with self._handle.open(streaming=False, as_batch=True) as submission:
            given = self._handle.render, self._handle.preparing(submission)
            ready = await submission.during(asyncio.gather(*(call(*given) for call in calls)))
            self._handle.send([prompt for prompt, _ in ready], submission)
            readings = [reading for prompt, reading in ready for _ in range(prompt.params.n)]
            return list(zip(await submission.finished(), readings, strict=True))

    async def _whole(self, prompts: list[Prompt]) -> list[Output]:
        """For numbers, which are worth nothing in part. Raises what ended one of them."""
        with self._handle.submit(prompts, streaming=False, as_batch=True) as submission:
            return await submission.whole()


def _sending(prompts: list[Prompt]) -> Callable[[EngineClient, Submission], Awaitable[None]]:
    return lambda handle, submission: handle.send_with_media(prompts, submission)


async def _send_chat(call: ChatCall, handle: EngineClient, submission: Submission) -> None:
    prompt, _ = await submission.during(call(handle.render, handle.preparing(submission)))
    handle.send([prompt], submission)


class Stream(NotCopied):
    """One request's replies as they grow. It is submitted with the first `next`. For the engine's event loop."""

    only_one = "it is one request that runs; ask once more"

    def __init__(self, handle: EngineClient, send: Callable[[EngineClient, Submission], Awaitable[None]]) -> None:
        self._handle, self._send = handle, send
        self._block = ExitStack()
        self._submission: Submission | None = None

    async def next(self) -> list[Reply]:
        """One for each sequence that has something new; [] at the end."""
        if self._submission is None:
            self._submission = self._block.enter_context(self._handle.open(streaming=True, as_batch=True))
            await self._send(self._handle, self._submission)
            several = len(self._submission.sequences) > 1
            self._replies = [Remembering(s, s.index if several else UNSET) for s in self._submission.sequences]
        return [await made_in_turn(self._replies[each.index].whole()) for each in await self._submission.next()]

    def leave(self) -> None:
        """What has not ended is aborted."""
        self._block.close()


class Remembering(GrowingReply):
    """For a stream: entries that were made for a reply are in the later ones as well."""

    def __init__(self, sequence: Output, index: int | UnsetType) -> None:
        super().__init__(sequence, index)
        self._lists: dict[str, list[Any]] = defaultdict(list)  # by the fields of meta_info

    def _grown(self, name: str, new: Listed) -> LongList:
        return LongList(_remembered(self._lists[name], new))


def _remembered(made: list[Any], new: Listed) -> Iterator[list[Any]]:
    yield made.copy()
    for part in parts_of(new):
        assert isinstance(part, list), "a log-probability is no list of lists"
        made += part
        yield part


def _made(reply: GenerateReply) -> Reply:
    made: Reply = fields_of(reply)
    made["meta_info"] |= {name: long.whole() for name, long in longs_of(reply.meta_info).items()}
    return made


def _engine_closed(pid: int | None) -> EngineClosed:
    if pid is None:
        return EngineClosed()
    return EngineClosed(f"The engine is one of process {pid}; after os.fork() the child makes its own.")


async def _nothing() -> None:
    pass


def _close(loop: LoopThread, engine: InProcessEngine) -> None:
    """Of a garbage collection on one of the engine's own threads, which cannot wait for itself."""
    wait = not loop.is_current() and not engine.owns(threading.current_thread())
    loop.close(engine.close(), wait)


def _tags(names: Sequence[str] | None) -> list[MemoryTag]:
    known = {each.value: each for each in MemoryTag}
    _check_type("tags", names, Sequence | None, "a list of strings or None")
    if unknown := [name for name in names or () if name not in known]:
        raise ClientError("tags", f"has {shown(unknown[0])}, must be of {', '.join(known)}")
    return [known[name] for name in names or known]


def _check_type(place: str, value: Any, type_: Any, wanted: str) -> None:
    if not isinstance(value, type_):
        raise ClientError(place, f"is {shown(value)}, must be {wanted}")
