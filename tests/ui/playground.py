"""What a user does in the playground."""

from typing import Any

ENDED = ".sample[aria-busy=false]"
LAST_ENDED = ".samples > :last-child[aria-busy=false]"


def set_params(page: Any, **params: Any) -> None:
    for name, value in params.items():
        page.fill(f"#param-{name}", str(value))


def say(page: Any, text: str, as_: str = "markdown") -> str:
    """Sends a message and returns the reply as the page shows it."""
    page.select_option("#shown-as", as_)
    page.fill("#composer", text)
    page.press("#composer", "Enter")
    page.wait_for_selector(ENDED)
    return str(page.inner_text(".sample"))


def complete(page: Any, prompt: str) -> None:
    page.get_by_label("completion", exact=True).check()
    page.fill("#prompt", prompt)
    page.press("#prompt", "Control+Enter")
    page.wait_for_selector(ENDED)


def constrain(page: Any, kind: str, text: str) -> None:
    page.select_option("#constraint-kind", kind)
    page.fill("#constraint-text", text)


def tokens(page: Any, sample: int = 0) -> list[tuple[int, str]]:
    """Id and text of each token that a sample shows."""
    found = page.locator(".sample").nth(sample).locator(".token")
    return [(int(each.get_attribute("title").rsplit(" ", 1)[1]), each.inner_text()) for each in found.all()]
