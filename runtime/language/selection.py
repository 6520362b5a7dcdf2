"""One call of select: the prompts that score its choices, and its reply.

Decides which tokens are computed, and where their log-probabilities are read from what the engine told.
"""

import math
from collections.abc import Callable, Sequence
from typing import overload

from msgspec import UNSET

from ramet.ipc import choices
from ramet.ipc.choices import Path
from ramet.ipc.content import Content
from ramet.ipc.media import Prepared
from ramet.ipc.messages import ID_BYTES, ChoicesReply, pack_ids, unpack_ids
from ramet.runtime.engine_client.places import FieldPlaces
from ramet.runtime.engine_client.prompt import Prompt, check_bytes
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.intake.language import SelectBody, read_scoring
from ramet.runtime.intake.reply import prompt_places_of
from ramet.runtime.language.replies import ChoiceInfo, SelectInfo, SelectReply
from ramet.runtime.language.trie import Ids, Trie
from ramet.runtime.replies.logprobs import Place, Triple
from ramet.runtime.text.context import longer_than_context

WITHOUT_PROMPT = "unconditional_likelihood_normalized"
WITH_END = "exact_sequence"
METHOD = "token_length_normalized"  # of a body that names none


class ScoringPrompts(Sequence[Prompt]):
    """Each is made when it is asked for: a long prompt stands in as many of them as there are choices."""

    def __init__(self, make: Callable[[int], Prompt], num: int) -> None:
        self._make, self._num = make, num

    def __len__(self) -> int:
        return self._num

    @overload
    def __getitem__(self, at: int) -> Prompt: ...

    @overload
    def __getitem__(self, at: slice) -> list[Prompt]: ...

    def __getitem__(self, at: int | slice) -> Prompt | list[Prompt]:
        made = range(self._num)[at]
        return self._make(made) if isinstance(made, int) else list(map(self._make, made))


class ChoiceScoring:
    """`prompts` are in the order in which `reply` expects their sequences."""

    def __init__(
        self, body: SelectBody, rid: str, tokens: ChoicesReply, context_length: int, media: tuple[Prepared, ...] = ()
    ) -> None:
        """`media`: of the prompt. Raises ClientError."""
        self._body, self._rid, self._tokens, self._media = body, rid, tokens, media
        self._method = body.method or METHOD
        _check_method(self._method, tokens)
        self._ends = tokens.ends if self._method == WITH_END else ()
        each = [tuple(unpack_ids(ids)) for ids in tokens.choices]
        # behind every leaf a token, at whose place the probability of an end is told
        self._trie = Trie.of(each, self._ends[:1])
        self._bare = Trie.of(each if self._method == WITHOUT_PROMPT else [])
        self._check_sizes(each, context_length)
        self.prompts = ScoringPrompts(self._prompt, len(self._trie.leaves) + len(self._bare.leaves))

    def reply(self, done: list[GeneratedSequence]) -> SelectReply:
        """`done`: the sequences of the prompts, which have ended. Raises ServerError."""
        body, num = self._body, len(self._trie.leaves)
        paths = _paths(self._trie, done[:num], bool(self._ends))
        bare = _paths(self._bare, done[num:], with_end=False)
        sums = [path.logprob for path in paths]
        scores = choices.scores_of(self._method, paths, bare)
        if body.temperature:
            index = choices.draw(choices.softmax(sums, body.temperature), body.sampling_seed)
        else:
            index = choices.best(scores)
        infos = [
            ChoiceInfo(
                text=text,
                num_tokens=len(path.tokens),
                logprob=path.logprob,
                token_logprobs=path.tokens,
                end_logprob=UNSET if path.end is None else path.end,
                unconditional_logprob=bare[i].logprob if bare else UNSET,
            )
            for i, (text, path) in enumerate(zip(body.choices, paths, strict=True))
        ]
        return SelectReply(
            choice=body.choices[index],
            index=index,
            probabilities=choices.softmax(sums),
            scores=scores,
            meta_info=SelectInfo(
                id=self._rid,
                prompt_tokens=self._tokens.prompt_tokens,
                cached_tokens=self._cached(done),
                weight_version=done[0].weights.version,
                choices=infos,
            ),
        )

    def _check_sizes(self, each: list[Ids], context_length: int) -> None:
        """Raises ClientError."""
        before = len(self._tokens.ids) // ID_BYTES
        for i, ids in enumerate(each if self._ends else ()):
            if (num := before + len(ids) + 1) >= context_length:
                raise longer_than_context(f"choices[{i}]", f"{num} tokens, one of them for the end", context_length)
        num_ids = sum(before + len(leaf.ids) for leaf in self._trie.leaves) + sum(map(len, each))
        check_bytes("choices", num_ids * ID_BYTES, "send fewer choices, or a shorter prompt")

    def _prompt(self, index: int) -> Prompt:
        """What comes before a leaf, and the leaf; what is told begins with its token `start`.

        The program asks once: the last leaf behind the prompt is what it comes back to.
        """
        num = len(self._trie.leaves)
        is_bare = index >= num
        trie, at = (self._bare, index - num) if is_bare else (self._trie, index)
        before = self._tokens.opening if is_bare else self._tokens.ids
        leaf, place = trie.leaves[at], f"choices[{trie.choices[at]}]"
        start = len(before) // ID_BYTES + leaf.start
        spec = read_scoring(self._body, start, self._ends, goes_on=index == num - 1)
        contexts, media = ((), ()) if is_bare else (self._tokens.contexts, self._media)
        content = Content(ids=before + pack_ids(leaf.ids), contexts=contexts, media=media)
        return Prompt(self._rid, spec, content, places=FieldPlaces(place))

    def _cached(self, done: list[GeneratedSequence]) -> int:
        """Tokens of the prompt that were cached before: all sequences but the first find it cached."""
        found = min(sequence.opened.cached_tokens for sequence in done[: len(self._trie.leaves)])
        return min(found, self._tokens.prompt_tokens)


def _check_method(method: str, tokens: ChoicesReply) -> None:
    if method == WITH_END and not tokens.ends:
        raise ClientError("method", f"is {method!r}, but this model has no token that ends an output")
    if method == WITHOUT_PROMPT and not tokens.opening:
        raise ClientError("method", f"is {method!r}, but this model has no token that a text begins or ends with")


def _paths(trie: Trie, done: list[GeneratedSequence], with_end: bool) -> list[Path]:
    """Of each choice. A leaf's tokens are those that it shares with the one before, and its own."""
    computed: list[list[Place]] = []  # of each leaf
    places: list[Place] = []
    for leaf, sequence in zip(trie.leaves, done, strict=True):
        _, *own = prompt_places_of(sequence)  # the first is that of the token before
        places = places[: leaf.start] + own
        computed.append(places)
    return [
        _path(computed[leaf][:length], computed[leaf][length].chosen if with_end else None)
        for leaf, length in trie.ways
    ]


def _path(places: list[Place], ends: list[Triple] | None) -> Path:
    """`ends`: of the tokens that may end an output, at the place behind it."""
    tokens = [place.token for place in places]
    if any(value is None for value, _, _ in tokens):
        raise ServerError("The model computed something that is not a number.")
    return Path(tokens, None if ends is None else _total(ends))


def _total(triples: list[Triple]) -> float:
    """Of one or another of these tokens."""
    values = [value for value, _, _ in triples if value is not None]
    most = max(values)
    return most + math.log(math.fsum(math.exp(value - most) for value in values))
