"""Every service that the library LiteLLM speaks to, as a backend. The library is imported where it is needed only."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from ramet.frontend.backends import openai_wire as wire
from ramet.frontend.backends.base import Capabilities, Completion, OnText
from ramet.frontend.backends.chat import made, read_chat
from ramet.frontend.backends.flavors import CHAT_ROLES, COMMON, LOGPROBS, Flavor
from ramet.frontend.backends.forms import EnforcedForm
from ramet.frontend.backends.http import BUSY, pause_s, waits_s
from ramet.frontend.backends.service import ServiceBackend, ServiceQuestion
from ramet.frontend.errors import BackendError
from ramet.frontend.ir import Held
from ramet.frontend.prompt import Prompt

CAPABILITIES = Capabilities(
    completion=False,
    continues=False,
    any_turn=False,
    roles=CHAT_ROLES,
    held=Flavor.held,
    select="drawn",
    sampling=frozenset({*COMMON, "stop"}),
    options=LOGPROBS,
    most_stops=4,
    media=Flavor.media,
    num_frames=False,
)


class LiteLLM(ServiceBackend):
    """`model_name`: as LiteLLM names it, "PROVIDER/MODEL". `arguments`: of its `acompletion`: api_key, api_base, ...

    What a provider cannot do is known to the library only, which says it when it is called. Raises ImportError.
    """

    capabilities = CAPABILITIES

    def __init__(self, model_name: str, **arguments: Any) -> None:
        self.model, self.name = model_name, f"LiteLLM({model_name!r})"
        self._arguments, self._library, self._flavor = arguments, _library(), Flavor()

    def form(self, held: Held | None, kind: type | None, in_turns: bool) -> EnforcedForm:
        return self._flavor.form(held, kind, in_turns)

    def choice_form(self, choices: Sequence[str], in_turns: bool) -> EnforcedForm:
        return self._flavor.choices(choices, in_turns)

    async def ask(self, prompt: Prompt, question: ServiceQuestion, on_text: OnText | None) -> list[Completion]:
        chat = read_chat(self.name, prompt)
        messages = await made(prompt, lambda: wire.messages(self.name, chat))
        body = {"model": self.model, "messages": messages, **self._arguments}
        body |= {**wire.sampling_fields(question, COMMON), **wire.chat_logprobs(question.options)}
        answer = wire.OpenAIAnswer(self.name, question.num_samples, on_text)
        try:
            if on_text is None:
                answer.add(_plain(await self._called(body)))
            else:
                async for chunk in await self._called({**body, **wire.STREAMED}):
                    answer.add(_plain(chunk))
        except BackendError:
            raise
        except Exception as error:
            raise BackendError(self.name, str(error), _status(error)) from error
        return answer.completions()

    async def close(self) -> None:
        """The library keeps its connections."""

    async def _called(self, body: Mapping[str, Any]) -> Any:
        """The library's answer; where the service is busy, after further tries."""
        for wait_s in waits_s():
            try:
                return await self._library.acompletion(**body)
            except Exception as error:
                if _status(error) not in BUSY or wait_s is None:
                    raise
                said = getattr(error, "response", None)
                await asyncio.sleep(pause_s(getattr(said, "headers", {}), wait_s))
        raise AssertionError("the last try returns or raises")


def _status(error: Exception) -> int:
    """That of the library's own errors; 0: it has none."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else 0


def _library() -> ModuleType:
    try:
        return import_module("litellm")
    except ImportError as error:
        raise ImportError("LiteLLM() needs its library: pip install litellm", name="litellm") from error


def _plain(value: Any) -> Mapping[str, Any]:
    """An answer of the library as plain values."""
    found: Mapping[str, Any] = value.model_dump() if hasattr(value, "model_dump") else value
    return found
