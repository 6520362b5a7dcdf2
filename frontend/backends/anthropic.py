"""Anthropic's Messages API as a backend."""

import os
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from ramet.frontend.backends.answers import reading
from ramet.frontend.backends.base import Capabilities, Completion, OnText, PromptPlace
from ramet.frontend.backends.chat import TurnMessage, at_length, made, media_refused, read_chat, stopped
from ramet.frontend.backends.forms import FREE, EnforcedForm, Schema, schema_of, schema_of_choices
from ramet.frontend.backends.http import HttpClient, error_of
from ramet.frontend.backends.schemas import ANTHROPIC
from ramet.frontend.backends.service import CHOICE_TOKENS, ServiceBackend, ServiceQuestion, bytes_of_choice
from ramet.frontend.errors import BackendError, Unsupported
from ramet.frontend.ir import Held
from ramet.frontend.media import sent
from ramet.frontend.prompt import MediaPiece, Prompt

BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
TOOL = "answer"  # of models that keep to a schema as the arguments of a tool
NAMES = {"max_new_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2}))?(?!\d)")
NEWEST = (1 << 30, 0)  # of a name that says no version
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_write_exactly = msgspec.json.Encoder(decimal_format="number").encode


class ModelTraits(NamedTuple):
    """What a model's version decides, as the service's migration guides say it."""

    version: tuple[int, int]

    @classmethod
    def named(cls, name: str) -> "ModelTraits":
        found = VERSION.search(name)
        return cls((int(found[1]), int(found[2] or 0)) if found else NEWEST)

    @property
    def goes_on(self) -> bool:
        """Takes a beginning of its own turn: 4.5 and before."""
        return self.version <= (4, 5)

    @property
    def sampling(self) -> bool:
        """Takes temperature, top_p and top_k: 4.6 and before."""
        return self.version <= (4, 6)

    @property
    def formats(self) -> bool:
        """Keeps its text to a schema: 4.5 and after. Those before follow a tool's schema, by their training only."""
        return self.version >= (4, 5)


class Anthropic(ServiceBackend):
    """`api_key`: else ANTHROPIC_API_KEY of the environment. `thinking`: the API's object of that name, with which the
    model thinks first: {"type": "enabled", "budget_tokens": 2048}, {"type": "adaptive", "display": "summarized"}.
    `prefill`: whether the model goes on inside its turn; None: by its version. `timeout_s`: of one try.
    """

    samples_itself = False

    def __init__(
        self,
        model_name: str,
        api_key: str | None = None,
        base_url: str | None = None,
        thinking: Mapping[str, Any] | None = None,
        prefill: bool | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.model, self.name = model_name, f"Anthropic({model_name!r})"
        self._model, self._thinking = ModelTraits.named(model_name), dict(thinking or {})
        url = (base_url or os.environ.get("ANTHROPIC_BASE_URL") or BASE_URL).rstrip("/").removesuffix("/v1")
        key = api_key or os.environ.get("ANTHROPIC_API_KEY")
        headers = {"anthropic-version": API_VERSION, **({"x-api-key": key} if key else {})}
        self._http = HttpClient(self.name, url, headers, timeout_s, read=_read_exactly)
        self._thinks = self._thinking.get("type", "disabled") != "disabled"
        goes_on = (self._model.goes_on if prefill is None else prefill) and not self._thinks
        self.capabilities = capabilities(self._model, goes_on, self._thinks)

    def form(self, held: Held | None, kind: type | None, in_turns: bool) -> EnforcedForm:
        if held is None:
            return FREE
        return self._json(schema_of(held, kind, ANTHROPIC if self._model.formats else None))

    def choice_form(self, choices: Sequence[str], in_turns: bool) -> EnforcedForm:
        return self._json(schema_of_choices(choices))

    def _json(self, schema: Schema) -> EnforcedForm:
        if self._model.formats:
            return EnforcedForm(
                {"output_config": {"format": {"type": "json_schema", "schema": schema.schema}}}, schema.read
            )
        tool = {"name": TOOL, "description": "Gives the answer.", "input_schema": schema.schema}
        return EnforcedForm({"tools": [tool], "tool_choice": {"type": "tool", "name": TOOL}}, schema.read or _whole)

    def choice_tokens(self, choices: Sequence[str]) -> int:
        if self._thinks:  # max_tokens counts its thoughts, and must be more than their budget
            return int(self._thinking.get("budget_tokens") or 0) + CHOICE_TOKENS
        return bytes_of_choice(choices) if self._model.formats else CHOICE_TOKENS

    def check_form(self, what: str, form: EnforcedForm, place: PromptPlace) -> None:
        if form.fields and place.turn_has_text:
            raise Unsupported(self.name, what, "keeps to a form only whole turns, and this one has text already")
        if "tools" in form.fields and self._thinks:
            raise Unsupported(self.name, what, "cannot be made to call a tool, which holds the answer, while it thinks")

    async def ask(self, prompt: Prompt, question: ServiceQuestion, on_text: OnText | None) -> list[Completion]:
        body, blanks = await made(prompt, lambda: self._body(prompt, question))
        answer = AnthropicAnswer(self.name, question, _without(blanks, on_text))
        if on_text is None:
            answer.take(await self._http.post("/v1/messages", body))
        else:
            async for event in self._http.stream("/v1/messages", {**body, "stream": True}):
                answer.add(event)
        (output,) = answer.completions()
        output.text = output.text.removeprefix(blanks)
        return [output]

    def _body(self, prompt: Prompt, question: ServiceQuestion) -> tuple[dict[str, Any], str]:
        """And the blanks at the end of the turn's words, which the API does not take: the output begins with them."""
        chat = read_chat(self.name, prompt, joins_turns=True)
        system, messages = chat.divided(self.name)
        said: list[dict[str, Any]] = [{"role": each.role, "content": self._content(each)} for each in messages]
        words = chat.words.rstrip()
        if words:
            said.append({"role": "assistant", "content": words})
        body: dict[str, Any] = {"model": self.model, "messages": said, **question.form.fields}
        body |= {NAMES[name]: value for name, value in question.sampling.items() if name in NAMES}
        if body.get("top_k", -1) < 0:  # all of them, which is said by saying nothing
            body.pop("top_k", None)
        stops = [stop for stop in question.stops if stop.strip()]  # others are refused, and cut where answers are read
        body |= ({"system": system} if system else {}) | ({"stop_sequences": stops} if stops else {})
        return body | ({"thinking": self._thinking} if self._thinking else {}), chat.words[len(words) :]

    def _content(self, message: TurnMessage) -> str | list[dict[str, Any]]:
        if not message.has_media:
            return message.text
        return [
            self._block(piece) if isinstance(piece, MediaPiece) else {"type": "text", "text": piece}
            for piece in message.content
            if isinstance(piece, MediaPiece) or piece.strip()  # a block of blanks is refused
        ]

    def _block(self, piece: MediaPiece) -> dict[str, Any]:
        found = sent(piece.kind, piece.source)
        if found.url:
            return {"type": "image", "source": {"type": "url", "url": found.url}}
        if found.mime not in PICTURES:
            raise media_refused(self.name, piece, found.mime, PICTURES)
        return {"type": "image", "source": {"type": "base64", "media_type": found.mime, "data": found.data}}


def capabilities(model: ModelTraits, goes_on: bool, thinks: bool = False) -> Capabilities:
    sampled = set(NAMES) if model.sampling else {"max_new_tokens"}
    if thinks:
        sampled -= {"temperature", "top_k"}  # refused with thoughts
    return Capabilities(
        completion=False,
        continues=goes_on,
        any_turn=False,
        roles=frozenset({"system", "user", "assistant"}),
        held=frozenset({"json_schema", "regex"}) if model.formats else frozenset({"json_schema"}),
        select="drawn",
        sampling=frozenset(sampled | {"stop", "n"}),
        options=frozenset(),
        media=frozenset({"image"}),
    )


class AnthropicAnswer:
    """Of one call: `take` of a whole message, `add` of each event of a stream. `on_text` gets the text."""

    def __init__(self, name: str, question: ServiceQuestion, on_text: OnText | None) -> None:
        self._name, self._on_text = name, on_text
        self._by_tool = "tools" in question.form.fields
        self._text = self._thought = self._input = ""
        self._meta: dict[str, Any] = {}
        self._ended: str | None = None
        self._matched: str | None = None

    def take(self, message: Any) -> None:
        """Raises BackendError for what is no message."""
        with reading(self._name, message):
            self._start(message)
            for block in message["content"]:
                self._text += block.get("text") or ""
                self._thought += block.get("thinking") or ""
                if block.get("type") == "tool_use":
                    self._input = _write_exactly(block["input"]).decode()
            self._end(message)

    def add(self, event: Any) -> None:
        """Raises BackendError for an error, and for what is no event."""
        num = len(self._text)
        with reading(self._name, event):
            self._read(event)
        if self._on_text is not None and len(self._text) > num:
            self._on_text(self._text[num:])

    def _read(self, event: Mapping[str, Any]) -> None:
        match event:
            case {"type": "message_start", "message": message}:
                self._start(message)
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}:
                self._text += text
            case {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": thought}}:
                self._thought += thought
            case {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": part}}:
                self._input += part
            case {"type": "message_delta", "delta": delta}:
                self._end({**delta, "usage": event.get("usage")})
            case {"type": "error", "error": error}:
                raise error_of(self._name, error)

    def completions(self) -> list[Completion]:
        """Raises BackendError for an output that ended in no way that has a text."""
        match self._ended:
            case None:
                raise BackendError(self._name, "the stream ended before the output did")
            case "max_tokens" | "model_context_window_exceeded":
                self._meta |= at_length(self._meta.get("completion_tokens"))
            case "end_turn" | "stop_sequence" | "tool_use":
                self._meta |= stopped(self._matched)
            case "refusal":
                raise BackendError(self._name, "the model refused to answer")
            case other:
                raise BackendError(self._name, f"the output ended for {other!r}")
        text = self._input if self._by_tool else self._text
        return [Completion(text, self._meta, self._thought or None)]

    def _start(self, message: Mapping[str, Any]) -> None:
        usage = message.get("usage") or {}
        cached, written = (usage.get(f"cache_{way}_input_tokens") or 0 for way in ("read", "creation"))
        self._meta |= {"id": message["id"]} if "id" in message else {}
        self._meta |= {"prompt_tokens": (usage.get("input_tokens") or 0) + cached + written, "cached_tokens": cached}

    def _end(self, part: Mapping[str, Any]) -> None:
        self._ended = part.get("stop_reason") or self._ended
        self._matched = part.get("stop_sequence") or self._matched
        tokens = (part.get("usage") or {}).get("output_tokens")
        self._meta |= {"completion_tokens": tokens} if tokens is not None else {}


def _read_exactly(text: bytes) -> Any:
    """JSON whose numbers keep their digits, because an answer may be the input of a tool. Raises ValueError."""
    try:
        return _decode(text)
    except (ArithmeticError, RecursionError) as error:  # an exponent that Decimal does not hold, or too many levels
        raise ValueError(str(error)) from error


def _whole(answer: str) -> str:
    return answer


def _without(blanks: str, on_text: OnText | None) -> OnText | None:
    """`on_text` of what follows the blanks that an output begins with."""
    if on_text is None or not blanks:
        return on_text
    rest: str | None = ""  # what may still be part of them; None: they are behind us

    def hear(text: str) -> None:
        nonlocal rest
        if rest is not None:
            text = rest + text
            if blanks.startswith(text) and text != blanks:
                rest = text
                return
            rest, text = None, text.removeprefix(blanks)
        if text:
            on_text(text)

    return hear
