"""What the tokenizer workers answer beside prompts: texts to ids, ids to texts, chats and prompts of the language."""

import asyncio
from collections.abc import Callable
from functools import partial

from ramet.ipc.media import Prepared
from ramet.ipc.message import Message
from ramet.ipc.messages import (
    ChoicesReply,
    Detokenize,
    Detokenized,
    PromptReply,
    Render,
    RenderChoices,
    RenderPrompt,
    RenderReply,
    Segment,
    Tokenize,
    Tokenized,
)
from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.engine_client.calls import A, Calls, Tokenizers


class TextCalls:
    """Each question is asked for the key of the current request."""

    def __init__(self, calls: Calls, tokenizers: Tokenizers) -> None:
        self._calls, self._tokenizers = calls, tokenizers

    async def tokenize(self, text: str, add_special_tokens: bool = True, pair: str | None = None) -> Tokenized:
        """`pair`: a second text behind it, as the tokenizer joins two."""
        asked = partial(Tokenize, text=text, add_special_tokens=add_special_tokens, pair=pair)
        return await self._ask(Tokenized, asked)

    async def render(self, chat: bytes, may_exceed: bool = False, has_media: bool = False) -> RenderReply:
        """A chat (JSON, see runtime/text/chats.py) to the ids of its prompt. The options are those of Render."""
        asked = partial(Render, chat=memoryview(chat), may_exceed=may_exceed, has_media=has_media)
        return await self._ask(RenderReply, asked)

    async def render_prompt(self, segments: list[Segment], media: tuple[Prepared, ...] = ()) -> PromptReply:
        """A prompt of the language to its text and ids, with what its media expand to."""
        return await self._ask(PromptReply, partial(RenderPrompt, segments=segments, media=media))

    async def render_choices(
        self, segments: list[Segment], choices: list[str], healed: bool, media: tuple[Prepared, ...] = ()
    ) -> ChoicesReply:
        """A prompt of the language and what may follow it to ids. `healed`: each is tokenised with the prompt."""
        asked = partial(RenderChoices, segments=segments, choices=choices, healed=healed, media=media)
        return await self._ask(ChoicesReply, asked)

    async def detokenize(self, ids: bytes, skip_special_tokens: bool = True) -> str:
        asked = partial(Detokenize, ids=ids, skip_special_tokens=skip_special_tokens)
        return (await self._ask(Detokenized, asked)).text

    async def prompts_are_read(self, owner: str) -> None:
        """Returns when the workers have read all prompts of this owner that were sent before."""

        def question(call: int) -> Tokenize:
            return Tokenize(call, "", False, owner=owner, after_prompts=True)

        workers = self._tokenizers.outboxes
        await asyncio.gather(*[self._calls.ask(each, Tokenized, question) for each in workers])

    async def _ask(self, kind: type[A], question: Callable[..., Message]) -> A:
        """Ask the worker whose turn it is. `question` makes the message of the call's number and the owner's name."""
        worker, owner = self._tokenizers.outboxes[next(self._tokenizers.turns)], OWNER.get().bounded
        return await self._calls.ask(worker, kind, lambda call: question(call=call, owner=owner))
