"""The native API of SGLang servers: texts, whose log-probabilities score choices. `Endpoint` finds out where to use it.

A select is that of docs/http-api.md, exact: prompt and choice are tokenised as one text, and what differs from the
prompt's own tokens is scored. The server tells which tokens it has for a text with their log-probabilities; they are
asked for from a few tokens before the prompt's end on, so that what comes before stays cached.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ramet.frontend.backends.answers import reading
from ramet.frontend.backends.base import Capabilities, Completion, GenCall, OnText, SelectCall, SelectedChoice
from ramet.frontend.backends.bodies import Growing, LanguageEvent, completions, sampling_params
from ramet.frontend.backends.chat import made
from ramet.frontend.backends.http import HttpClient, written
from ramet.frontend.backends.service import together
from ramet.frontend.backends.stops import UntilStop, without_begun_stop
from ramet.frontend.backends.templates import TEMPLATES, TextTemplate
from ramet.frontend.choices import (
    ScoredChoice,
    exact_sequence,
    means,
    picked,
    unconditional_likelihood_normalized,
)
from ramet.frontend.errors import BackendError, Unsupported
from ramet.frontend.media import sent
from ramet.frontend.prompt import Prompt
from ramet.ipc import choices
from ramet.ipc.choices import Path, Scored

WINDOW = 8  # tokens at the prompt's end that may come out differently with a choice behind them; doubled if all do
SAMPLING = frozenset({
    "max_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p", "n",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "min_new_tokens", "sampling_seed",
    "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "custom_params",
    "stream_interval",
})  # fmt: skip
OPTIONS = frozenset({
    "return_logprob", "logprob_start_len", "top_logprobs_num", "token_ids_logprob", "return_text_in_logprobs",
    "priority", "extra_key", "custom_logit_processor", "return_hidden_states",
})  # fmt: skip
PASSED = ("priority", "extra_key")  # of a select, to each of its requests
CAPABILITIES = Capabilities(
    roles=frozenset({"system", "user", "assistant"}),
    held=frozenset({"regex", "json_schema", "ebnf", "structural_tag"}),
    sampling=SAMPLING,
    options=OPTIONS,
    prefixes=True,
    thoughts=False,
    renders=True,
    media=frozenset({"image", "video", "audio"}),
    num_frames=False,
)


class SGLang:
    """`template`: of turns, which the server's native API does not render; None: there is none for its model."""

    def __init__(self, name: str, http: HttpClient, template: TextTemplate | None) -> None:
        self._name, self._http, self._template = name, http, template

    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None) -> list[Completion]:
        self._check(call)
        body = await made(prompt, lambda: self._body(prompt, call))
        if on_text is None:
            return completions(self._name, await self._http.post("/generate", body), call.num_samples)
        params = body["sampling_params"]
        stops = () if params.get("no_stop_trim") else params.get("stop", ())
        growing = WholeEvents(self._name, on_text, call.num_samples, stops)
        async for event in self._http.stream("/generate", {**body, "stream": True}):
            growing.add(event)
        return growing.whole()

    async def select(self, prompt: Prompt, call: SelectCall) -> SelectedChoice:
        if call.method == exact_sequence:
            raise Unsupported(self._name, "select: choices_method", "does not tell which of its tokens end an output")
        text, healed = self.text(prompt), call.options.get("token_healing") is not False
        media = await made(prompt, lambda: _media(prompt))
        if not healed:
            raise Unsupported(self._name, "select: token_healing", "tokenises prompt and choice as one text only")
        for name in call.options:
            if name not in (*PASSED, "token_healing", "sampling_seed"):
                raise Unsupported(self._name, f"select: {name}", "is a server of SGLang, which has no such parameter")
        passed = {name: call.options[name] for name in PASSED if name in call.options}
        paths, num_tokens = await self._paths(text, call.choices, passed | media)
        sums = [path.logprob for path in paths]
        probabilities = choices.softmax(sums)
        meta: dict[str, Any] = {"prompt_tokens": num_tokens, "completion_tokens": 0, "probabilities": probabilities}
        meta["choices"] = [
            {
                "text": choice,
                "num_tokens": len(path.tokens),
                "logprob": path.logprob,
                "token_logprobs": path.tokens,
            }
            for choice, path in zip(call.choices, paths, strict=True)
        ]
        meta |= means(meta["choices"])
        if not isinstance(call.method, str):
            scored = [ScoredChoice(each["text"], each["logprob"], each["token_logprobs"]) for each in meta["choices"]]
            return SelectedChoice(picked(call.method, scored), meta)
        meta["scores"] = scores = await self._scores(call, paths, passed)
        if call.temperature > 0:
            index = choices.draw(choices.softmax(sums, call.temperature), call.options.get("sampling_seed"))
        else:
            index = choices.best(scores)
        return SelectedChoice(index, meta)

    async def hold(self, prompt: Prompt, seconds: float) -> None:
        """The server has no leases: the prompt is computed, and cached as long as there is room."""
        if seconds > 0:
            media = await made(prompt, lambda: _media(prompt))
            body = {"text": self.text(prompt), "sampling_params": {"max_new_tokens": 0}, **media}
            await self._http.post_once("/generate", body)

    async def render(self, prompt: Prompt) -> str:
        return self.text(prompt)

    def text(self, prompt: Prompt) -> str:
        """Raises Unsupported."""
        if not prompt.has_turns:
            return (self._template or TEMPLATES["default"]).plain(prompt)
        if self._template is None:
            why = "is a server of SGLang, which renders no turns, and no chat template is known for its model"
            raise Unsupported(self._name, "a turn", f"{why}: pass chat_template_name")
        return self._template.render(prompt)

    def _check(self, call: GenCall) -> None:
        """Again: the program may have been checked while the server was not known yet. Raises Unsupported."""
        known = SAMPLING | OPTIONS
        for name in (*call.sampling, *call.options):
            if name not in known:
                raise Unsupported(self._name, f"gen: {name}", "is a server of SGLang, which has no such parameter")
        if call.thoughts is not None:
            raise Unsupported(self._name, "gen", "is a server of SGLang, of which thoughts are not separated")

    def _body(self, prompt: Prompt, call: GenCall) -> dict[str, Any]:
        params = sampling_params(call)
        stops = self._template.stops if self._template is not None and prompt.has_turns else ()
        if stops:
            params["stop"] = [*params.get("stop", ()), *stops]
        if (held := call.held) is not None:
            params[held.kind] = held.value if isinstance(held.value, str) else written(held.value).decode()
        return {"text": self.text(prompt), "sampling_params": params, **call.options, **_media(prompt)}

    # -- choices ----------------------------------------------------------------------------------------------------

    async def _paths(self, text: str, each_choice: Sequence[str], passed: Mapping[str, Any]) -> tuple[list[Path], int]:
        """The tokens of each choice behind what all texts have in common, and how many the prompt has."""
        num_tokens = await self._num_tokens(text, passed)
        window = WINDOW
        while True:
            start = max(0, num_tokens - window)
            texts = [text, *(text + choice for choice in each_choice)]
            asked = [self._scored(whole, start, passed) for whole in texts]
            own, *each = await together(asked)
            common = min(num_common(own, tokens) for tokens in each)
            if common > 0 or start == 0:
                return [Path(tokens[common:]) for tokens in each], num_tokens
            window *= 2

    async def _scores(self, call: SelectCall, paths: list[Path], passed: Mapping[str, Any]) -> list[float]:
        bare: list[Path] = []
        if call.method == unconditional_likelihood_normalized:
            each = await together([self._scored(choice, 0, passed) for choice in call.choices])
            bare = [Path(tokens[1:] or tokens) for tokens in each]
        return choices.scores_of(call.method, paths, bare)

    async def _num_tokens(self, text: str, passed: Mapping[str, Any]) -> int:
        body = {"text": text, "sampling_params": {"max_new_tokens": 0}, **passed}
        reply = await self._http.post("/generate", body)
        with reading(self._name, reply):
            return int(reply["meta_info"]["prompt_tokens"])

    async def _scored(self, text: str, start: int, passed: Mapping[str, Any]) -> list[Scored]:
        """The tokens of a text from `start` on; nothing is told of the first one's probability."""
        body = {
            "text": text,
            "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": start,
            **passed,
        }
        reply = await self._http.post("/generate", body)
        with reading(self._name, reply):
            return msgspec.convert(reply["meta_info"]["input_token_logprobs"], list[Scored])


class WholeEvents(Growing):
    """Of events that bring all of an output's text and log-probabilities so far.

    The server cuts a stop text at the output's end, and may have given its beginning before: that is no part of it.
    """

    def __init__(self, name: str, on_text: OnText, num: int, stops: Sequence[str]) -> None:
        """`stops`: texts that the server cuts."""
        self._until = UntilStop(stops, on_text)
        super().__init__(name, self._until.add, num)
        self._stops = stops
        self._unsure: set[int] = set()  # outputs that ended with an event without text

    def _new_text(self, index: int, new: LanguageEvent) -> str:
        output, text, ended = self._outputs[index], new.text, new.meta_info.get("finish_reason")
        if ended and output.text.startswith(text) and self._may_be_cut(output.text[len(text) :]):
            if output.text == text:
                self._unsure.add(index)
            output.text = text
        if not text.startswith(output.text):
            raise BackendError(self._name, "it streams pieces of texts: start it without --stream-output")
        return text[len(output.text) :]

    def _tell(self, told: dict[str, Any], new: Mapping[str, Any]) -> None:
        told |= new

    def _may_be_cut(self, text: str) -> bool:
        return not text or any(stop.startswith(text) for stop in self._stops)

    def whole(self) -> list[Completion]:
        outputs = super().whole()
        for index in self._unsure:
            output = outputs[index]
            output.text = without_begun_stop(output.text, output.meta, self._stops)
        self._until.end(len(outputs[0].text))
        return outputs


def _media(prompt: Prompt) -> dict[str, Any]:
    """Those of each kind in order, as the text has their tokens."""
    fields: dict[str, list[str]] = {}
    for piece in prompt.media():
        fields.setdefault(f"{piece.kind}_data", []).append(sent(piece.kind, piece.source).as_url)
    return fields


def num_common(one: Sequence[Scored], other: Sequence[Scored]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a[1] != b[1]), min(len(one), len(other)))
