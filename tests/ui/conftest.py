"""What drives the page: one Chromium, one server with the bundled model, and for each test a page that is watched.

The tests are marked `ui`; playwright is imported by fixtures alone, so that they can be collected without it.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import browser
import pytest
from live import Live

sys.path.insert(0, str(Path(__file__).parent))
TIMEOUT_MS = 15_000


@dataclass
class Watch:
    """What a page did that it should not do. A test that provokes a console message says which."""

    origin: str
    messages: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # requests to anywhere else
    allowed: list[re.Pattern[str]] = field(default_factory=list)

    def follow(self, page: Any) -> None:
        page.on("console", lambda message: self._console(message.type, message.text))
        page.on("pageerror", lambda error: self.messages.append(f"exception: {error}"))
        page.on("request", lambda request: self._request(request.url))

    def _console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(each.search(text) for each in self.allowed):
            self.messages.append(f"{kind}: {text}")

    def _request(self, url: str) -> None:
        if not url.startswith((self.origin + "/", "data:", "blob:")):
            self.left.append(url)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's: `make test-ui` installs playwright's package and no browser of it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=browser.chromium())
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Live]:
    with Live(context_length=4096) as live:
        yield live


@pytest.fixture
def watch(server: Live) -> Watch:
    return Watch(server.url)


@contextmanager
def opened(chromium: Any, url: str, watch: Watch, **options: Any) -> Iterator[Any]:
    """The page as a browser opens it, in a profile of its own; at the end it must have done nothing wrong."""
    context = chromium.new_context(viewport={"width": 1200, "height": 900}, **options)
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    watch.follow(page)
    page.goto(url)
    yield page
    context.close()
    assert watch.messages == [] and watch.left == []


@pytest.fixture
def page(chromium: Any, server: Live, watch: Watch) -> Iterator[Any]:
    with opened(chromium, server.url, watch) as page:
        page.wait_for_selector("#composer")
        yield page
