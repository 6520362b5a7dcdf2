"""The language's calls on the engine's handle: generate, select and render, for the server and for programs alike.

Decides how a call becomes prompts of the engine, and its replies. Runs on the handle's event loop.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager

from msgspec import UNSET

from ramet.ipc.messages import ID_BYTES, ChoicesReply, pack_ids, unpack_ids
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.engine_client.submission import Prompt, Sequence, Submission
from ramet.runtime.errors import ClientError, ConfigError, ServerError
from ramet.runtime.intake.calls import Defaults, make_prompts
from ramet.runtime.intake.chat import Style, thoughts_apart
from ramet.runtime.intake.language import (
    TAIL_CHARS,
    LanguageGenerateBody,
    RenderBody,
    SelectBody,
    continued_text,
    read_prompt,
    read_scoring,
)
from ramet.runtime.intake.parsers.reasoning import reasoning_style
from ramet.runtime.intake.reading import Reader
from ramet.runtime.language import choices
from ramet.runtime.language.choices import Path, Trie
from ramet.runtime.language.replies import (
    ChoiceInfo,
    LanguageReply,
    Output,
    RenderedPrompt,
    SelectInfo,
    SelectReply,
)
from ramet.runtime.logprobs import Place, Triple

WITHOUT_PROMPT = "unconditional_likelihood_normalized"
WITH_END = "exact_sequence"


class LanguageCalls:
    """`defaults` and `style` are those of the served model."""

    def __init__(self, client: EngineClient, defaults: Defaults, style: Style) -> None:
        self._client, self._defaults, self._style = client, defaults, style

    def open(self, streaming: bool) -> AbstractContextManager[Submission]:
        """As the handle's."""
        return self._client.open(streaming)

    # -- generate ---------------------------------------------------------------------------------------------------

    async def start(self, submission: Submission, body: LanguageGenerateBody, rid: str) -> list[Output]:
        """Renders and sends the prompt; its outputs, one for each sample. Raises ClientError."""
        segments, style = read_prompt(body.prompt), self._reasoning(body)
        # what is wrong with the parameters is said before anything is rendered
        [prompt] = make_prompts(body, [("prompt", {"ids": b""})], False, [rid], self._defaults)
        rendered = await submission.during(self._client.render_prompt(segments))
        if rendered.contexts:
            raise ClientError(
                "prompt", "has contexts, but this feature is not built yet", "write them one after another"
            )
        prompt, reading = prompt._replace(ids=rendered.ids), None
        if style is not None:
            continued = continued_text(body.prompt, rendered.text)
            spec, reading = thoughts_apart(prompt.spec, style, rendered.text[-TAIL_CHARS:], continued)
            prompt = prompt._replace(spec=spec)
        self._client.send([prompt], submission)
        several = len(submission.sequences) > 1
        return [
            Output(sequence, sequence.index if several else UNSET, Reader(reading) if reading is not None else None)
            for sequence in submission.sequences
        ]

    async def generate(self, body: LanguageGenerateBody, rid: str) -> LanguageReply | list[LanguageReply]:
        """One reply, or a list of them for n > 1. Raises what ended the request."""
        with self.open(streaming=False) as submission:
            outputs = await self.start(submission, body, rid)
            await submission.finished()
            replies = [output.new() for output in outputs]
        return replies if len(replies) > 1 else replies[0]

    def _reasoning(self, body: LanguageGenerateBody) -> str | None:
        """The parser that separates thoughts; None where none is asked for. Raises ClientError."""
        name = body.reasoning_parser
        try:
            _ = name and reasoning_style(name)
        except ConfigError as error:
            raise ClientError("reasoning_parser", f"is {name!r}: {error}") from None
        if not body.separate_reasoning:
            return None
        if name is None and self._style.reasoning is None:
            fact = "is True, but how this model marks its thoughts is not known"
            raise ClientError("separate_reasoning", fact, "send reasoning_parser, or start with --reasoning-parser")
        return name or self._style.reasoning

    # -- select -----------------------------------------------------------------------------------------------------

    async def select(self, body: SelectBody, rid: str) -> SelectReply:
        """Raises what ended one of its sequences."""
        segments, method = read_prompt(body.prompt), body.method or "token_length_normalized"
        healed = body.token_healing is not False
        with self.open(streaming=False) as submission:
            asked = self._client.render_choices(segments, body.choices, healed)
            tokens = await submission.during(asked)
            _check_method(method, tokens)
            if tokens.contexts:
                raise _unbuilt()
            ends = tokens.ends if method == WITH_END else ()
            each = [tuple(unpack_ids(ids)) for ids in tokens.choices]
            # behind every choice a token, at whose place the probability of an end is told
            trie = Trie.of(each, ends[:1])
            alone = Trie.of(each if method == WITHOUT_PROMPT else [])
            prompts = [*_prompts(rid, body, trie, tokens.ids, ends), *_prompts(rid, body, alone, tokens.opening)]
            done = await self._client.run_in_turn(prompts, submission)
            num = len(trie.leaves)
            known, bare = _paths(trie, done[:num], bool(ends)), _paths(alone, done[num:], False)
            cached = min(sequence.num_cached for sequence in done[:num])
        scores = choices.scores_of(method, known, bare)
        sums = [path.logprob for path in known]
        temperature = body.temperature or 0.0
        index = (
            choices.draw(choices.softmax(sums, temperature), body.sampling_seed)
            if temperature > 0
            else choices.best(scores)
        )
        return SelectReply(
            choice=body.choices[index],
            index=index,
            probabilities=choices.softmax(sums),
            scores=scores,
            meta_info=SelectInfo(
                id=rid,
                prompt_tokens=tokens.prompt_tokens,
                cached_tokens=min(cached, tokens.prompt_tokens),
                choices=[
                    ChoiceInfo(
                        text=text,
                        num_tokens=len(path.tokens),
                        logprob=path.logprob,
                        token_logprobs=path.tokens,
                        end_logprob=UNSET if path.end is None else path.end,
                        unconditional_logprob=bare[i].logprob if bare else UNSET,
                    )
                    for i, (text, path) in enumerate(zip(body.choices, known, strict=True))
                ],
            ),
        )

    # -- render -----------------------------------------------------------------------------------------------------

    async def render(self, body: RenderBody) -> RenderedPrompt:
        """Raises ClientError."""
        rendered = await self._client.render_prompt(read_prompt(body.prompt))
        return RenderedPrompt(rendered.text, len(unpack_ids(rendered.ids)))


def _unbuilt() -> ClientError:
    return ClientError("prompt", "has contexts, but this feature is not built yet", "write them one after another")


def _check_method(method: str, tokens: ChoicesReply) -> None:
    if method == WITH_END and not tokens.ends:
        raise ClientError("method", f"is {method!r}, but this model has no token that ends an output")
    if method == WITHOUT_PROMPT and not tokens.opening:
        raise ClientError("method", f"is {method!r}, but this model has no token that a text begins or ends with")


def _prompts(rid: str, body: SelectBody, trie: Trie, before: bytes, ends: tuple[int, ...] = ()) -> Iterator[Prompt]:
    """For each leaf what comes before it, and the leaf; what is told begins with its token `start`."""
    for leaf, choice in zip(trie.leaves, trie.choices, strict=True):
        spec = read_scoring(body, len(before) // ID_BYTES + leaf.start, ends)
        yield Prompt(rid, spec, ids=before + pack_ids(leaf.ids), place=f"choices[{choice}]")


def _paths(trie: Trie, done: list[Sequence], with_end: bool) -> list[Path]:
    """Of each choice. A leaf's tokens are those that it shares with the one before, and its own."""
    computed: list[list[Place]] = []  # of each leaf
    places: list[Place] = []
    for leaf, sequence in zip(trie.leaves, done, strict=True):
        assert sequence.logprobs is not None
        places = places[: leaf.start] + sequence.logprobs.prompt[1:]  # nothing is known of the token before
        computed.append(places)
    return [
        _path(computed[leaf][:length], computed[leaf][length].chosen if with_end else None)
        for leaf, length in trie.ways
    ]


def _path(places: list[Place], ends: list[Triple] | None) -> Path:
    """`ends`: of the tokens that may end an output, at the place behind it."""
    tokens = [place.token for place in places]
    if any(value is None for value, _, _ in tokens):
        raise ServerError("The model computed what is no number.")
    return Path(tokens, None if ends is None else _total(ends))


def _total(chosen: list[Triple]) -> float:
    """Of all of them together."""
    values = [value for value, _, _ in chosen if value is not None]
    most = max(values, default=-math.inf)
    return most + math.log(math.fsum(math.exp(value - most) for value in values)) if values else -math.inf
