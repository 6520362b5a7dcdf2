"""The page's files over HTTP: where they are, what guards them, and that nothing else is reached through them."""

import gzip
import inspect
import json
import re
from hashlib import sha256

import pytest

from ramet.frontend.api import gen
from ramet.ipc.params import CHECKS
from ramet.runtime.server.ui.assets import FOLDER, POLICY, table
from tests.fakes.server import Served, served

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
VENDOR = FOLDER / "vendor"
OWN = [path for path in sorted(FOLDER.rglob("*")) if path.is_file() and VENDOR not in path.parents]


async def get(server: Served, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    asked = {"Accept-Encoding": "identity", **headers}
    async with server.http.get(path, headers=asked, allow_redirects=False) as reply:
        return reply.status, dict(reply.headers), await reply.read()


def test_every_file_comes_under_the_policy_without_a_key() -> None:
    async def check(server: Served) -> None:
        for path, name in [("/ui", "index.html"), *((f"/ui/{name}", name) for name in table())]:
            status, headers, data = await get(server, path)
            assert status == 200 and data == (FOLDER / name).read_bytes(), path
            assert headers["Content-Security-Policy"] == POLICY
            assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"

    served(check, api_key="user")


def test_the_policy_lets_nothing_in_or_out_but_this_server() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules.pop("img-src") == "'self' data:" and rules.pop("media-src") == "data:"
    own = {"script-src", "style-src", "connect-src"}
    assert {name for name, value in rules.items() if value == "'self'"} == own
    assert {value for name, value in rules.items() if name not in own} == {"'none'"}
    assert {"default-src", "base-uri", "form-action", "frame-ancestors"} <= rules.keys()


def test_types_are_those_of_the_endings() -> None:
    async def check(server: Served) -> None:
        for name, kind in (
            ("app.js", "text/javascript"), ("vendor/preact.mjs", "text/javascript"), ("app.css", "text/css"),
            ("icon.svg", "image/svg+xml"), ("vendor/LICENSE-htm.txt", "text/plain"),
        ):  # fmt: skip
            _, headers, _ = await get(server, f"/ui/{name}")
            assert headers["Content-Type"].split(";")[0] == kind

    served(check)


def test_a_file_is_sent_packed_and_once() -> None:
    async def check(server: Served) -> None:
        async with server.http.get("/ui/app.js", headers={"Accept-Encoding": "gzip"}, auto_decompress=False) as reply:
            assert reply.headers["Content-Encoding"] == "gzip" and reply.headers["Vary"] == "Accept-Encoding"
            assert gzip.decompress(await reply.read()) == (FOLDER / "app.js").read_bytes()
            etag = reply.headers["ETag"]
        status, headers, data = await get(server, "/ui/app.js", **{"If-None-Match": etag})
        assert (status, data) == (304, b"") and headers["Content-Security-Policy"] == POLICY
        assert (await get(server, "/ui/app.css", **{"If-None-Match": etag}))[0] == 200

    served(check)


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../assets.py", "/ui/%2e%2e/assets.py", "/ui/..%2fassets.py", "/ui/views/../../pages.py", "/ui/views",
        "/ui//etc/passwd", "/ui/%2fetc%2fpasswd", "/ui/..\\assets.py", "/ui/app.js%00", "/ui/.", "/ui/vendor/",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_table(path: str) -> None:
    async def check(server: Served) -> None:
        from yarl import URL

        url = URL(f"http://127.0.0.1:{server.port}{path}", encoded=True)
        async with server.http.get(url, allow_redirects=False) as reply:
            assert reply.status == 404 and "error" in await reply.json()

    served(check)


def test_a_browser_is_led_to_the_page_and_a_probe_gets_json() -> None:
    async def check(server: Served) -> None:
        status, headers, _ = await get(server, "/", **BROWSER)
        assert (status, headers["Location"]) == (302, "ui")
        for accept in ("application/json", "*/*", ""):
            status, headers, data = await get(server, "/", Accept=accept)
            assert status == 200 and json.loads(data)["name"] == "ramet"
        assert (await get(server, "/ui/", **BROWSER))[1]["Location"] == "../ui"

    served(check, api_key="user")


def test_no_ui_turns_all_of_it_off() -> None:
    async def check(server: Served) -> None:
        for path in ("/ui", "/ui/", "/ui/app.js", "/ui/vendor/preact.mjs"):
            status, _, data = await get(server, path, **BROWSER)
            assert status == 404 and "There is no /ui" in json.loads(data)["error"]["message"]
        status, _, data = await get(server, "/", **BROWSER)
        assert status == 200 and json.loads(data)["name"] == "ramet"

    served(check, ui=False)


def test_the_libraries_are_those_of_the_manifest() -> None:
    listed = {}
    for package in json.loads((VENDOR / "manifest.json").read_text()):
        assert package["licence"] and re.fullmatch(r"sha512-[\w+/]{86}==", package["integrity"])
        files = {each["file"]: each["sha256"] for each in package["files"]}
        assert f"LICENSE-{package['name']}.txt" in files
        listed.update(files)
    there = {path.name: sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir()}
    del there["manifest.json"]
    assert there == listed


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in OWN:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|[\"'(]//", text), path.name
    for path in VENDOR.glob("*js"):
        imported = re.findall(r'\b(?:import|export)\b[^;"]*?\bfrom\s*"([^"]+)"', path.read_text())
        assert all(name.startswith("./") for name in imported), path.name


def test_the_page_has_no_inline_script_or_style() -> None:
    """The policy would not run them."""
    text = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script[^>]*>(.*?)</script>", text) == [""]
    assert "<style" not in text and not re.search(r"\s(style|on\w+)=", text)


def test_every_import_of_the_page_names_a_file_of_it() -> None:
    for path in OWN:
        if path.suffix == ".js":
            for name in re.findall(r'^(?:import|export)\b[^;]*?from "([^"]+)";', path.read_text(), re.MULTILINE):
                assert (path.parent / name).resolve().is_file(), f"{path.name} imports {name}"


def test_the_code_that_the_page_shows_knows_the_arguments_of_gen() -> None:
    """All that gen takes of the sampling parameters, and nothing that it does not take."""
    text = (FOLDER / "playground" / "code.js").read_text()
    known = set(re.findall(r'"(\w+)"', text[text.index("const OF_GEN") :].split("]")[0]))
    assert known <= inspect.signature(gen).parameters.keys()
    native = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}
    assert {native.get(name, name) for name in CHECKS} - {"stream_interval"} <= known
