"""Chats and completions in a real browser, against a real server."""

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests
from live import Live
from playground import ENDED, complete, constrain, say, set_params, tokens

pytestmark = pytest.mark.ui
QUESTION = "What is the capital of Peru?"
REFUSED = re.compile("Failed to load resource: the server responded with a status of 400")
WEATHER = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"const": "Lima"}}, "required": ["city"]},
        },
    }
]


def test_a_chat_streams_and_is_shown(page: Any) -> None:
    page.get_by_text("More parameters").click()
    page.select_option("#param-ignore_eos", "true")
    set_params(page, temperature=0, max_new_tokens=200)
    page.evaluate("""() => {
      window.seen = new Set();
      new MutationObserver(() => window.seen.add(document.querySelector(".samples")?.textContent))
        .observe(document.body, {subtree: true, childList: true, characterData: true});
    }""")
    assert "Lima" in say(page, QUESTION)
    assert page.evaluate("window.seen.size") > 3, "the text grew as tokens came"


def test_the_chat_goes_on_with_what_was_said(page: Any, server: Live) -> None:
    set_params(page, temperature=0, max_new_tokens=24)
    first = say(page, QUESTION, "text")
    bodies: list[Any] = []
    page.on("request", lambda request: bodies.append(request.post_data) if "completions" in request.url else None)
    page.fill("#system", "Answer briefly.")
    say(page, "And of Chile?", "text")
    messages = json.loads(bodies[-1])["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == first.split("\n")[0] and page.locator(".turn").count() == 3


def test_samples_stand_side_by_side_and_one_is_kept(page: Any) -> None:
    set_params(page, temperature=1.5, max_new_tokens=30, n=3, sampling_seed=7)
    say(page, "Tell me a story.", "text")
    page.locator(ENDED).nth(2).wait_for()
    samples = page.locator(".sample")
    kept = samples.nth(2).locator(".plain").inner_text()
    assert len({samples.nth(i).locator(".plain").inner_text() for i in range(3)}) > 1
    samples.nth(2).get_by_label("keep").check()
    set_params(page, n="")
    say(page, "Go on.", "text")
    assert page.locator(".turn.assistant .plain").inner_text() == kept


def test_stop_ends_an_output(page: Any, server: Live) -> None:
    page.get_by_text("More parameters").click()
    page.select_option("#param-ignore_eos", "true")
    set_params(page, max_new_tokens=3500)
    page.fill("#composer", "Count.")
    page.press("#composer", "Enter")
    page.wait_for_selector(".sample footer:has-text('tokens')")
    page.click("#stop")
    page.wait_for_selector(".sample[aria-busy=false] footer:has-text('stopped')")
    assert page.locator("#stop").is_disabled()
    for _ in range(100):
        if server.state()["running_requests"] == 0:
            break
        page.wait_for_timeout(50)
    assert server.state()["running_requests"] == 0


def test_an_alternative_of_a_chat_is_gone_on_from_by_its_id(page: Any, server: Live) -> None:
    set_params(page, temperature=0, max_new_tokens=12)
    say(page, QUESTION, "tokens")
    before = tokens(page)
    page.locator(".token").nth(2).click()
    page.locator(".alternative button").first.click()
    page.wait_for_selector(".samples > :nth-child(2)[aria-busy=false]")
    after = tokens(page, 1)
    assert after[:2] == before[:2] and after[2] != before[2]
    asked = {"messages": [{"role": "user", "content": QUESTION}]}
    prompt = requests.post(server.url + "/tokenize", json=asked, timeout=10).json()["tokens"]
    kept = [token for token, _ in after[:3]]
    reply = server.generate(input_ids=prompt + kept, sampling_params={"temperature": 0, "max_new_tokens": 9}).json()
    assert [token for token, _ in after[3:]] == reply["output_ids"]


def test_the_branch_is_what_the_chat_goes_on_with(page: Any) -> None:
    set_params(page, temperature=0, max_new_tokens=8)
    say(page, QUESTION, "tokens")
    page.locator(".token").nth(1).click()
    page.locator(".alternative button").nth(1).click()
    page.wait_for_selector(".samples > :nth-child(2)[aria-busy=false]")
    page.select_option("#shown-as", "text")
    branch = page.locator(".sample").nth(1).locator(".plain").inner_text()
    say(page, "Why?", "text")
    assert page.locator(".turn.assistant .plain").inner_text() == branch


def test_a_completion_shows_its_tokens(page: Any, server: Live) -> None:
    page.select_option("#shown-as", "tokens")
    set_params(page, temperature=0, max_new_tokens=10)
    complete(page, "The capital of Peru is")
    reply = server.generate(
        text="The capital of Peru is", sampling_params={"temperature": 0, "max_new_tokens": 10}
    ).json()
    assert [token for token, _ in tokens(page)] == reply["output_ids"]


@pytest.mark.parametrize("mode", ["chat", "completion"])
def test_a_constraint_holds_the_output(page: Any, mode: str) -> None:
    set_params(page, max_new_tokens=30)
    constrain(page, "regex", "ab{3}c")
    if mode == "chat":
        say(page, "Hello", "text")
    else:
        page.select_option("#shown-as", "text")
        complete(page, "Hello")
    assert page.inner_text(".sample .plain") == "abbbc"


def test_every_backend_says_what_it_makes_of_a_schema(page: Any, watch: Any) -> None:
    watch.allowed.append(REFUSED)
    constrain(page, "json_schema", '{"type": "object", "properties": ')
    page.wait_for_selector(".constraint .problem:has-text('no JSON')")
    page.fill("#constraint-text", '{"type": "string", "minLength": 2}')
    page.wait_for_selector(".findings .compiles:has-text('llguidance')")
    page.fill("#constraint-text", '{"type": "object", "propertees": {}}')
    page.wait_for_selector(".findings .refused:has-text('propertees')")


def test_a_call_of_a_tool_is_shown_and_its_result_is_sent(page: Any) -> None:
    page.get_by_text("Tools", exact=True).click()
    page.fill("#tools-text", json.dumps(WEATHER))
    page.locator("details:has(#tools-text) select").select_option("required")
    say(page, "How is the weather?")
    assert page.inner_text(".call").split("(")[0] == "weather" and '"city": "Lima"' in page.inner_text(".call")
    bodies: list[Any] = []
    page.on("request", lambda request: bodies.append(request.post_data) if "completions" in request.url else None)
    page.locator("details:has(#tools-text) select").select_option("none")
    page.get_by_label("Result of weather").fill("Sunny.")
    page.get_by_role("button", name="Send").click()
    page.wait_for_selector(".turn.tool")
    page.wait_for_selector(".sample[aria-busy=false]")
    call, told = json.loads(bodies[-1])["messages"][-2:]
    assert told == {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "Sunny."}


def test_a_thought_is_shown_apart_from_the_reply(page: Any) -> None:
    set_params(page, temperature=0)
    page.get_by_text("Other fields").click()
    page.fill("#more", '{"chat_template_kwargs": {"enable_thinking": true}}')
    reply = say(page, "What is 37 + 58?", "text")
    assert page.locator(".sample > .plain").inner_text() == "The answer is 95." and "Thought" in reply
    page.get_by_text("Thought").click()
    assert "37 + 58" in page.locator(".thought .plain").inner_text()


def test_the_form_has_every_sampling_parameter_of_the_server(page: Any, server: Live) -> None:
    document = requests.get(server.url + "/openapi.json", timeout=10).json()
    properties = document["components"]["schemas"]["GivenParams"]["properties"]
    constraints = {"json_schema", "regex", "ebnf", "structural_tag", "grammar_backend"}
    shown = {each.get_attribute("id") for each in page.locator("[id^=param-]").all()}
    taken = {name for name, schema in properties.items() if "x-unbuilt" not in schema}
    assert shown == {f"param-{name}" for name in taken - constraints}


@pytest.mark.parametrize("mode", ["chat", "completion"])
@pytest.mark.parametrize("language", ["curl", "Python", "ramet"])
def test_the_code_that_is_shown_gives_the_same_output(page: Any, mode: str, language: str, tmp_path: Path) -> None:
    """In each language, with a text in which quotes could be lost."""
    text = "It's \"Lima\", isn't it? \\n — é"
    page.get_by_text("More parameters").click()
    set_params(page, temperature=0, max_new_tokens=9, logit_bias='{"300": 1.5}', stop="zzz")
    constrain(page, "regex", r"[a-f' \"]+")
    if mode == "chat":
        say(page, text, "text")
        page.locator(".turn").first.wait_for()
    else:
        page.select_option("#shown-as", "text")
        complete(page, text)
    output = page.locator(".sample .plain").text_content()
    page.locator(".codes summary").click()
    page.locator(f".code label:has-text('{language}')").click()
    code = page.locator(".code pre").text_content()
    assert language == "ramet" or (mode == "completion" and language == "curl") or "ramet-bundled" in code
    path = tmp_path / "code"
    path.write_text(code)
    run = ["bash", path] if language == "curl" else [sys.executable, path]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(run, capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    assert output and output in (_text_of(done.stdout) if language == "curl" else done.stdout)


def test_markdown_that_is_too_deep_is_shown_as_text(page: Any) -> None:
    constrain(page, "regex", ">{3500}")
    say(page, "Go deep.")
    assert page.locator(".sample .markdown").text_content() == ">" * 3500
    assert page.locator("#composer").is_visible() and page.locator(".problem").count() == 0
    lists = "1. " * 3000
    shown = "async (text) => (await import('/ui/markdown.js')).markdown(text).textContent"
    assert page.evaluate(shown, lists) == lists


def test_an_output_that_cannot_be_drawn_takes_nothing_with_it(page: Any, watch: Any) -> None:
    watch.allowed.append(re.compile("no markdown today"))
    failing = "export function Markdown() { throw new Error('no markdown today'); }"
    page.route("**/ui/markdown.js", lambda route: route.fulfill(body=failing, content_type="text/javascript"))
    page.reload()
    page.wait_for_selector("#composer")
    set_params(page, temperature=0, max_new_tokens=24)
    assert "Lima" in say(page, QUESTION)
    page.select_option("#shown-as", "tokens")
    page.locator(".token").first.wait_for()
    assert page.locator(".turn.user").count() == 1


@pytest.mark.parametrize("place", ["tools", "other fields", "constraint", "parameter"])
def test_a_message_that_is_not_sent_stays(page: Any, place: str) -> None:
    if place == "tools":
        page.get_by_text("Tools", exact=True).click()
        page.fill("#tools-text", "[{")
    elif place == "other fields":
        page.get_by_text("Other fields").click()
        page.fill("#more", "{")
    elif place == "constraint":
        constrain(page, "json_schema", "{")
    else:
        page.get_by_text("More parameters").click()
        page.fill("#param-logit_bias", "{")
    page.fill("#composer", "half an hour of typing")
    page.press("#composer", "Enter")
    page.locator(".talk > .problem").wait_for()
    assert page.input_value("#composer") == "half an hour of typing" and page.locator(".turn").count() == 0
    said = page.locator(".problem").all_inner_texts()
    assert len(set(said)) == len(said) and sum("Unexpected" in each or "Expected" in each for each in said) == 1


def test_backends_that_say_the_same_are_named_together(page: Any, watch: Any) -> None:
    watch.allowed.append(REFUSED)
    constrain(page, "regex", "[a-")
    finding = page.locator(".findings .refused", has_text="llguidance, outlines, xgrammar")
    finding.wait_for()
    assert "the regex is not a valid regular expression" in finding.inner_text()
    assert page.locator(".findings li").count() == 1 and "sampling_params" not in finding.inner_text()


def test_a_request_that_fails_says_so_once(page: Any, watch: Any) -> None:
    watch.allowed.append(REFUSED)
    set_params(page, n=2, top_p=3)
    page.fill("#composer", "Hello")
    page.press("#composer", "Enter")
    page.locator(".sample .problem", has_text="top_p is 3").wait_for()
    assert page.locator(".problem").count() == 1 and page.locator(".sample footer").count() == 0
    assert page.get_by_label("keep").count() == 0
    set_params(page, n="", top_p="", max_new_tokens=4)
    say(page, "And now?")
    assert page.locator(".turn.assistant").count() == 0, "what failed is no part of the chat"


def test_a_chat_is_still_there_after_a_completion(page: Any) -> None:
    set_params(page, temperature=0, max_new_tokens=8)
    said = say(page, QUESTION)
    page.select_option("#shown-as", "markdown")
    complete(page, "Once upon a time")
    completed = page.inner_text(".sample")
    page.get_by_label("chat", exact=True).check()
    assert page.inner_text(".turn.user .plain") == QUESTION and page.inner_text(".sample") == said != completed
    page.get_by_label("completion", exact=True).check()
    assert page.inner_text(".sample") == completed


def test_a_message_takes_the_place_of_one_that_failed(page: Any, watch: Any) -> None:
    """Templates of some models refuse two messages of the user in a row."""
    watch.allowed.append(REFUSED)
    set_params(page, top_p=3)
    page.fill("#composer", "Hello")
    page.press("#composer", "Enter")
    page.locator(".sample .problem").wait_for()
    set_params(page, top_p="", max_new_tokens=4)
    bodies: list[Any] = []
    page.on("request", lambda request: bodies.append(request.post_data) if "completions" in request.url else None)
    say(page, "And now?")
    assert json.loads(bodies[-1])["messages"] == [{"role": "user", "content": "And now?"}]
    assert page.locator(".turn").count() == 1


@pytest.mark.parametrize("n", ["0", "-1", "1000000000"])
def test_a_number_of_outputs_that_is_refused_says_so(page: Any, watch: Any, n: str) -> None:
    watch.allowed.append(REFUSED)
    set_params(page, n=n)
    page.fill("#composer", "Hello")
    page.press("#composer", "Enter")
    page.locator(".sample .problem", has_text=f"n is {n}").wait_for()


def test_an_output_without_logprobs_that_breaks_off_is_kept(page: Any, watch: Any) -> None:
    watch.allowed.append(re.compile("ERR_INCOMPLETE_CHUNKED_ENCODING"))
    page.get_by_text("Other fields").click()
    page.fill("#more", '{"logprobs": false, "top_logprobs": null}')
    choice = {"index": 0, "delta": {"content": "Half of"}, "finish_reason": None}
    broken = f"data: {json.dumps({'choices': [choice]})}\n\n"
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=broken, content_type="text/event-stream"))
    assert "Half of" in say(page, QUESTION, "text")
    assert page.inner_text(".sample .problem") == "The stream broke off."
    page.unroute("**/v1/chat/completions")
    say(page, "Go on.", "text")
    assert page.inner_text(".turn.assistant .plain") == "Half of"


def test_stop_and_again_have_places_of_their_own(page: Any) -> None:
    stop, again = page.locator("#stop"), page.get_by_role("button", name="Again")
    before = [stop.bounding_box(), again.bounding_box()]
    page.get_by_text("More parameters").click()
    page.select_option("#param-ignore_eos", "true")
    set_params(page, max_new_tokens=3500)
    page.fill("#composer", "Count.")
    page.press("#composer", "Enter")
    page.wait_for_selector(".sample footer:has-text('tokens')")
    assert [stop.bounding_box(), again.bounding_box()] == before and again.is_disabled()
    stop.press("Enter")
    page.wait_for_selector(".sample[aria-busy=false] footer:has-text('stopped')")
    page.keyboard.press("Tab")
    assert again.evaluate("each => each === document.activeElement"), "a keyboard goes on from Stop"
    page.set_viewport_size({"width": 390, "height": 844})
    assert len({button.bounding_box()["y"] for button in page.locator(".toolbar button").all()}) == 1, "one line"


def test_an_output_that_could_not_be_drawn_says_nothing_of_the_next(page: Any, watch: Any) -> None:
    watch.allowed.append(re.compile("no markdown"))
    picky = """import { html } from "./dom.js";
    export function Markdown({ text }) {
      if (window.fails) throw new Error("no markdown");
      return html`<div class="markdown">${text}</div>`;
    }"""
    page.route("**/ui/markdown.js", lambda route: route.fulfill(body=picky, content_type="text/javascript"))
    page.reload()
    page.wait_for_selector("#composer")
    set_params(page, temperature=0, max_new_tokens=4)
    page.evaluate("window.fails = true")
    say(page, QUESTION)
    assert page.locator(".sample .markdown").count() == 0
    page.evaluate("window.fails = false")
    page.get_by_role("button", name="Again").click()
    page.locator(".sample .markdown").wait_for()


def test_going_on_that_fails_leaves_the_chat(page: Any, watch: Any) -> None:
    watch.allowed.append(re.compile("Failed to load resource"))
    set_params(page, temperature=0, max_new_tokens=8)
    say(page, QUESTION)
    say(page, "And of Chile?", "tokens")
    page.route("**/v1/detokenize", lambda route: route.fulfill(status=500, body="no text today"))
    page.locator(".turn .token").nth(1).click()
    page.locator(".alternative button").nth(1).click()
    page.locator(".talk > .problem", has_text="no text today").wait_for()
    assert page.locator(".turn").count() == 3 and page.locator(".sample").count() == 1
    page.unroute("**/v1/detokenize")
    page.locator(".alternative button").nth(1).click()
    page.wait_for_selector(".samples > :nth-child(2)[aria-busy=false]")
    assert page.locator(".turn").count() == 1 and page.locator(".talk > .problem").count() == 0


def test_the_code_names_an_adapter_of_other_fields(page: Any) -> None:
    complete(page, "Hello")
    page.get_by_text("Other fields").click()
    page.fill("#more", '{"lora_path": "mine"}')
    page.locator(".codes summary").click()
    page.locator(".code label:has-text('Python')").click()
    assert 'model="mine"' in page.inner_text(".code pre")


def test_a_select_tells_the_default_from_what_is_set(page: Any) -> None:
    page.get_by_text("More parameters").click()
    for each in page.locator("select[id^=param-]").all():
        options = each.locator("option").all_inner_texts()
        assert options[0].startswith("default") and len(set(options)) == len(options)


def test_the_newest_answer_is_headed_and_removed_like_every_other(page: Any) -> None:
    set_params(page, temperature=0, max_new_tokens=8)
    say(page, QUESTION)
    answer = page.locator(".answer")
    assert answer.locator("header b").inner_text() == "assistant"
    answer.get_by_role("button", name="Remove this message").click()
    assert answer.count() == 0 and page.locator(".turn.user").count() == 1
    page.get_by_role("button", name="Again").click()
    page.wait_for_selector(".sample[aria-busy=false]")


def test_tokens_have_boundaries_and_outputs_keep_their_heights(page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    set_params(page, temperature=0, max_new_tokens=8, n=3)
    say(page, QUESTION, "tokens")
    tops = {box.bounding_box()["y"] for box in page.locator(".sample").all()}
    assert len(tops) == 1, "three stand side by side"
    boxes = [each.bounding_box() for each in page.locator(".sample").first.locator(".token").all()[:3]]
    assert all(one["x"] + one["width"] < other["x"] for one, other in pairwise(boxes))
    underline = page.locator(".token").first.evaluate("each => getComputedStyle(each).borderBottomColor")
    assert underline != "rgba(0, 0, 0, 0)"
    page.locator(".token").nth(1).click()
    heights = [box.bounding_box()["height"] for box in page.locator(".sample").all()]
    assert heights[0] > 2 * heights[1]


def test_a_model_that_is_a_path_is_shown_by_its_last_part(page: Any) -> None:
    names = ["/models/of/some/team/base-7b", "adapters/one", "more/one"]
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": [{"id": name} for name in names]}))
    page.reload()
    page.wait_for_selector("#composer")
    model = page.locator("#model")
    assert model.locator("option").all_inner_texts() == ["base-7b", "adapters/one", "more/one"]
    model.select_option(names[0])
    assert model.get_attribute("title") == names[0]


def _text_of(events: str) -> str:
    """Of curl's stream."""
    data = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    if "text" in data[-1]:
        return str(data[-1]["text"])
    return "".join(choice["delta"].get("content", "") for event in data for choice in event["choices"])
