"""Bodies and answers of the chat completions API and of the completions API, as OpenAI and many others speak them.

Knows no HTTP: an answer comes whole or as the chunks of a stream, and both are read by the same code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ramet.frontend.backends.answers import reading
from ramet.frontend.backends.base import Completion, OnText
from ramet.frontend.backends.chat import ChatMessages, TurnMessage, at_length, media_refused, stopped
from ramet.frontend.backends.http import error_of
from ramet.frontend.backends.service import ServiceQuestion
from ramet.frontend.errors import BackendError
from ramet.frontend.media import sent
from ramet.frontend.prompt import MediaPiece

STOPPED = frozenset({"stop", "eos", "eos_token", "stop_sequence"})
SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


def messages(name: str, chat: ChatMessages) -> list[dict[str, Any]]:
    """Without what the assistant's open turn has already. Raises Unsupported for media of another form."""
    return [{"role": message.role, "content": _content_of(name, message)} for message in chat.messages]


def _content_of(name: str, message: TurnMessage) -> str | list[dict[str, Any]]:
    if not message.has_media:
        return message.text
    return [
        _part(name, piece) if isinstance(piece, MediaPiece) else {"type": "text", "text": piece}
        for piece in message.content
    ]


def _part(name: str, piece: MediaPiece) -> dict[str, Any]:
    found = sent(piece.kind, piece.source)
    if piece.kind == "audio" and not found.url:
        if found.mime not in SOUNDS:
            raise media_refused(name, piece, found.mime, SOUNDS)
        return {"type": "input_audio", "input_audio": {"data": found.data, "format": SOUNDS[found.mime]}}
    of = f"{piece.kind}_url"
    return {"type": of, of: {"url": found.as_url}}


def sampling_fields(question: ServiceQuestion, names: Mapping[str, str]) -> dict[str, Any]:
    """Parameters by the names that the service has for them."""
    fields = {names[name]: _plain(name, value) for name, value in question.sampling.items() if name in names}
    if question.stops:
        fields["stop"] = list(question.stops)
    return {**fields, **question.form.fields}


def chat_logprobs(options: Mapping[str, Any]) -> dict[str, Any]:
    if not options.get("return_logprob"):
        return {}
    most = options.get("top_logprobs_num") or 0
    return {"logprobs": True} | ({"top_logprobs": most} if most else {})


def text_logprobs(options: Mapping[str, Any], least: int) -> dict[str, Any]:
    """`least`: number of likely tokens, with which the service tells anything."""
    if not options.get("return_logprob"):
        return {}
    return {"logprobs": max(options.get("top_logprobs_num") or 0, least)}


def _plain(name: str, value: Any) -> Any:
    if name == "logit_bias":
        return {str(token): bias for token, bias in value}
    return list(value) if isinstance(value, tuple) else value


@dataclass
class OpenAIChoice:
    """One output as it comes."""

    text: str = ""
    thought: str = ""
    refusal: str = ""
    ended: str | None = None
    matched: Any = None
    logprobs: list[Any] = field(default_factory=list)
    top_logprobs: list[Any] = field(default_factory=list)


class OpenAIAnswer:
    """Of one call: `add` takes a whole answer, or each chunk of a stream. `on_text` gets the first output's text."""

    def __init__(self, name: str, num: int, on_text: OnText | None = None) -> None:
        self._name, self._on_text = name, on_text
        self._choices = [OpenAIChoice() for _ in range(num)]
        self._usage: Mapping[str, Any] = {}
        self._id: Any = None

    def add(self, part: Any) -> None:
        """Raises BackendError for an error, and for what is no answer."""
        with reading(self._name, part):
            if part.get("error"):
                raise error_of(self._name, part["error"])
            self._id = part.get("id") or self._id
            self._usage = part.get("usage") or self._usage
            texts = [self._add_choice(choice) for choice in part.get("choices") or ()]
        for text in filter(None, texts):
            if self._on_text is not None:
                self._on_text(text)

    def completions(self) -> list[Completion]:
        """At the end. Raises BackendError."""
        with reading(self._name, self._usage):
            return [self._completion(choice) for choice in self._choices]

    def _add_choice(self, part: Mapping[str, Any]) -> str:
        """What is new of the first output's text."""
        index = part.get("index") or 0
        if not 0 <= index < len(self._choices):
            raise BackendError(self._name, f"it answered with output {index} of {len(self._choices)}")
        choice = self._choices[index]
        message = part.get("message") or part.get("delta") or {}
        said, thought = _content(message.get("content"))
        text = part.get("text") or said
        choice.text += text
        choice.thought += message.get("reasoning_content") or message.get("reasoning") or thought
        choice.refusal += message.get("refusal") or ""
        choice.ended = part.get("finish_reason") or choice.ended
        choice.matched = _first(part.get("stop_reason"), part.get("matched_stop"), choice.matched)
        _add_logprobs(choice, part.get("logprobs") or {})
        return text if index == 0 else ""

    def _completion(self, choice: OpenAIChoice) -> Completion:
        if choice.refusal:
            raise BackendError(self._name, f"the model refused: {choice.refusal}")
        meta: dict[str, Any] = {"id": self._id} if self._id is not None else {}
        usage = self._usage
        if "prompt_tokens" in usage:
            details = usage.get("prompt_tokens_details") or {}
            meta |= {"prompt_tokens": usage["prompt_tokens"], "cached_tokens": details.get("cached_tokens") or 0}
        if len(self._choices) == 1 and "completion_tokens" in usage:  # else it is that of all of them
            meta["completion_tokens"] = usage["completion_tokens"]
            thinking = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
            meta |= {"reasoning_tokens": thinking} if thinking else {}
        if choice.logprobs:
            meta["output_token_logprobs"] = choice.logprobs
            meta |= {"output_top_logprobs": choice.top_logprobs} if any(choice.top_logprobs) else {}
        return Completion(choice.text, meta | self._reason(choice, meta), choice.thought or None)

    def _reason(self, choice: OpenAIChoice, meta: Mapping[str, Any]) -> dict[str, Any]:
        if choice.ended is None:
            raise BackendError(self._name, "the answer ended before the output did")
        if choice.ended in STOPPED:
            return stopped(choice.matched)
        if choice.ended == "length":
            return at_length(meta.get("completion_tokens"))
        if choice.ended == "content_filter":
            raise BackendError(self._name, "its content filter ended the output")
        raise BackendError(self._name, f"the output ended for {choice.ended!r}")


def _content(content: Any) -> tuple[str, str]:
    """Text and thought of a message's content, which some services give as a list of parts."""
    if not isinstance(content, list):
        return content or "", ""
    text = "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    thoughts = (part.get("thinking") or "" for part in content if part.get("type") == "thinking")
    return text, "".join(thought if isinstance(thought, str) else _content(thought)[0] for thought in thoughts)


def _add_logprobs(choice: OpenAIChoice, found: Mapping[str, Any]) -> None:
    """As /generate has them: (log-probability, id, text); no API tells ids."""
    for token in found.get("content") or ():
        choice.logprobs.append((token["logprob"], None, token["token"]))
        choice.top_logprobs.append([(top["logprob"], None, top["token"]) for top in token.get("top_logprobs") or ()])
    for i, text in enumerate(found.get("tokens") or ()):
        choice.logprobs.append((found["token_logprobs"][i], None, text))
        tops: Sequence[Mapping[str, float]] = found.get("top_logprobs") or ()
        choice.top_logprobs.append([(value, None, top) for top, value in (tops[i] if tops else {}).items()])


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
