"""The views of a running server in a browser: a shared prefix, an eviction, a reason to wait, the last hour."""

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from conftest import Watch
from live import Live

pytestmark = pytest.mark.ui
SHARED = "The quick brown fox jumps over the lazy dog and goes home to sleep all day. "
LONG = {"max_new_tokens": 3000, "ignore_eos": True}
ADMIN = {"Authorization": "Bearer admin"}


@pytest.fixture(scope="module")
def narrow() -> Iterator[Live]:
    """A server on which one request runs at a time."""
    with Live(context_length=4096, max_total_tokens=4096, max_running_requests=1, admin_api_key="admin") as live:
        yield live


@pytest.fixture
def looked_at(chromium: Any, narrow: Live) -> Iterator[Any]:
    """The page, watched, in a tab that holds the admin key; of a server whose tree is empty."""
    watch = Watch(narrow.url, allowed=[re.compile("401|403")])  # the key is asked for after a refusal
    flush(narrow)
    context = chromium.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    context.add_init_script("sessionStorage.setItem('ramet.admin_key', 'admin')")
    page = context.new_page()
    watch.follow(page)
    yield page
    context.close()
    assert watch.messages == [] and watch.left == []


def flush(server: Live) -> None:
    assert requests.post(server.url + "/flush_cache?timeout=30", headers=ADMIN, timeout=60).status_code == 200


def abort(server: Live, rid: str) -> None:
    requests.post(server.url + "/abort_request", json={"rid": rid}, headers=ADMIN, timeout=30)


def events(server: Live, num: int) -> list[Any]:
    """The first events that a new viewer is sent."""
    with requests.get(server.url + "/ui/live", headers=ADMIN, stream=True, timeout=30) as reply:
        lines = (line for line in reply.iter_lines() if line.startswith(b"data: "))
        return [json.loads(next(lines)[6:]) for _ in range(num)]


def told_anew(server: Live) -> list[int]:
    """The tokens of each node, as a new viewer is told of them."""
    events(server, 3)  # the last of them was asked for after this call began
    (whole,) = events(server, 1)
    return sorted(row[3] for row in whole["state"]["tree"]["nodes"])


def show(page: Any, server: Live, view: str) -> None:
    page.goto(f"{server.url}/ui#{view}")


def test_a_shared_prefix_is_drawn_once_with_two_children_and_an_eviction_removes_it(
    looked_at: Any, narrow: Live
) -> None:
    show(looked_at, narrow, "tree")
    looked_at.get_by_text("Nothing is cached.").wait_for()
    for end in ("One day it rained.", "Two cats came along."):
        narrow.generate(text=SHARED + end, sampling_params={"max_new_tokens": 1})
    looked_at.locator("g.box").nth(2).wait_for()
    boxes = looked_at.locator("g.box[data-tokens]")
    tops = [box for box in boxes.all() if box.get_attribute("data-parent") == "0"]
    (top,) = tops
    number = top.get_attribute("id").removeprefix("node-")
    assert looked_at.locator(f'g.box[data-parent="{number}"]').count() == 2 and boxes.count() == 3
    flush(narrow)
    looked_at.locator("g.box.gone").first.wait_for()
    looked_at.get_by_text("Nothing is cached.").wait_for()


def test_a_search_marks_the_path_and_says_how_much_is_cached(looked_at: Any, narrow: Live) -> None:
    narrow.generate(text=SHARED, sampling_params={"max_new_tokens": 1})
    show(looked_at, narrow, "tree")
    looked_at.locator("g.box").first.wait_for()
    looked_at.fill("#prefix-text", SHARED)
    looked_at.get_by_role("button", name="Find").click()
    looked_at.get_by_text("tokens are cached (100 %)").wait_for()
    looked_at.locator("g.box.found").first.wait_for()
    looked_at.fill("#prefix-text", "zzz")
    looked_at.get_by_role("button", name="Find").click()
    looked_at.get_by_text("tokens are cached (0 %)").wait_for()


def test_a_double_click_shows_a_node_alone_and_selects_no_text(looked_at: Any, narrow: Live) -> None:
    narrow.generate(text=SHARED, sampling_params={"max_new_tokens": 1})
    show(looked_at, narrow, "tree")
    box = looked_at.locator("g.box").first
    box.dblclick(position={"x": 8, "y": 10})
    looked_at.get_by_role("button", name="The whole tree").wait_for()
    assert looked_at.evaluate("getSelection().toString()") == ""
    assert "µs" not in looked_at.locator(".details").inner_text()


def test_a_keyboard_reaches_the_text_of_a_node(looked_at: Any, narrow: Live) -> None:
    narrow.generate(text=SHARED + "<b>bold</b>", sampling_params={"max_new_tokens": 1})
    show(looked_at, narrow, "tree")
    looked_at.locator("g.box").first.wait_for()
    looked_at.locator(".icicle").focus()
    looked_at.keyboard.press("ArrowDown")
    looked_at.locator(".node-text", has_text="<b>bold</b>").wait_for()


def test_a_refusal_of_the_page_is_no_matter_of_a_key(looked_at: Any, narrow: Live) -> None:
    narrow.generate(text=SHARED, sampling_params={"max_new_tokens": 1})
    refusal = {"error": {"message": "pages from there may not use this server"}}
    looked_at.route("**/ui/node", lambda route: route.fulfill(status=403, json=refusal))
    show(looked_at, narrow, "tree")
    looked_at.locator("g.box").first.click()
    looked_at.locator(".details", has_text="pages from there may not").wait_for()
    assert looked_at.get_by_role("button", name="Give the admin key").count() == 0


def test_a_waiting_request_shows_its_reason_and_can_be_aborted(looked_at: Any, narrow: Live) -> None:
    asked = [
        threading.Thread(target=narrow.generate, kwargs={"text": "a", "rid": rid, "sampling_params": LONG})
        for rid in ("first", "second")
    ]
    show(looked_at, narrow, "queue")
    asked[0].start()
    looked_at.locator("#running-requests", has_text="first").wait_for()
    asked[1].start()
    waiting = looked_at.locator("#waiting-requests tr", has_text="second")
    waiting.get_by_text("rows of --max-running-requests are taken").wait_for()
    looked_at.get_by_role("button", name="Abort second").click()
    waiting.wait_for(state="detached")
    looked_at.get_by_role("button", name="Abort first").click()
    looked_at.locator("#running-requests").wait_for(state="detached")
    for each in asked:
        each.join(30)


def test_the_last_hour_is_drawn_and_goes_on(looked_at: Any, narrow: Live) -> None:
    from playwright.sync_api import expect

    show(looked_at, narrow, "charts")
    looked_at.locator(".chart canvas").nth(8).wait_for()
    curves = {
        chart.locator("figcaption").inner_text(): chart.locator("li").count()
        for chart in looked_at.locator(".chart").all()
    }
    assert curves["Requests"] == 2 and curves["Tokens of a step"] == 1, "each axis has one unit"
    narrow.generate(text=SHARED, sampling_params={"max_new_tokens": 50, "ignore_eos": True})
    generated = looked_at.locator(".chart").first.locator(".legend b").first
    expect(generated).not_to_have_text("0")


def test_marks_of_an_axis_are_in_one_unit_and_differ(looked_at: Any, narrow: Live) -> None:
    show(looked_at, narrow, "charts")
    written = looked_at.evaluate(
        """async (axes) => {
          const { durations } = await import("/ui/text_of.js");
          return axes.map(durations);
        }""",
        [[0, 0.0005, 0.001], [0, 5e-7, 1e-6], [0, 120, 140, 160], [0, 0.5, 1.0], []],
    )
    assert written == [
        ["0", "0.5 ms", "1 ms"],
        ["0", "0.5 µs", "1 µs"],
        ["0", "120 s", "140 s", "160 s"],
        ["0", "0.5 s", "1 s"],
        [],
    ]


def test_an_axis_of_many_requests_has_whole_numbers(looked_at: Any, narrow: Live) -> None:
    def crowd(route: Any) -> None:
        history = route.fetch().json()
        history["columns"]["running"][-1] = 4e8
        route.fulfill(json=history)

    looked_at.add_init_script("""const { fillText } = CanvasRenderingContext2D.prototype;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
        document.body.dataset.written = `${document.body.dataset.written ?? ""} ${text}`;
        return fillText.call(this, text, ...place);
      };""")
    looked_at.route("**/ui/history", crowd)
    show(looked_at, narrow, "charts")
    looked_at.wait_for_selector("body[data-written*='200,000,000']")


@pytest.mark.parametrize("width", [390, 1200])
def test_a_queue_shows_a_request_in_one_line_and_needs_no_scrolling(looked_at: Any, narrow: Live, width: int) -> None:
    rids = [f"{width}-{letter * 28}" for letter in "ab"]
    asked = [
        threading.Thread(target=narrow.generate, kwargs={"text": "a", "rid": rid, "sampling_params": LONG})
        for rid in rids
    ]
    looked_at.set_viewport_size({"width": width, "height": 900})
    show(looked_at, narrow, "queue")
    asked[0].start()
    looked_at.locator("#running-requests .abort").wait_for()
    asked[1].start()
    looked_at.locator("#waiting-requests .abort").wait_for()
    frames = looked_at.locator(".scrolls")
    assert frames.evaluate_all("all => all.every((frame) => frame.scrollWidth <= frame.clientWidth)")
    assert looked_at.locator("tbody th").evaluate_all(
        "all => all.every((id) => id.clientHeight < 60 && id.clientWidth > 200)"
    )
    assert len({box.bounding_box()["x"] for box in looked_at.locator(".abort button").all()}) == 1
    for rid in rids:
        abort(narrow, rid)
    for each in asked:
        each.join(30)


def test_what_the_page_put_together_is_what_the_server_has(looked_at: Any, narrow: Live) -> None:
    """Changes, one after the other, come to what a new viewer is told."""
    show(looked_at, narrow, "tree")
    looked_at.get_by_text("Nothing is cached.").wait_for()
    for i in range(12):
        text = SHARED * (1 + i % 3) + f"Number {i} of {i * 7} is here."
        narrow.generate(text=text, sampling_params={"max_new_tokens": 2, "ignore_eos": True})
    expected = told_anew(narrow)
    assert len(expected) > 8
    together = """async () => {
      const { mirror } = await import("/ui/mirror.js");
      return [...mirror.get().tree.nodes.values()].map((node) => node.tokens).sort((a, b) => a - b);
    }"""
    for _ in range(100):
        if looked_at.evaluate(together) == expected:
            break
        looked_at.wait_for_timeout(50)
    assert looked_at.evaluate(together) == expected
