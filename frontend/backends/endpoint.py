"""A server of ramet as a backend."""

from typing import Any

from ramet.frontend.backends import bodies
from ramet.frontend.backends.base import Backend, Completion, GenCall, SelectCall, Selection, Told
from ramet.frontend.backends.http import HttpClient
from ramet.frontend.errors import BackendError
from ramet.frontend.prompt import Prompt


class Endpoint(Backend):
    """`base_url`: http://HOST:PORT, with or without /v1. `timeout_s`: of one call. `verify`: certificates of https."""

    capabilities = bodies.CAPABILITIES

    def __init__(
        self, base_url: str, api_key: str | None = None, verify: bool = True, timeout_s: float | None = None
    ) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self.name = f"the server at {self.base_url}"
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = HttpClient(self.name, self.base_url, self.loop, headers, timeout_s, verify)

    async def generate(self, prompt: Prompt, call: GenCall, told: Told | None = None) -> list[Completion]:
        body = bodies.gen_body(prompt, call)
        if told is None:
            return bodies.completions(self.name, await self._http.post("/language/generate", body))
        growing = bodies.Growing(told, call.num_samples)
        async for event in self._http.stream("/language/generate", {**body, "stream": True}):
            self._check(event)
            growing.add(event)
        return growing.whole(self.name)

    async def select(self, prompt: Prompt, call: SelectCall) -> Selection:
        reply = await self._http.post("/language/select", bodies.select_body(prompt, call))
        return bodies.selection(reply, call)

    async def hold(self, prompt: Prompt, seconds: float) -> None:
        await self._http.post("/language/generate", bodies.hold_body(prompt, seconds))

    async def render(self, prompt: Prompt) -> str:
        reply = await self._http.post("/language/render", {"prompt": bodies.segments(prompt)})
        return str(reply["text"])

    async def flush_cache(self) -> None:
        await self._http.post("/flush_cache?timeout=60")

    async def close(self) -> None:
        await self._http.close()

    def _check(self, event: Any) -> None:
        if "error" in event:
            error = event["error"]
            code = error.get("code")
            raise BackendError(self.name, str(error.get("message")), code if isinstance(code, int) else 0)
