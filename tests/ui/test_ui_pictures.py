"""Pictures, films and sound in the playground: added in each way, sent, shown, removed, refused, and gone on from."""

import base64
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from conftest import Watch, opened
from live import Live
from PIL import Image
from playground import say, set_params, tokens

from tests.fakes.media_files import film, sound, tone

pytestmark = pytest.mark.ui
ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "build" / "ui-screenshots"
REFUSED = re.compile("Failed to load resource: the server responded with a status of 4")
TO_EIGHT = {"temperature": 0, "max_new_tokens": 8}
DROPPED = """([data, name, type]) => {
  const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, {type}));
  return transfer;
}"""


def made(folder: Path, family: str) -> Path:
    """A tiny checkpoint."""
    command = [sys.executable, ROOT / "scripts" / "tiny_media.py", folder / family, family]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return folder / family


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server whose model takes pictures, of at most 0.1 MB, and at most 12 in a request."""
    folder = made(tmp_path_factory.mktemp("model"), "llava")
    bounds = {"max_media_mb": 0.1, "max_body_mb": 0.4, "max_media_per_request": 12}
    with Live(model_path=folder, served_model_name="tiny-llava", **bounds) as live:
        described(live, "red")  # the first picture waits for a process
        yield live


def described(live: Live, *colours: str) -> Any:
    """The reply to a chat about pictures, without a page."""
    parts = [{"type": "image_url", "image_url": {"url": data_uri(png(colour))}} for colour in colours]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": "Which?"}]}]
    body = {"messages": messages, "max_tokens": 1, "return_token_ids": True}
    reply = requests.post(live.url + "/v1/chat/completions", json=body, timeout=90)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.fixture
def watch(seeing: Live) -> Watch:
    return Watch(seeing.url)


@pytest.fixture
def page(chromium: Any, seeing: Live, watch: Watch) -> Iterator[Any]:
    with opened(chromium, seeing.url, watch) as page:
        page.wait_for_selector("#add-files")
        set_params(page, temperature=0, max_new_tokens=8)
        yield page


def png(colour: str, width: int = 64) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (width, 48), colour).save(data, "PNG")
    return data.getvalue()


def data_uri(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def add(page: Any, *files: tuple[str, bytes], type_: str = "image/png") -> None:
    """By the button."""
    given = [{"name": name, "mimeType": type_, "buffer": data} for name, data in files]
    with page.expect_file_chooser() as chooser:
        page.click("#add-files")
    chooser.value.set_files(given)


def transfer(page: Any, name: str, data: bytes) -> Any:
    return page.evaluate_handle(DROPPED, [base64.b64encode(data).decode(), name, "image/png"])


def shown(page: Any, within: str) -> list[str]:
    return [
        str(each.get_attribute("alt") or each.get_attribute("aria-label"))
        for each in page.locator(f"{within} .media img, {within} .media video, {within} .media audio").all()
    ]


def test_pictures_that_are_chosen_dropped_and_pasted_are_sent_in_order(page: Any) -> None:
    bodies: list[Any] = []
    page.on("request", lambda request: bodies.append(request.post_data) if "completions" in request.url else None)
    files = {"red.png": png("red"), "green.png": png("green"), "blue.png": png("blue"), "grey.png": png("grey")}
    add(page, ("red.png", files["red.png"]), ("green.png", files["green.png"]))
    page.locator(".composer .media li").nth(1).wait_for()
    page.dispatch_event(".settings", "drop", {"dataTransfer": transfer(page, "blue.png", files["blue.png"])})
    page.locator(".composer .media li").nth(2).wait_for()
    page.evaluate(
        """(clipboardData) => document.getElementById("composer").dispatchEvent(
        new ClipboardEvent("paste", {clipboardData, bubbles: true, cancelable: true}))""",
        transfer(page, "grey.png", files["grey.png"]),
    )
    page.locator(".composer .media li").nth(3).wait_for()
    assert shown(page, ".composer") == list(files)
    say(page, "What are these?")
    (message,) = json.loads(bodies[-1])["messages"]
    *pictures, text = message["content"]
    assert [each["image_url"]["url"] for each in pictures] == [data_uri(data) for data in files.values()]
    assert text == {"type": "text", "text": "What are these?"}
    assert shown(page, ".turn.user") == list(files) and shown(page, ".composer") == []
    assert page.inner_text(".turn.user .plain") == "What are these?"
    sizes = page.evaluate("[...document.querySelectorAll('.turn.user img')].map((each) => each.naturalWidth)")
    assert sizes == [64] * 4, "they are drawn"
    assert "8 tokens" in page.inner_text(".sample footer")


def test_a_picture_is_removed_and_a_keyboard_is_enough(page: Any) -> None:
    page.on("filechooser", lambda chooser: None)  # Chromium goes on telling of them after the first one
    add(page, *((f"{colour}.png", png(colour)) for colour in ("red", "green", "blue")))
    page.locator(".composer .media li").nth(2).wait_for()
    page.get_by_label("Remove green.png").focus()
    page.keyboard.press("Enter")
    focused = "document.activeElement.getAttribute('aria-label')"
    assert shown(page, ".composer") == ["red.png", "blue.png"]
    assert page.evaluate(focused) == "Remove blue.png"
    page.keyboard.press("Enter")
    assert page.evaluate(focused) == "Remove red.png"
    page.keyboard.press("Enter")
    assert shown(page, ".composer") == [] and page.evaluate("document.activeElement.id") == "composer"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "add-files"
    with page.expect_file_chooser():
        page.keyboard.press("Enter")


def test_what_cannot_be_sent_says_why_and_the_rest_stays(page: Any) -> None:
    page.fill("#composer", "Too much?")
    big, broken = png("red") + bytes(110_000), png("red")[:60]
    add(page, ("big.png", big), ("red.png", png("red")), ("broken.png", broken))
    problems = page.locator(".composer .problem")
    problems.nth(1).wait_for()
    assert problems.all_inner_texts() == [
        "big.png is not added: it has more than 0.1 MB (--max-media-mb).",
        "broken.png is not added: it cannot be read as a picture.",
    ]
    assert shown(page, ".composer") == ["red.png"]
    for name, type_ in ("notes.txt", "text/plain"), ("film.mp4", "video/mp4"), ("unknown", ""):
        add(page, (name, b"something"), type_=type_)
        page.wait_for_selector(f".composer .problem:has-text('{name} is not added: this model takes pictures.')")
        assert problems.count() == 1
    add(page, *((f"{i}.png", png("red") + bytes(100_000)) for i in range(4)))
    page.locator(".composer .media li").nth(4).wait_for()
    page.press("#composer", "Enter")
    page.wait_for_selector(".talk > .problem:has-text('a request may have 0.4 MB (--max-body-mb)')")
    add(page, *((f"{i}.png", png("red")) for i in range(8)))
    page.locator(".composer .media li").nth(12).wait_for()
    page.press("#composer", "Enter")
    page.wait_for_selector(".talk > .problem:has-text('it has 13 files, and a request may have 12')")
    assert len(shown(page, ".composer")) == 13 and page.input_value("#composer") == "Too much?"


def test_a_refusal_names_the_file_and_the_message_is_written_again(page: Any, watch: Watch) -> None:
    watch.allowed.append(REFUSED)
    icon = io.BytesIO()
    Image.open(io.BytesIO(png("red"))).save(icon, "ICO")  # browsers draw them
    add(page, ("red.png", png("red")))
    add(page, ("icon.ico", icon.getvalue()), type_="image/x-icon")
    page.locator(".composer .media li").nth(1).wait_for()
    page.fill("#system", "Be brief.")
    said = say(page, "What are these?")
    assert "icon.ico" in said and "messages[" not in said and "red.png" not in said
    page.fill("#composer", "And how many?")
    page.get_by_text("edit", exact=True).click()
    assert page.input_value("#composer") == "What are these?\nAnd how many?" and page.locator(".turn").count() == 0
    assert page.evaluate("document.activeElement.id") == "composer"
    page.get_by_label("Remove icon.ico").click()
    page.press("#composer", "Enter")
    page.wait_for_selector(".sample footer:has-text('8 tokens')")
    assert shown(page, ".turn.user") == ["red.png"] and page.locator(".turn").count() == 1


def test_a_file_is_taken_where_the_playground_is_shown(page: Any) -> None:
    red = transfer(page, "red.png", png("red"))
    page.fill("#composer", "What is it?")
    page.click("nav a:has-text('Queue')")
    page.wait_for_selector("#view-queue")
    for event in "dragover", "drop":  # true: the browser does what it does with files
        given = f"""(dataTransfer) => document.querySelector("main").dispatchEvent(
            new DragEvent("{event}", {{dataTransfer, bubbles: true, cancelable: true}}))"""
        assert page.evaluate(given, red) is False
    page.click("nav a:has-text('Playground')")
    page.get_by_label("completion", exact=True).check()
    page.get_by_label("chat", exact=True).check()
    assert shown(page, ".composer") == [] and page.input_value("#composer") == "What is it?"
    page.dispatch_event("main", "drop", {"dataTransfer": red})
    page.locator(".composer .media li").wait_for()


def test_a_completion_has_files_at_its_placeholders(page: Any, seeing: Live, watch: Watch) -> None:
    page.get_by_label("completion", exact=True).check()
    page.fill("#prompt", "Between  and the end")
    page.evaluate("document.getElementById('prompt').setSelectionRange(8, 8)")
    for name in "red.png", "blue.png":  # the second one behind the first
        add(page, (name, png(name[:-4])))
        page.get_by_label(f"Remove {name}").wait_for()
    assert page.input_value("#prompt") == "Between <image><image> and the end"
    page.evaluate("document.getElementById('prompt').setSelectionRange(0, 0)")
    add(page, ("green.png", png("green")))
    page.get_by_label("Remove green.png").wait_for()
    assert shown(page, ".composer") == ["green.png", "red.png", "blue.png"]
    page.get_by_label("Remove red.png").click()
    assert page.input_value("#prompt") == "<image>Between <image> and the end"
    page.select_option("#shown-as", "tokens")
    page.press("#prompt", "Control+Enter")
    page.wait_for_selector(".sample[aria-busy=false]")
    asked = {"image_data": [data_uri(png("green")), data_uri(png("blue"))], "sampling_params": TO_EIGHT}
    reply = seeing.generate(text="<image>Between <image> and the end", **asked).json()
    assert [token for token, _ in tokens(page)] == reply["output_ids"]
    watch.allowed.append(REFUSED)
    page.fill("#prompt", "None of them")
    page.press("#prompt", "Control+Enter")
    page.wait_for_selector(".sample .problem:has-text('but the prompt has 0 times <image>')")
    assert shown(page, ".composer") == ["green.png", "blue.png"]


@pytest.mark.parametrize("language", ["curl", "ramet"])
def test_the_code_of_a_completion_reads_its_files(page: Any, seeing: Live, language: str, tmp_path: Path) -> None:
    page.get_by_label("completion", exact=True).check()
    page.fill("#prompt", "See ")
    add(page, ("a cat's.png", png("red")))
    page.locator(".composer .media li").wait_for()
    done = run_code(page, language, {"a cat's.png": png("red")}, tmp_path)
    asked = {"image_data": data_uri(png("red")), "sampling_params": TO_EIGHT}
    text = seeing.generate(text="See <image>", **asked).json()["text"]
    if language == "curl":
        events = [json.loads(line[6:]) for line in done.splitlines() if line.startswith("data: {")]
        assert events[-1]["text"] == text
    else:
        assert text in done


@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2-audio"])
def test_films_and_sound_are_sent_and_played(chromium: Any, family: str, tmp_path: Path) -> None:
    name, type_, data, kind, word = {
        "qwen2-vl": ("film.mp4", "video/mp4", film([0, 99, 200, 30]), "video", "pictures or films"),
        "qwen2-audio": ("tone.wav", "audio/wav", sound(tone(0.5)), "audio", "sound"),
    }[family]
    with Live(model_path=made(tmp_path, family)) as live:
        watch = Watch(live.url)
        with opened(chromium, live.url, watch) as page:
            set_params(page, temperature=0, max_new_tokens=8)
            assert page.inner_text("#add-files") == f"Add {word}"
            add(page, (name, data), type_=type_)
            page.wait_for_selector(f".composer .media {kind}")
            page.wait_for_function(f"document.querySelector('.media {kind}').duration > 0.1")
            for theme in "light", "dark":
                page.get_by_label("Theme").select_option(theme)
                page.screenshot(path=SHOTS / f"{kind}-{theme}.png")
            say(page, "What is it?")
            assert shown(page, ".turn.user") == [name] and "8 tokens" in page.inner_text(".sample footer")
            page.get_by_label("completion", exact=True).check()
            add(page, (name, data), type_=type_)
            page.get_by_label(f"Remove {name}").wait_for()
            page.press("#prompt", "Control+Enter")
            page.wait_for_selector(".sample footer:has-text('8 tokens')")


def test_an_alternative_is_gone_on_from_with_the_pictures(page: Any, seeing: Live) -> None:
    red, blue = png("red"), png("blue")
    add(page, ("red.png", red), ("blue.png", blue))
    page.locator(".composer .media li").nth(1).wait_for()
    say(page, "Which?", "tokens")
    before = [token for token, _ in tokens(page)]
    page.locator(".token").nth(2).click()
    page.locator(".alternative button").first.click()
    page.wait_for_selector(".samples > :nth-child(2)[aria-busy=false]")
    after = [token for token, _ in tokens(page, 1)]
    assert after[:2] == before[:2] and after[2] != before[2]
    prompt = described(seeing, "red", "blue")["prompt_token_ids"]
    params = {"temperature": 0, "max_new_tokens": 5}
    pictures = [data_uri(red), data_uri(blue)]
    reply = seeing.generate(input_ids=prompt + after[:3], image_data=pictures, sampling_params=params).json()
    assert after[3:] == reply["output_ids"]


def run_code(page: Any, language: str, files: dict[str, bytes], folder: Path) -> str:
    """What the code that is shown prints, beside these files."""
    page.locator(".codes summary").click()
    page.locator(f".code label:has-text('{language}')").click()
    code = page.locator(".code pre").text_content()
    assert len(code) < 2000
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "code").write_text(code)
    run = ["bash", "code"] if language == "curl" else [sys.executable, "code"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(run, capture_output=True, text=True, env=env, timeout=60, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("language", ["curl", "Python", "ramet"])
def test_the_code_reads_the_pictures_from_files(page: Any, language: str, tmp_path: Path) -> None:
    text, names = "It's \"$HOME\", isn't it? `id` \\n", ["a cat's.png", "b.png"]
    files = {name: png(colour) for name, colour in zip(names, ("red", "blue"), strict=True)}
    add(page, *files.items())
    page.locator(".composer .media li").nth(1).wait_for()
    say(page, text, "text")
    page.locator(".turn").first.wait_for()
    output = page.locator(".sample .plain").text_content()
    done = run_code(page, language, files, tmp_path)
    assert output
    if language == "curl":
        events = [json.loads(line[6:]) for line in done.splitlines() if line.startswith("data: {")]
        assert output == "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])
    else:
        assert output in done


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_pictures_fit(page: Any, theme: str, width: int) -> None:
    """The shots are for people to look at; that nothing is wider than the screen is checked."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.set_viewport_size({"width": width, "height": 900})
    page.get_by_label("Theme").select_option(theme)
    for _ in range(2):  # in the conversation, and in the message that is written
        add(page, *((f"{i}.png", png("#3377aa", 48 * 2**i)) for i in range(6)))
        page.locator(".composer .media li").nth(5).wait_for()
        if page.locator(".turn").count() == 0:
            say(page, "What are these?")
    page.screenshot(path=SHOTS / f"pictures-{theme}-{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_model_without_pictures_is_offered_none(chromium: Any, server: Live) -> None:
    watch = Watch(server.url)
    with opened(chromium, server.url, watch) as page:
        page.wait_for_selector("#composer")
        assert page.locator("#add-files").count() == 0
        event = {"dataTransfer": transfer(page, "red.png", png("red"))}
        page.dispatch_event("#composer", "drop", event)
        page.wait_for_selector(".composer .problem:has-text('red.png is not added: this model takes text alone.')")
        assert shown(page, ".composer") == []
