"""Google's Gemini API as a backend: generateContent and streamGenerateContent."""

import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ramet.frontend.backends.answers import reading
from ramet.frontend.backends.base import Capabilities, Completion, OnText
from ramet.frontend.backends.chat import at_length, made, read_chat, stopped
from ramet.frontend.backends.forms import FREE, EnforcedForm, bare_kind, read_choice
from ramet.frontend.backends.http import HttpClient, error_of
from ramet.frontend.backends.schemas import GEMINI, adapted, with_defs
from ramet.frontend.backends.service import ServiceBackend, ServiceQuestion
from ramet.frontend.errors import BackendError, Unsupported
from ramet.frontend.ir import Held
from ramet.frontend.media import sent
from ramet.frontend.prompt import MediaPiece, Prompt

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
NAMES = {
    "max_new_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "sampling_seed": "seed",
    "n": "candidateCount",
}
JSON = "application/json"
CAPABILITIES = Capabilities(
    completion=False,
    continues=False,
    any_turn=False,
    roles=frozenset({"system", "user", "assistant"}),
    held=frozenset({"json_schema"}),
    select="drawn",
    sampling=frozenset({*NAMES, "stop"}),
    options=frozenset({"return_logprob", "top_logprobs_num", "return_text_in_logprobs"}),
    most_stops=5,
    media=frozenset({"image", "video", "audio"}),
    num_frames=False,
)


class Gemini(ServiceBackend):
    """`api_key`: else GEMINI_API_KEY or GOOGLE_API_KEY of the environment. `thinking`: the API's thinkingConfig, as
    {"thinkingBudget": 0}; thoughts come where a program asks for them. `timeout_s`: of one try.
    """

    capabilities = CAPABILITIES

    def __init__(
        self,
        model_name: str,
        api_key: str | None = None,
        base_url: str | None = None,
        thinking: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.model, self.name = model_name, f"Gemini({model_name!r})"
        self._thinking = dict(thinking or {})
        key = api_key or os.environ.get("GEMINI_API_KEY") or os.environ.get("GOOGLE_API_KEY")
        self._path = f"/{quote(model_name if '/' in model_name else f'models/{model_name}')}"
        headers = {"x-goog-api-key": key} if key else {}
        self._http = HttpClient(self.name, base_url or BASE_URL, headers, timeout_s)

    def form(self, held: Held | None, kind: type | None, in_turns: bool) -> EnforcedForm:
        if held is None:
            return FREE
        if kind is not None:
            schema, read = bare_kind(kind)
            return _json(schema, read)
        return _json(adapted(with_defs(held.value), GEMINI))

    def choice_form(self, choices: Sequence[str], in_turns: bool) -> EnforcedForm:
        schema = {"type": "STRING", "enum": list(choices)}
        return EnforcedForm({"responseMimeType": "text/x.enum", "responseSchema": schema}, read_choice(choices))

    async def ask(self, prompt: Prompt, question: ServiceQuestion, on_text: OnText | None) -> list[Completion]:
        body = await made(prompt, lambda: self._body(prompt, question))
        answer = GeminiAnswer(self.name, question.num_samples, on_text)
        if on_text is None:
            answer.add(await self._http.post(f"{self._path}:generateContent", body))
        else:
            async for part in self._http.stream(f"{self._path}:streamGenerateContent?alt=sse", body):
                answer.add(part)
        return answer.completions()

    def _body(self, prompt: Prompt, question: ServiceQuestion) -> dict[str, Any]:
        system, messages = read_chat(self.name, prompt, joins_turns=True).divided(self.name)
        roles = {"assistant": "model"}
        contents = [
            {"role": roles.get(each.role, each.role), "parts": [self._part(piece) for piece in each.content]}
            for each in messages
        ]
        config = {NAMES[name]: value for name, value in question.sampling.items() if name in NAMES}
        if config.get("topK", -1) < 0:  # all of them, which is said by saying nothing
            config.pop("topK", None)
        config |= {"stopSequences": list(question.stops)} if question.stops else {}
        if question.options.get("return_logprob"):
            most = question.options.get("top_logprobs_num") or 0
            config |= {"responseLogprobs": True} | ({"logprobs": most} if most else {})
        thinking = self._thinking | ({"includeThoughts": True} if question.thoughts else {})
        config |= {**question.form.fields, **({"thinkingConfig": thinking} if thinking else {})}
        instruction = {"systemInstruction": {"parts": [{"text": system}]}} if system else {}
        return {"contents": contents, **instruction, "generationConfig": config}

    def _part(self, piece: str | MediaPiece) -> dict[str, Any]:
        if isinstance(piece, str):
            return {"text": piece}
        found = sent(piece.kind, piece.source)
        if found.url:
            return {"fileData": {"fileUri": found.url}}
        if found.mime.endswith("*"):
            raise Unsupported(self.name, piece.kind, "needs the type of a file, and its first bytes do not tell it")
        return {"inlineData": {"mimeType": found.mime, "data": found.data}}


class GeminiAnswer:
    """Of one call: `add` takes a whole answer, or each part of a stream. `on_text` gets the first output's text."""

    def __init__(self, name: str, num: int, on_text: OnText | None) -> None:
        self._name, self._on_text = name, on_text
        self._outputs = [Completion("") for _ in range(num)]
        self._reasons: list[str | None] = [None] * num
        self._usage: Mapping[str, Any] = {}
        self._id: Any = None

    def add(self, part: Any) -> None:
        """Raises BackendError for an error, and where the prompt was blocked."""
        with reading(self._name, part):
            if "error" in part:
                raise error_of(self._name, part["error"])
            blocked = (part.get("promptFeedback") or {}).get("blockReason")
            if blocked:
                raise BackendError(self._name, f"the prompt was blocked: {blocked}")
            self._usage, self._id = part.get("usageMetadata") or self._usage, part.get("responseId") or self._id
            texts = [text for candidate in part.get("candidates") or () for text in self._add(candidate)]
        for text in filter(None, texts):
            if self._on_text is not None:
                self._on_text(text)

    def completions(self) -> list[Completion]:
        """Raises BackendError for an output that was stopped by the service."""
        with reading(self._name, self._usage):
            for output, reason in zip(self._outputs, self._reasons, strict=True):
                output.meta |= self._counts() | self._ended(reason)
        return self._outputs

    def _add(self, candidate: Mapping[str, Any]) -> list[str]:
        """What is new of the first output's text."""
        index = candidate.get("index") or 0
        if not 0 <= index < len(self._outputs):
            raise BackendError(self._name, f"it answered with output {index} of {len(self._outputs)}")
        output, texts = self._outputs[index], list[str]()
        for part in (candidate.get("content") or {}).get("parts") or ():
            text = part.get("text") or ""
            if part.get("thought"):
                output.thought = (output.thought or "") + text
                continue
            output.text += text
            texts.append(text)
        self._reasons[index] = candidate.get("finishReason") or self._reasons[index]
        _add_logprobs(output.meta, candidate.get("logprobsResult") or {})
        return texts if index == 0 else []

    def _counts(self) -> dict[str, Any]:
        usage, found = self._usage, {"id": self._id} if self._id else {}
        if "promptTokenCount" in usage:
            cached = usage.get("cachedContentTokenCount") or 0
            found |= {"prompt_tokens": usage["promptTokenCount"], "cached_tokens": cached}
        if len(self._outputs) == 1 and "candidatesTokenCount" in usage:  # else it is that of all of them
            thinking = usage.get("thoughtsTokenCount") or 0
            found |= {"completion_tokens": usage["candidatesTokenCount"] + thinking}
            found |= {"reasoning_tokens": thinking} if thinking else {}
        return found

    def _ended(self, reason: str | None) -> dict[str, Any]:
        if reason is None:
            raise BackendError(self._name, "the answer ended before the output did")
        if reason == "STOP":
            return stopped()
        if reason == "MAX_TOKENS":
            return at_length(self._counts().get("completion_tokens"))
        raise BackendError(self._name, f"the output was ended by the service: {reason}")


def _json(schema: Mapping[str, Any], read: Any = None) -> EnforcedForm:
    return EnforcedForm({"responseMimeType": JSON, "responseJsonSchema": schema}, read)


def _add_logprobs(meta: dict[str, Any], found: Mapping[str, Any]) -> None:
    """As /generate has them: (log-probability, id, text)."""
    for each in found.get("chosenCandidates") or ():
        meta.setdefault("output_token_logprobs", []).append(_triple(each))
    for tops in found.get("topCandidates") or ():
        meta.setdefault("output_top_logprobs", []).append([_triple(each) for each in tops.get("candidates") or ()])


def _triple(each: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return each.get("logProbability"), each.get("tokenId"), each.get("token")
