"""What the language's calls answer, to the server's clients and to programs alike."""

from msgspec import UNSET, UnsetType

from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.intake.parsers.tools import Thought
from ramet.runtime.intake.reading import OutputReader
from ramet.runtime.intake.reply import GrowingReply, MetaInfo, Reply, meta_info, prompt_ids_of
from ramet.runtime.replies.logprobs import Triple


class LanguageReply(Reply, frozen=True, kw_only=True):
    """An output, or what is new of it in an event of a stream. `reasoning` is there if it was to be separated."""

    text: str
    reasoning: str | UnsetType | None = UNSET
    output_ids: list[int]
    meta_info: MetaInfo
    index: int | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class ChoiceInfo(Reply, frozen=True, kw_only=True):
    """`logprob` is the sum over its tokens, [logprob, id, text]; `unconditional_logprob` that without the prompt."""

    text: str
    num_tokens: int
    logprob: float
    token_logprobs: list[Triple]
    end_logprob: float | UnsetType = UNSET
    unconditional_logprob: float | UnsetType = UNSET


class SelectInfo(Reply, frozen=True, kw_only=True):
    id: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int = 0
    weight_version: str
    choices: list[ChoiceInfo]


class SelectReply(Reply, frozen=True, kw_only=True):
    """`probabilities` and `scores` are in the order of the choices; the scores are those of the method."""

    choice: str
    index: int
    probabilities: list[float]
    scores: list[float]
    meta_info: SelectInfo


class RenderedPrompt(Reply, frozen=True):
    text: str
    num_tokens: int


class Ended(Reply, frozen=True):
    """How many programs were named."""

    programs: int


class LanguageOutput(GrowingReply):
    """One sequence, its thought apart from its text where it has a reader."""

    def __init__(self, sequence: GeneratedSequence, index: int | UnsetType, reader: OutputReader | None) -> None:
        super().__init__(sequence, index)
        self._reader = reader
        self._closed = False  # its end was read

    def new(self) -> LanguageReply:
        """What came since the last time; of a sequence that has ended and was not read before, all of it."""
        texts, ids = self._sequence.take()
        text, thought = self._read(texts)
        counted = {} if self._reader is None else {"reasoning_tokens": self._reader.reasoning_tokens}
        return LanguageReply(
            text=text,
            reasoning=UNSET if self._reader is None else thought or None,
            output_ids=ids,
            meta_info=meta_info(self._sequence, self._new_logprobs() | counted),
            index=self._index,
            prompt_token_ids=prompt_ids_of(self._sequence),
        )

    def _read(self, texts: list[str]) -> tuple[str, str]:
        """(text, thought) of what is new."""
        ends = self._sequence.finish is not None and not self._closed
        self._closed = self._closed or ends
        tail = self._sequence.tail if ends else ""
        if self._reader is None:
            return "".join(texts) + tail, ""
        parts = [part for text in texts for part in self._reader.push(text)]
        parts += self._reader.close(tail) if ends else []
        said = "".join(part for part in parts if isinstance(part, str))
        return said, "".join(part.text for part in parts if isinstance(part, Thought))
