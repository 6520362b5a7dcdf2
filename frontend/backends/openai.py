"""OpenAI's API as a backend, and servers that speak it: vLLM, TGI, llama.cpp, SGLang."""

import asyncio
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

from ramet.frontend.backends import openai_wire as wire
from ramet.frontend.backends import templates
from ramet.frontend.backends.base import Completion, OnText, PromptPlace
from ramet.frontend.backends.chat import made, plain_text, read_chat
from ramet.frontend.backends.flavors import FLAVORS, LOGPROBS, OWNERS, Flavor, OpenAIFlavor, ReasoningFlavor
from ramet.frontend.backends.forms import EnforcedForm
from ramet.frontend.backends.http import HttpClient
from ramet.frontend.backends.service import ServiceBackend, ServiceQuestion, bytes_of_choice
from ramet.frontend.backends.stops import without_begun_stop
from ramet.frontend.errors import BackendError, Unsupported
from ramet.frontend.ir import Gen, Held, Select
from ramet.frontend.prompt import Prompt
from ramet.ipc.waits import waited

LOGGER = logging.getLogger("ramet")
BASE_URL = "https://api.openai.com/v1"
ASKING_S = 10.0  # for which server it is
OF_TEXT = re.compile(r"-instruct(-|$)|^(davinci|babbage)-002$")  # OpenAI's models of the completions API
THINKS = re.compile(r"^(o\d|gpt-[5-9])(?!.*-chat)")  # OpenAI's models that think; gpt-5-chat does not


class OpenAI(ServiceBackend):
    """A model of OpenAI, or of a server that speaks its API.

    `api_key`, `base_url`: else OPENAI_API_KEY and OPENAI_BASE_URL of the environment. `is_chat_model`: which of the two
    APIs it is asked by; None: by its name, and of a server of your own both. `chat_template`: a name of templates.py,
    by which turns become text for a model of the completions API. `flavor`: which server it is, one of FLAVORS; None:
    it is asked once which models it has, and whose. `is_azure`: the key is sent as Azure reads it, `api_version` with
    each call; `api_key`, `azure_endpoint` and `api_version`: else AZURE_OPENAI_API_KEY, AZURE_OPENAI_ENDPOINT and
    OPENAI_API_VERSION. `timeout_s`: of one try. Raises ValueError.
    """

    def __init__(
        self,
        model_name: str,
        is_chat_model: bool | None = None,
        chat_template: str | None = None,
        is_azure: bool = False,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        azure_endpoint: str | None = None,
        api_version: str | None = None,
        flavor: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        if is_chat_model is not None and not isinstance(is_chat_model, bool):
            raise ValueError(f"is_chat_model is of type {type(is_chat_model).__name__}, must be True, False or None")
        self.model, self.name = model_name, f"OpenAI({model_name!r})"
        key = api_key or (is_azure and os.environ.get("AZURE_OPENAI_API_KEY")) or os.environ.get("OPENAI_API_KEY")
        headers = {} if not key else {"api-key": key} if is_azure else {"Authorization": f"Bearer {key}"}
        if is_azure:
            api_version = api_version or os.environ.get("OPENAI_API_VERSION")
            url = _azure_url(model_name, base_url, azure_endpoint, api_version)
        elif azure_endpoint is not None:
            raise ValueError(f"azure_endpoint is {azure_endpoint!r}, but is_azure is False")
        else:
            url = base_url or os.environ.get("OPENAI_BASE_URL") or BASE_URL
        self._version = f"?api-version={quote(api_version)}" if api_version else ""
        self._http = HttpClient(self.name, url, headers, timeout_s)
        self._unknown = ""  # why it is not known which server it is
        theirs = is_azure or _is_theirs(url)
        if flavor is None:
            flavor = "openai" if theirs else self._guessed()
        self.flavor = _flavor(flavor, model_name)
        self.samples_itself = self.flavor.samples_itself
        self._template = None if chat_template is None else templates.template(chat_template)
        both = is_chat_model is None and not theirs and self._template is None
        chat = is_chat_model if is_chat_model is not None else both or not OF_TEXT.search(model_name)
        self.capabilities = self.flavor.capabilities(chat, both or not chat)
        if self._template is not None:
            if chat:
                raise ValueError(f"chat_template is given, but {model_name} reads chats itself; is_chat_model=False?")
            self.capabilities = templates.with_turns(self.capabilities)

    def check_gen(self, node: Gen, sampling: Mapping[str, Any], place: PromptPlace) -> None:
        with self._explained():
            super().check_gen(node, sampling, place)
            if not self.flavor.text_logprobs and (not place.has_turns or self._template is not None):
                self._check_tells_nothing(node)

    def check_select(self, node: Select, place: PromptPlace) -> None:
        with self._explained():
            super().check_select(node, place)

    def choice_tokens(self, choices: Sequence[str]) -> int:
        return bytes_of_choice(choices) if self.flavor.enforces_choices else super().choice_tokens(choices)

    def form(self, held: Held | None, kind: type | None, in_turns: bool) -> EnforcedForm:
        return self.flavor.form(held, kind, in_turns and self._template is None)

    def choice_form(self, choices: Sequence[str], in_turns: bool) -> EnforcedForm:
        return self.flavor.choices(choices, in_turns and self._template is None)

    async def ask(self, prompt: Prompt, question: ServiceQuestion, on_text: OnText | None) -> list[Completion]:
        path, body = await made(prompt, lambda: self._call(prompt, question))
        answer = wire.OpenAIAnswer(self.name, question.num_samples, on_text)
        if on_text is None:
            answer.add(await self._http.post(path, body))
        else:
            async for chunk in self._http.stream(path, {**body, **wire.STREAMED}):
                answer.add(chunk)
        outputs = answer.completions()
        if on_text is not None and self.flavor.streams_begun_stops:
            for output in outputs:
                output.text = without_begun_stop(output.text, output.meta, body.get("stop", ()))
        return outputs

    def _call(self, prompt: Prompt, question: ServiceQuestion) -> tuple[str, dict[str, Any]]:
        question = question._replace(sampling=self.flavor.sent(question.sampling))
        options = {name: question.options[name] for name in ("priority", "cache_salt") if name in question.options}
        body = {"model": self.model, **options}
        if prompt.has_turns and self._template is None:
            chat = read_chat(self.name, prompt, self.flavor.joins_turns)
            said = wire.messages(self.name, chat)
            if chat.words:
                said.append({"role": "assistant", "content": chat.words})
                body |= self.flavor.going_on()
            body |= {"messages": said, **wire.sampling_fields(question, self.flavor.chat_names)}
            body |= self.flavor.of_films([piece for piece in prompt.media() if piece.kind == "video"])
            return f"/chat/completions{self._version}", body | wire.chat_logprobs(question.options)
        text = self._template.render(prompt) if self._template is not None else plain_text(self.name, prompt)
        if self._template is not None and prompt.has_turns:
            question = question._replace(stops=[*question.stops, *self._template.stops])
        body |= {"prompt": text, **wire.sampling_fields(question, self.flavor.text_names)}
        if self.flavor.text_logprobs:
            body |= wire.text_logprobs(question.options, self.flavor.least_text_logprobs)
        return f"/completions{self._version}", body

    def _check_tells_nothing(self, node: Gen) -> None:
        """Raises Unsupported where log-probabilities are asked for, which chats have only."""
        what = f"gen({node.name!r})" if node.name else "gen"
        for name in node.options:
            if name in LOGPROBS:
                raise Unsupported(self.name, f"{what}: {name}", "has no such parameter outside of turns")

    def _guessed(self) -> str:
        """Whose models the server has; where that does not say which server it is, "compatible"."""
        if self.loop.is_current():  # it cannot wait for itself
            return self._guess_nothing("it is made on the event loop, which cannot wait for an answer")
        asked: Future[Any] = self.loop.start(asyncio.wait_for(self._http.get(f"/models{self._version}"), ASKING_S))
        try:
            models = waited(asked)["data"]
            return OWNERS.get(models[0].get("owned_by"), "compatible")
        except TimeoutError:
            return self._guess_nothing(f"it did not answer in {ASKING_S:g} s")
        except BackendError as error:
            return self._guess_nothing(str(error))
        except (KeyError, IndexError, TypeError, AttributeError):
            return self._guess_nothing("its answer is not a list of models")

    def _guess_nothing(self, why: str) -> str:
        self._unknown = f"the server did not say what it is, so flavor='compatible' is assumed: {why}"
        LOGGER.warning("%s: %s", self.name, self._unknown)
        return "compatible"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What is refused may be so only because the server is not known."""
        try:
            yield
        except Unsupported as error:
            if not self._unknown:
                raise
            raise Unsupported(self.name, error.what, f"{error.why} ({self._unknown})") from None


def _azure_url(model_name: str, base_url: str | None, endpoint: str | None, api_version: str | None) -> str:
    """`endpoint`: of the resource, whose deployments have versions; without one it is asked by its own API, v1."""
    if base_url is not None and endpoint is not None:
        raise ValueError("base_url and azure_endpoint are both given: one of them says where the model is")
    endpoint = endpoint or os.environ.get("AZURE_OPENAI_ENDPOINT")
    if base_url is not None:
        return base_url
    if not endpoint:
        raise ValueError("is_azure is True, but azure_endpoint is not given: https://NAME.openai.azure.com")
    of_version = f"deployments/{quote(model_name, safe='')}" if api_version else "v1"
    return f"{endpoint.rstrip('/')}/openai/{of_version}"


def _flavor(name: str, model: str) -> Flavor:
    if name not in FLAVORS:
        raise ValueError(f"flavor is {name!r}, must be one of {', '.join(FLAVORS)}")
    if FLAVORS[name] is OpenAIFlavor and THINKS.search(model):
        return ReasoningFlavor()
    return FLAVORS[name]()


def _is_theirs(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")
