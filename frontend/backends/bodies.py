"""The language's calls as bodies of ramet's runtime (docs/language-calls.md): of a server's, and of an LLM's."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ramet.frontend.backends.answers import reading
from ramet.frontend.backends.base import Capabilities, Completion, GenCall, OnText, SelectCall, SelectedChoice
from ramet.frontend.backends.http import error_of
from ramet.frontend.choices import ScoredChoice, exact_sequence, means, picked
from ramet.frontend.errors import BackendError
from ramet.frontend.media import sent
from ramet.frontend.prompt import Contexts, MediaPiece, Prompt

CAPABILITIES = Capabilities(
    held=frozenset({"regex", "json_schema", "ebnf", "structural_tag"}),
    prefixes=True,
    follow_ups=True,
    contexts=True,
    renders=True,
    media=frozenset({"image", "video", "audio"}),
)
NO_OUTPUT = {"max_new_tokens": 0}
LOGPROBS = frozenset(f"{of}_{kind}_logprobs" for of in ("input", "output") for kind in ("token", "top", "token_ids"))


def segments(prompt: Prompt) -> list[Any]:
    """As `prompt` of every body has it. Reads the files of media."""
    found: list[Any] = []
    for turn in prompt.turns():
        items = [_item(piece) for piece in turn.content]
        found += [{"role": turn.role, "content": items, "open": turn.open}] if turn.role else items
    return found


def _item(piece: Any) -> Any:
    if isinstance(piece, Contexts):
        return {"contexts": list(piece.texts)}
    if isinstance(piece, MediaPiece):
        return {piece.kind: sent(piece.kind, piece.source).as_url, **piece.options}
    return piece


def sampling_params(call: GenCall) -> dict[str, Any]:
    """As JSON has them."""
    params = dict(call.sampling)
    if "logit_bias" in params:
        params["logit_bias"] = {str(token): bias for token, bias in params["logit_bias"]}
    return params


def gen_body(prompt: list[Any], call: GenCall) -> dict[str, Any]:
    """The body of /language/generate for the segments of a prompt."""
    fields = call_fields(prompt, call)
    params = sampling_params(call) | fields.pop("sampling_params", {})
    return {"prompt": fields.pop("prompt"), "sampling_params": params, **fields} | _follow_up(call)


def call_fields(prompt: list[Any], call: GenCall) -> dict[str, Any]:
    """The fields of that body beside the parameters that are checked, and the follow-up."""
    fields = {"prompt": prompt, **call.options}
    if call.held is not None:
        fields["sampling_params"] = {call.held.kind: call.held.value}
    if call.thoughts is not None:
        fields |= {"separate_reasoning": True, "reasoning_parser": call.thoughts or None}
    return fields


def _follow_up(call: GenCall | SelectCall) -> dict[str, Any]:
    return {} if call.follow_up is None else {"follow_up": call.follow_up._asdict()}


class LanguageEvent(msgspec.Struct):
    """A reply of /language/generate, or an event of its stream; SGLang's are alike."""

    text: str
    meta_info: dict[str, Any]
    reasoning: str | None = None
    index: int | None = None


class Chosen(msgspec.Struct):
    """A reply of /language/select."""

    index: int
    scores: list[Any]
    probabilities: list[Any]
    meta_info: dict[str, Any]


def completions(name: str, reply: Any, num: int) -> list[Completion]:
    """Of one reply, or of a list with one for each sample. Raises BackendError in the `name` of the backend."""
    replies = reply if isinstance(reply, list) else [reply]
    if len(replies) != num:
        raise BackendError(name, f"it answered with {len(replies)} outputs of {num}")
    return [_completion(name, each) for each in replies]


def _completion(name: str, reply: Any) -> Completion:
    with reading(name, reply):
        output = msgspec.convert(reply, LanguageEvent)
    return ended(name, Completion(output.text, output.meta_info, output.reasoning))


def ended(name: str, output: Completion) -> Completion:
    """An output that was aborted is no result."""
    reason = output.meta.get("finish_reason")
    if reason is None:
        raise BackendError(name, "the stream ended before the output did")
    with reading(name, output.meta):
        if reason["type"] == "abort":
            raise BackendError(name, f"the call was aborted: {reason.get('message')}", reason.get("status_code") or 0)
    return output


def hold_body(prompt: list[Any], seconds: float) -> dict[str, Any]:
    """The body of /language/generate that computes a prompt, no token of an output, and keeps it for so long."""
    fields = hold_fields(prompt, seconds)
    return {"prompt": fields.pop("prompt"), "sampling_params": NO_OUTPUT, **fields}


def hold_fields(prompt: list[Any], seconds: float) -> dict[str, Any]:
    """The fields of that body beside the sampling parameters, NO_OUTPUT."""
    return {"prompt": prompt, "prefix_lease_s": seconds, "token_healing": False}


def select_body(prompt: list[Any], call: SelectCall) -> dict[str, Any]:
    """Of /language/select. A method of the user's own gets the scores of every choice."""
    method = call.method if isinstance(call.method, str) else exact_sequence
    body = {"prompt": prompt, "choices": list(call.choices), "method": method}
    return {**body, "temperature": call.temperature, **call.options, **_follow_up(call)}


def selection(name: str, reply: Any, call: SelectCall) -> SelectedChoice:
    """Raises BackendError, and ValueError for an index of the user's method that no choice has."""
    scored: list[ScoredChoice] = []
    with reading(name, reply):
        found = msgspec.convert(reply, Chosen)
        meta = {**found.meta_info, "scores": found.scores, "probabilities": found.probabilities}
        if not isinstance(call.method, str):
            scored = [ScoredChoice(each["text"], each["logprob"], each["token_logprobs"]) for each in meta["choices"]]
    index = found.index if isinstance(call.method, str) else picked(call.method, scored)
    if not 0 <= index < len(call.choices):
        raise BackendError(name, f"it chose number {index} of {len(call.choices)}")
    with reading(name, reply):
        return SelectedChoice(index, meta | means(meta["choices"]))


def rendered(name: str, reply: Any) -> str:
    """Of /language/render. Raises BackendError."""
    with reading(name, reply):
        return str(reply["text"])


class Growing:
    """Completions of events that bring what is new; `on_text` gets the first one's text. `name`: of the backend."""

    def __init__(self, name: str, on_text: OnText, num: int) -> None:
        self._name, self._on_text = name, on_text
        self._outputs = [Completion("") for _ in range(num)]

    def whole(self) -> list[Completion]:
        """At the end of the events. Raises BackendError."""
        return [ended(self._name, output) for output in self._outputs]

    def add(self, event: Any) -> None:
        """Raises BackendError for an error, and for what is no output."""
        with reading(self._name, event):
            if "error" in event:
                raise error_of(self._name, event["error"])
            new = msgspec.convert(event, LanguageEvent)
            index = new.index or 0
            if not 0 <= index < len(self._outputs):
                raise BackendError(self._name, f"it answered with output {index} of {len(self._outputs)}")
            grown = Completion(self._new_text(index, new), new.meta_info, new.reasoning)
            self._take(index, grown)
        self._pass_on(index, grown.text)

    def grow(self, index: int, new: Completion) -> None:
        """What is new of an output that was read."""
        self._take(index, new)
        self._pass_on(index, new.text)

    def _take(self, index: int, new: Completion) -> None:
        output = self._outputs[index]
        output.text += new.text
        self._tell(output.meta, new.meta)
        if new.thought:
            output.thought = (output.thought or "") + new.thought

    def _pass_on(self, index: int, text: str) -> None:
        if text and index == 0:
            self._on_text(text)

    def _new_text(self, index: int, new: LanguageEvent) -> str:
        return new.text

    def _tell(self, told: dict[str, Any], new: Mapping[str, Any]) -> None:
        """Log-probabilities are those since the event before, everything else is of all so far."""
        for name, value in new.items():
            if name in LOGPROBS and name in told:
                told[name] += value
            else:
                told[name] = value
