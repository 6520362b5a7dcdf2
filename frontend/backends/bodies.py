"""The language's calls as bodies of ramet's runtime (docs/language-calls.md): of a server's, and of an LLM's."""

from collections.abc import Mapping
from typing import Any

from ramet.frontend.backends.base import Capabilities, Completion, GenCall, SelectCall, Selection
from ramet.frontend.choices import ScoredChoice, exact_sequence, picked
from ramet.frontend.errors import BackendError
from ramet.frontend.prompt import Contexts, MediaPiece, Prompt

CAPABILITIES = Capabilities(
    held=frozenset({"regex", "json_schema", "ebnf", "structural_tag"}),
    prefixes=True,
    follow_ups=True,
    contexts=True,
    renders=True,
)
LOGPROBS = frozenset(f"{of}_{kind}_logprobs" for of in ("input", "output") for kind in ("token", "top", "token_ids"))


def segments(prompt: Prompt) -> list[Any]:
    """As `prompt` of every body has it."""
    found: list[Any] = []
    for turn in prompt.turns():
        items = [_item(piece) for piece in turn.content]
        found += [{"role": turn.role, "content": items, "open": turn.open}] if turn.role else items
    return found


def _item(piece: Any) -> Any:
    if isinstance(piece, Contexts):
        return {"contexts": list(piece.texts)}
    return {piece.kind: piece.source} if isinstance(piece, MediaPiece) else piece


def sampling_params(call: GenCall) -> dict[str, Any]:
    """As JSON has them."""
    params = dict(call.sampling)
    if "logit_bias" in params:
        params["logit_bias"] = {str(token): bias for token, bias in params["logit_bias"]}
    return params


def gen_body(prompt: Prompt, call: GenCall) -> dict[str, Any]:
    """Of /language/generate."""
    params = sampling_params(call)
    if call.held is not None:
        params[call.held.kind] = call.held.value
    body = {"prompt": segments(prompt), "sampling_params": params, **call.options}
    if call.thoughts is not None:
        body |= {"separate_reasoning": True, "reasoning_parser": call.thoughts or None}
    return body | _follow_up(call)


def _follow_up(call: GenCall | SelectCall) -> dict[str, Any]:
    return {} if call.follow_up is None else {"follow_up": call.follow_up._asdict()}


def completions(name: str, reply: Any) -> list[Completion]:
    """Of one reply, or of a list with one for each sample. Raises BackendError in the `name` of the backend."""
    replies = reply if isinstance(reply, list) else [reply]
    return [_ended(name, Completion(each["text"], each["meta_info"], each.get("reasoning"))) for each in replies]


def _ended(name: str, output: Completion) -> Completion:
    """An output that was aborted is no result."""
    reason = output.meta.get("finish_reason")
    if reason is None:
        raise BackendError(name, "the stream ended before the output did")
    if reason["type"] == "abort":
        raise BackendError(name, f"the call was aborted: {reason.get('message')}", reason.get("status_code") or 0)
    return output


def hold_body(prompt: Prompt, seconds: float) -> dict[str, Any]:
    """Of /language/generate: compute the prompt, no token of an output, and keep it for so long."""
    sampling = {"max_new_tokens": 0}
    return {"prompt": segments(prompt), "sampling_params": sampling, "prefix_lease_s": seconds, "token_healing": False}


def select_body(prompt: Prompt, call: SelectCall) -> dict[str, Any]:
    """Of /language/select. A method of the user's own gets the scores of every choice."""
    method = call.method if isinstance(call.method, str) else exact_sequence
    body = {"prompt": segments(prompt), "choices": list(call.choices), "method": method}
    return {**body, "temperature": call.temperature, **call.options, **_follow_up(call)}


def selection(reply: Mapping[str, Any], call: SelectCall) -> Selection:
    meta = {**reply["meta_info"], "scores": reply["scores"], "probabilities": reply["probabilities"]}
    if isinstance(call.method, str):
        return Selection(reply["index"], meta)
    scored = [ScoredChoice(each["text"], each["logprob"], each["token_logprobs"]) for each in meta["choices"]]
    return Selection(picked(call.method, scored), meta)


class Growing:
    """Completions of events that bring what is new; `on_text` gets the first one's text."""

    def __init__(self, on_text: Any, num: int) -> None:
        self._on_text = on_text
        self._outputs = [Completion("") for _ in range(num)]

    def whole(self, name: str) -> list[Completion]:
        """At the end of the events. Raises BackendError."""
        return [_ended(name, output) for output in self._outputs]

    def add(self, event: Mapping[str, Any]) -> None:
        output = self._outputs[event.get("index") or 0]
        output.text += event["text"]
        self._tell(output.meta, event["meta_info"])
        if event.get("reasoning"):
            output.thought = (output.thought or "") + event["reasoning"]
        if output is self._outputs[0] and event["text"]:
            self._on_text(event["text"])

    def _tell(self, told: dict[str, Any], new: Mapping[str, Any]) -> None:
        """Log-probabilities are those since the event before, everything else is of all so far."""
        for name, value in new.items():
            if name in LOGPROBS and name in told:
                told[name] += value
            else:
                told[name] = value
