"""The whole runtime inside one process: `LLM(...).generate(prompts)`. A handle as the server's, on threads of its own.

Decides how calls look to a program. Calls of all threads and event loops run in one batch. What an LLM does beside
making outputs is in llm_engine.py.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

from ramet.ipc.messages import unpack_ids
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.submission import GeneratedSequence as Output
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import Style, style_of
from ramet.runtime.intake.classes import ClassifyFields, class_numbers, read_classified
from ramet.runtime.intake.embeddings import EmbedFields, read_inputs, vector_of
from ramet.runtime.intake.programs import ChatCall, TextOrIds, pack_any, plain, read_chats, read_prompt, read_prompts
from ramet.runtime.intake.reading import OutputReader, Reading, Thoughts
from ramet.runtime.intake.reply import GenerateReply, chat_reply, fields_of, longs_of, made_in_turn, whole_reply
from ramet.runtime.intake.scores import ScoreFields, label_scores, read_pairs
from ramet.runtime.language.calls import LanguageCalls
from ramet.runtime.llm_engine import EngineOwner, check_type
from ramet.runtime.llm_language import EngineCalls, ProgramCalls
from ramet.runtime.llm_streams import Reply, ReplyStream, send_chat, sending
from ramet.runtime.text.labels import Labels, read_labels
from ramet.runtime.text.pooling import Pooling, read_pooling

T = TypeVar("T")
Params = dict[str, Any] | Sequence[dict[str, Any] | None] | None


class LLM(EngineOwner):
    """Options are those of `ramet serve`: LLM("FOLDER", page_size=16). For any number of threads and event loops."""

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
        return [_made(whole_reply(output)) for output in self._loop.run(self._finished(asked))]

    async def agenerate(
        self, prompts: TextOrIds | Sequence[TextOrIds], sampling_params: Params = None, **extras: Any
    ) -> list[Reply]:
        """Replies of `generate`, from any event loop. Cancelling it ends what it asked for."""
        asked = read_prompts(prompts, sampling_params, extras, self._defaults)
        done = await self._elsewhere(self._finished(asked))
        return [await made_in_turn(whole_reply(output)) for output in done]

    def stream(
        self, prompt: TextOrIds, sampling_params: dict[str, Any] | None = None, **extras: Any
    ) -> Iterator[Reply]:
        """Replies with cumulative text as it grows. Leaving the loop early aborts the request. `extras` as above."""
        asked = read_prompt(prompt, sampling_params, extras, self._defaults)
        yield from self._streamed(ReplyStream(self._handle, sending(asked)))

    async def astream(
        self, prompt: TextOrIds, sampling_params: dict[str, Any] | None = None, **extras: Any
    ) -> AsyncIterator[Reply]:
        """Replies of `stream`, from any event loop."""
        stream = ReplyStream(self._handle, sending(read_prompt(prompt, sampling_params, extras, self._defaults)))
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
        return [chat_reply(output, OutputReader(reading)) for output, reading in self._loop.run(self._chats(asked))]

    def stream_chat(
        self, messages: Sequence[dict[str, Any]], sampling_params: dict[str, Any] | None = None, **extras: Any
    ) -> Iterator[Reply]:
        """Replies of one chat by the model's template as they grow, as `stream` has them.

        The text is all that the model writes, thoughts as well.
        """
        asked = read_chats(
            [messages], sampling_params, {}, extras, self._defaults, self._style, thoughts=Thoughts.IN_TEXT
        )
        yield from self._streamed(ReplyStream(self._handle, partial(send_chat, asked[0])))

    def _streamed(self, stream: ReplyStream) -> Iterator[Reply]:
        try:
            while replies := self._loop.run(stream.next()):
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
        done = self._loop.run(_whole(self._handle, asked))
        return [vector_of(output.pooled, used, dimensions).tolist() for output in done]

    def classify(
        self, input: TextOrIds | Sequence[TextOrIds], *, use_activation: bool | None = None
    ) -> list[list[float]]:
        """The probability of each label for each text or list of token ids, as /v1/classify has it; `labels` are their
        names. use_activation=False: the classifier's own numbers, such as a reward. Raises ClientError.
        """
        fields = convert({"input": plain("input", input), "use_activation": use_activation}, ClassifyFields)
        asked = read_classified("", "input", fields.input, self._labels, self._handle.limits)
        done = self._loop.run(_whole(self._handle, asked))
        return [class_numbers(output.pooled, self._labels, use_activation) for output in done]

    @property
    def labels(self) -> list[str]:
        """The labels of a classifier, in the order of its numbers."""
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
        return [label_scores(output, fields.apply_softmax) for output in self._loop.run(_whole(self._handle, asked))]

    # -- the language -----------------------------------------------------------------------------------------------

    @property
    def language(self) -> ProgramCalls:
        """The calls of the language: `await llm.language.select({"prompt": [...], "choices": [...]})`."""
        return ProgramCalls(self._language_calls, self._loop)

    @property
    def engine_calls(self) -> EngineCalls:
        """The calls of the language for its own backend, which runs on the engine's event loop."""
        return EngineCalls(self._language_calls)

    @cached_property
    def _language_calls(self) -> LanguageCalls:
        return LanguageCalls(self._handle, self._defaults, self._style)

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
        check_type("text", text, str, "a string")
        check_type("add_special_tokens", add_special_tokens, bool, "True or False")
        return unpack_ids(self._loop.run(self._handle.text.tokenize(text, add_special_tokens)).ids)

    def detokenize(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Raises ClientError."""
        check_type("skip_special_tokens", skip_special_tokens, bool, "True or False")
        packed = pack_any("tokens", ids, self._handle.limits.vocab_size)
        return self._loop.run(self._handle.text.detokenize(packed, skip_special_tokens))

    def cache_prefix(self, prefix: str, seconds: float = 60.0) -> None:
        """Compute a text now and keep it in the prefix cache for that long. Raises ClientError."""
        sampling = {"max_new_tokens": 0}
        body = {"prompt": [prefix], "sampling_params": sampling, "prefix_lease_s": seconds, "token_healing": False}
        self._loop.run(self.language.generate(body))

    # -- on the engine's event loop ---------------------------------------------------------------------------------

    async def _finished(self, prompts: list[Prompt]) -> list[Output]:
        with self._handle.open(streaming=False, as_batch=True) as submission:
            await self._handle.send_in_pieces(prompts, submission)
            return await submission.finished()

    async def _chats(self, calls: list[ChatCall]) -> list[tuple[Output, Reading]]:
        """Every sequence that ended, with how it is read."""
        with self._handle.open(streaming=False, as_batch=True) as submission:
            render, preparing = self._handle.text.render, self._handle.preparing(submission)
            ready = await submission.during(asyncio.gather(*(call(render, preparing) for call in calls)))
            self._handle.send([prompt for prompt, _ in ready], submission)
            readings = [reading for prompt, reading in ready for _ in range(prompt.spec.params.n)]
            return list(zip(await submission.finished(), readings, strict=True))


def _made(reply: GenerateReply) -> Reply:
    made: Reply = fields_of(reply)
    for name, long in longs_of(reply.meta_info).items():
        made["meta_info"][name] = long.whole()
    return made


async def _whole(handle: EngineClient, prompts: list[Prompt]) -> list[Output]:
    """Outputs whose numbers are worth nothing in part. Raises what ended one of them."""
    with handle.submit(prompts, streaming=False, as_batch=True) as submission:
        return await submission.whole()
