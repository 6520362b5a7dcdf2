"""A server of ramet as a backend, or one of SGLang."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Any, Literal, TypeVar

from ramet.frontend.backends import bodies, sglang
from ramet.frontend.backends.base import Backend, Completion, GenCall, OnText, PromptPlace, SelectCall, SelectedChoice
from ramet.frontend.backends.chat import made
from ramet.frontend.backends.http import HttpClient
from ramet.frontend.backends.sglang import SGLang
from ramet.frontend.backends.templates import template, template_of_model
from ramet.frontend.errors import BackendError, Unsupported
from ramet.frontend.ir import Media
from ramet.frontend.prompt import MediaPiece, Prompt, chained
from ramet.ipc.waits import waited

T = TypeVar("T")
MARK = f"MEDIA_{os.urandom(8).hex().upper()}"  # in the place of a piece, while a template is rendered here
ASKING_S = 10.0  # for the media that it takes
NOT_FOUND = (404, 405)  # what a server without the language's calls answers to them


class Endpoint(Backend):
    """`base_url`: http://HOST:PORT, with or without /v1. `timeout_s`: of one try. `verify`: certificates of https.

    `server`: None: a server that does not know the language's calls is asked once whether it is one of SGLang.
    `chat_template_name`: by which turns become text (templates.py), instead of the template that the server has for its
    model. Raises ValueError.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        verify: bool = True,
        timeout_s: float | None = None,
        chat_template_name: str | None = None,
        server: Literal["ramet", "sglang"] | None = None,
    ) -> None:
        if server not in (None, "ramet", "sglang"):
            raise ValueError(f"server is {server!r}, must be 'ramet', 'sglang' or None")
        if not base_url.startswith(("http://", "https://")):
            hint = "a model of a service is OpenAI(MODEL), Anthropic(MODEL) and the like"
            raise ValueError(f"{base_url!r} is not the URL of a server, which begins with http:// or https://; {hint}")
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self.name = f"the server at {self.base_url}"
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = HttpClient(self.name, self.base_url, headers, timeout_s, verify)
        self._server, self._template = server, None if chat_template_name is None else template(chat_template_name)
        self._sglang: SGLang | None = None
        self._takes: frozenset[str] | None = None  # kinds of media, once it was asked
        self.capabilities = sglang.CAPABILITIES if server == "sglang" else bodies.CAPABILITIES

    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None = None) -> list[Completion]:
        return await self._answer(
            lambda: self._generate(prompt, call, on_text), lambda other: other.generate(prompt, call, on_text)
        )

    async def select(self, prompt: Prompt, call: SelectCall) -> SelectedChoice:
        async def own() -> SelectedChoice:
            body = await made(prompt, lambda: bodies.select_body(self._segments(prompt), call))
            return bodies.selection(self.name, await self._http.post("/language/select", body), call)

        return await self._answer(own, lambda other: other.select(prompt, call))

    async def hold(self, prompt: Prompt, seconds: float) -> None:
        async def own() -> None:
            body = await made(prompt, lambda: bodies.hold_body(self._segments(prompt), seconds))
            await self._http.post_once("/language/generate", body)

        await self._answer(own, lambda other: other.hold(prompt, seconds))

    async def end(self, programs: list[str]) -> None:
        if self.capabilities.follow_ups:  # it was not found to be another server meanwhile
            await self._http.post_once("/language/end", {"programs": programs})

    async def render(self, prompt: Prompt) -> str:
        async def own() -> str:
            segments = await made(prompt, lambda: self._segments(prompt))
            return bodies.rendered(self.name, await self._http.post("/language/render", {"prompt": segments}))

        return await self._answer(own, lambda other: other.render(prompt))

    def check_media(self, node: Media, place: PromptPlace) -> None:
        if (
            self._takes is None and self._server != "sglang" and not self.loop.is_current()
        ):  # there its answer cannot be waited for
            self._takes = waited(self.loop.start(self._asked_media()))
        if self._takes is not None and node.kind not in self._takes:
            raise Unsupported(self.name, node.kind, f"takes no {node.kind} input")
        super().check_media(node, place)

    async def _asked_media(self) -> frozenset[str]:
        """Kinds that its model takes; where it does not say, all: the call will tell."""
        try:
            info = await asyncio.wait_for(self._http.get("/get_model_info"), ASKING_S)
            return frozenset(kind for kind in self.capabilities.media if info.get(f"has_{kind}_understanding", True))
        except (TimeoutError, BackendError, AttributeError):
            return self.capabilities.media

    async def server_info(self) -> dict[str, Any]:
        info: dict[str, Any] = await self._http.get("/get_server_info")
        return info

    async def flush_cache(self) -> None:
        await self._http.tell("/flush_cache?timeout=60")

    async def close(self) -> None:
        await self._http.close()

    async def _generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None) -> list[Completion]:
        body = await made(prompt, lambda: bodies.gen_body(self._segments(prompt), call))
        if on_text is None:
            return bodies.completions(self.name, await self._http.post("/language/generate", body), call.num_samples)
        growing = bodies.Growing(self.name, on_text, call.num_samples)
        async for event in self._http.stream("/language/generate", {**body, "stream": True}):
            growing.add(event)
        return growing.whole()

    def _segments(self, prompt: Prompt) -> list[Any]:
        if self._template is None or not prompt.has_turns:
            return bodies.segments(prompt)
        marked = chained(MARK if isinstance(piece, MediaPiece) else piece for piece in prompt.pieces())
        first, *texts = self._template.render(marked).split(MARK)
        media = bodies.segments(chained(prompt.media()))
        return [first, *chain.from_iterable(zip(media, texts, strict=True))]

    async def _answer(self, own: Callable[[], Awaitable[T]], others: Callable[[SGLang], Awaitable[T]]) -> T:
        """Of ramet's call, or of the server's own dialect, once it is known not to be ramet's."""
        other = await self._ask_model() if self._sglang is None and self._server == "sglang" else self._sglang
        if other is None:
            try:
                return await own()
            except BackendError as error:
                other = await self._recognised(error)
        return await others(other)

    async def _recognised(self, error: BackendError) -> SGLang:
        """After an answer to a language call. Raises the error if the server is one of ramet, or of nobody we know."""
        if error.status not in NOT_FOUND or self._server == "ramet":
            raise error
        try:
            return await self._ask_model()
        except BackendError as other:
            fact = "knows neither ramet's calls nor SGLang's; OpenAI(MODEL, base_url=...) is for others"
            raise BackendError(self.name, fact, other.status) from error

    async def _ask_model(self) -> SGLang:
        info = await self._http.get("/get_model_info")
        if not isinstance(info, dict) or "model_path" not in info:
            raise BackendError(self.name, "its /get_model_info names no model_path")
        known = self._template or template_of_model(str(info["model_path"]))
        self._sglang, self.capabilities = SGLang(self.name, self._http, known), sglang.CAPABILITIES
        return self._sglang
