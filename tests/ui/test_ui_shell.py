"""The frame of the page: the banner, keys, theme, what a keyboard reaches, and how every view looks."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from conftest import Watch, opened
from live import Live
from playground import ENDED, say, set_params, tokens

pytestmark = pytest.mark.ui
VIEWS = ("playground", "tree", "queue", "charts")
SHOTS = Path(__file__).resolve().parents[2] / "build" / "ui-screenshots"
UNREACHED = re.compile("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|Failed to load resource|ui/live")


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def test_the_page_says_that_the_server_is_gone_and_recovers(chromium: Any, port: int) -> None:
    from playwright.sync_api import expect

    watch = Watch(f"http://127.0.0.1:{port}", allowed=[UNREACHED])
    with Live(port=port) as first, opened(chromium, first.url, watch) as page:
        set_params(page, temperature=0, max_new_tokens=8)
        say(page, "What is the capital of Peru?")
        assert page.locator(".banner").is_hidden()
        page.get_by_text("More parameters").click()
        first.kill()
        page.wait_for_selector(".banner:has-text('does not answer')")
        page.mouse.wheel(0, 5000)
        expect(page.locator(".banner")).to_be_in_viewport()
        page.fill("#composer", "And of Chile?")
        page.press("#composer", "Enter")
        page.wait_for_selector(".sample .problem:has-text('Not answered.')")
        with Live(port=port):
            page.locator(".banner").wait_for(state="hidden")
            page.get_by_role("button", name="Again").click()
            page.wait_for_selector(".sample[aria-busy=false] .markdown")
            assert page.locator(".sample .problem").count() == 0 and page.locator(".turn").count() == 3


def test_an_output_that_breaks_off_says_so(chromium: Any, port: int) -> None:
    watch = Watch(f"http://127.0.0.1:{port}", allowed=[UNREACHED])
    with Live(port=port) as server, opened(chromium, server.url, watch) as page:
        page.get_by_text("More parameters").click()
        page.select_option("#param-ignore_eos", "true")
        set_params(page, max_new_tokens=3500)
        page.fill("#composer", "Count.")
        page.press("#composer", "Enter")
        page.wait_for_selector(".sample footer:has-text('tokens')")
        server.kill()
        page.wait_for_selector(".sample[aria-busy=false] .problem")


@pytest.fixture(scope="module")
def keyed() -> Iterator[Live]:
    with Live(api_key="user-key", admin_api_key="admin-key") as live:
        yield live


def test_the_key_is_asked_for_and_kept_in_the_tab_alone(chromium: Any, keyed: Live) -> None:
    watch = Watch(keyed.url, allowed=[UNREACHED])
    with opened(chromium, keyed.url, watch) as page:
        assert "Authorization" not in page.inner_text("dialog")
        assert "Connecting" not in page.inner_text("main") and "Asking" not in page.inner_text("main")
        page.get_by_label("API key").fill("wrong")
        with page.expect_response(lambda reply: reply.status == 401):
            page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open] :text('That API key is wrong.')")
        assert page.get_by_role("button", name="Keys", exact=True, include_hidden=True).count() == 1, "no key is held"
        page.get_by_label("API key").fill("user-key")
        page.keyboard.press("Enter")
        page.wait_for_selector("#composer")
        set_params(page, max_new_tokens=4)
        say(page, "Hello")
        assert "user-key" not in page.content() and page.evaluate("Object.values(localStorage).join()") == ""
        page.locator(".codes summary").click()
        assert "$RAMET_API_KEY" in page.inner_text(".code pre") and "user-key" not in page.inner_text(".code pre")
        page.reload()
        page.wait_for_selector("#composer")
        other = page.context.new_page()
        other.goto(keyed.url)
        other.wait_for_selector("dialog[open]")


def test_a_key_that_was_refused_to_the_page_can_be_given_later(chromium: Any, keyed: Live) -> None:
    with opened(chromium, keyed.url, Watch(keyed.url, allowed=[UNREACHED])) as page:
        page.wait_for_selector("dialog[open]")
        page.keyboard.press("Escape")
        page.get_by_text("The API key is missing.").wait_for()
        page.get_by_role("button", name="Keys").click()
        page.get_by_label("API key").fill("user-key")
        page.keyboard.press("Enter")
        page.wait_for_selector("#model:has-text('ramet-bundled')")
        assert page.locator(".problem").count() == 0


def test_a_view_of_the_live_state_waits_for_the_key_that_was_refused_to_it(chromium: Any, keyed: Live) -> None:
    with opened(chromium, keyed.url + "/ui#queue", Watch(keyed.url, allowed=[UNREACHED])) as page:
        page.wait_for_selector("dialog[open]")
        assert "Connecting" not in page.inner_text("main")
        page.keyboard.press("Escape")
        page.get_by_text("It takes the admin key").wait_for()
        give_keys(page, admin="admin-key")
        page.locator("#view-queue h2", has_text="Running").wait_for()


def test_every_view_says_what_the_key_of_a_client_cannot_show(chromium: Any, keyed: Live) -> None:
    allowed = [UNREACHED, re.compile("403")]
    with opened(chromium, keyed.url, Watch(keyed.url, allowed=allowed)) as page:
        page.get_by_label("API key").fill("user-key")
        page.keyboard.press("Enter")
        page.wait_for_selector("#composer")
        for view in VIEWS[1:]:
            page.click(f"nav a[href='#{view}']")
            said = page.locator(f"#view-{view} .soon", has_text="is not shown with this key. It takes the admin key")
            said.wait_for()
            assert page.locator("dialog[open]").count() == 0, "nobody is asked who did not ask"
        said.get_by_role("button", name="Give the admin key").click()
        page.get_by_label("Admin key").fill("user-key")
        page.keyboard.press("Enter")
        page.locator("dialog", has_text="That admin key is wrong.").wait_for()
        page.get_by_label("Admin key").fill("admin-key")
        page.keyboard.press("Enter")
        page.locator("#view-charts figure").first.wait_for()


def give_keys(page: Any, **keys: str) -> None:
    """By the button: api=..., admin=..."""
    page.get_by_role("button", name="Keys").click()
    for kind, key in keys.items():
        page.get_by_label({"api": "API key", "admin": "Admin key"}[kind]).fill(key)
    page.keyboard.press("Enter")


def test_a_view_that_was_shown_says_that_the_server_asks_for_another_key(chromium: Any, keyed: Live) -> None:
    with opened(chromium, keyed.url, Watch(keyed.url, allowed=[UNREACHED])) as page:
        page.wait_for_selector("dialog[open]")
        page.keyboard.press("Escape")
        give_keys(page, admin="admin-key")
        for view in VIEWS[1:]:
            page.click(f"nav a[href='#{view}']")
            page.locator(f"#view-{view} .soon", has_text="is coming").wait_for(state="detached")
            page.locator(f"#view-{view} :is(h2, dl, figure)").first.wait_for()
        page.route(re.compile("openapi|v1/models|server_info"), lambda route: None)  # asks for no key once more
        page.route("**/ui/live", lambda route: route.fulfill(status=401, body="another key"))
        for view in VIEWS[1:]:
            page.click("nav a[href='#playground']")
            page.click(f"nav a[href='#{view}']")
            page.locator(f"#view-{view} .problem", has_text="no longer up to date").wait_for()
            assert page.locator(f"#view-{view} :is(h2, dl, figure)").count() > 0


def test_an_api_key_that_was_given_as_the_admin_key_is_kept(chromium: Any, keyed: Live) -> None:
    said = {"text": "Once upon a time", "sampling_params": {"max_new_tokens": 1}}
    requests.post(keyed.url + "/generate", json=said, headers={"Authorization": "Bearer user-key"}, timeout=30)
    with opened(chromium, keyed.url + "/ui#tree", Watch(keyed.url, allowed=[UNREACHED])) as page:
        page.wait_for_selector("dialog[open]")
        page.keyboard.press("Escape")
        give_keys(page, admin="user-key")
        page.get_by_text("It takes the admin key").wait_for()
        held = "['api', 'admin'].map((kind) => sessionStorage.getItem(`ramet.${kind}_key`))"
        assert page.evaluate(held) == [None, "user-key"], "nobody was asked"
        page.get_by_role("button", name="Give the admin key").click()
        page.locator("dialog", has_text="That admin key is wrong.").wait_for()
        page.get_by_label("Admin key").fill("admin-key")
        page.keyboard.press("Enter")
        page.locator("g.box").first.click()
        page.locator(".node-text", has_text="Once upon").wait_for()
        assert page.evaluate(held) == ["user-key", "admin-key"]


def test_the_key_that_was_refused_is_named(chromium: Any, keyed: Live) -> None:
    with opened(chromium, keyed.url, Watch(keyed.url, allowed=[UNREACHED])) as page:
        page.wait_for_selector("dialog[open]")
        page.keyboard.press("Escape")
        give_keys(page, admin="stale")
        page.locator("dialog", has_text="That admin key is wrong. The server asks for its API key.").wait_for()


def test_a_second_question_for_a_key_waits(chromium: Any, keyed: Live) -> None:
    with opened(chromium, keyed.url, Watch(keyed.url, allowed=[UNREACHED])) as page:
        page.get_by_label("API key").wait_for()
        page.evaluate("""() => void import("/ui/keys.js").then(async ({ askForKey }) => {
          document.body.dataset.given = await askForKey("admin", null);
        })""")
        page.keyboard.press("Escape")
        page.get_by_text("The API key is missing.").wait_for()
        page.get_by_label("Admin key").fill("admin-key")
        page.keyboard.press("Enter")
        page.wait_for_selector("body[data-given=true]")
        page.wait_for_selector("#model:has-text('ramet-bundled')")


def test_a_reload_asks_before_it_ends_a_chat(page: Any) -> None:
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.fill("#composer", "Hello")
    page.reload()
    page.wait_for_selector("#composer")
    assert asked == [], "nothing was said yet"
    set_params(page, max_new_tokens=4)
    say(page, "Hello")
    page.reload()
    page.wait_for_selector("#composer")
    assert asked == ["beforeunload"]


@pytest.mark.parametrize("width", [390, 1200, 1920])
def test_no_placeholder_is_cut_off(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.get_by_text("More parameters").click()
    cut = page.evaluate("""() => [...document.querySelectorAll("#view-playground .fields input")].filter((input) => {
      const pen = document.createElement("canvas").getContext("2d");
      const { font, paddingLeft, paddingRight } = getComputedStyle(input);
      pen.font = font;
      const room = input.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
      return pen.measureText(input.placeholder).width > room;
    }).map((input) => input.id)""")
    assert cut == []


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id || document.activeElement.textContent"))


def tab_to(page: Any, name: str, key: str = "Tab") -> None:
    for _ in range(60):
        if focused(page) == name:
            return
        page.keyboard.press(key)
    raise AssertionError(f"{name} cannot be reached by {key}: it ends at {focused(page)}")


def test_a_keyboard_is_enough(page: Any) -> None:
    tab_to(page, "param-max_new_tokens")
    page.keyboard.type("10")
    tab_to(page, "param-temperature")
    page.keyboard.type("0")
    tab_to(page, "composer")
    page.keyboard.type("What is the capital of Peru?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".sample[aria-busy=false]")
    tab_to(page, "shown-as", "Shift+Tab")
    page.keyboard.type("tokens")
    page.wait_for_selector(".token")
    before = tokens(page)
    tab_to(page, before[0][1])
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    tab_to(page, "Go on")
    page.keyboard.press("Enter")
    page.wait_for_selector(".samples > :nth-child(2)[aria-busy=false]")
    after = tokens(page, 1)
    assert after[:2] == before[:2] and after[2] != before[2]


def test_the_theme_is_the_systems_until_one_is_chosen(chromium: Any, server: Live, watch: Watch) -> None:
    with opened(chromium, server.url, watch, color_scheme="dark") as page:
        page.wait_for_selector("#composer")
        colour = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(colour)
        page.get_by_label("Theme").select_option("light")
        light = page.evaluate(colour)
        page.reload()
        page.wait_for_selector("#composer")
        assert page.evaluate(colour) == light != dark


def test_tabs_are_addresses(page: Any, server: Live) -> None:
    page.fill("#composer", "half a thought")
    for view in VIEWS[1:]:
        page.click(f"nav a[href='#{view}']")
        page.wait_for_selector(f"#view-{view}")
        assert page.locator(".view:not([hidden])").count() == 1
    page.go_back()
    assert page.url.endswith("#queue")
    page.click("nav a[href='#playground']")
    assert page.input_value("#composer") == "half a thought"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1200, 900), (390, 844)], ids=["desk", "phone"])
def test_every_view_fits(page: Any, theme: str, size: tuple[int, int]) -> None:
    """The pictures are for people to look at; that nothing is wider than the screen is checked."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.get_by_label("Theme").select_option(theme)
    set_params(page, temperature=0.7, max_new_tokens=40, n=2, sampling_seed=5)
    say(page, "Tell me a story about a cat.", "tokens")
    page.locator(ENDED).nth(1).wait_for()
    page.locator(".token").nth(3).click()
    page.locator(".codes summary").click()
    for view in VIEWS:
        page.click(f"nav a[href='#{view}']")
        page.wait_for_timeout(800)  # for what a view asks and draws
        page.screenshot(path=SHOTS / f"{view}-{theme}-{size[0]}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], view
