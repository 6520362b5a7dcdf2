"""Not a fake: Chromium, headless, on pages that a test serves. Names of machines lead to this one or nowhere."""

import json
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
NEEDED = "this test runs in Chromium: install the package chromium, or name its program in CHROMIUM"
TIMEOUT_S = 90.0
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
PAGE = """<!doctype html><meta charset=utf-8><script>
async function ask(url, options) {
  try {
    const reply = await fetch(url, options);
    const chunks = [], decoder = new TextDecoder();
    if (reply.body) for (const reader = reply.body.getReader();;) {
      const {done, value} = await reader.read();
      if (done) break;
      chunks.push(decoder.decode(value, {stream: true}));
    }
    return {type: reply.type, status: reply.status, headers: Object.fromEntries(reply.headers), chunks};
  } catch (error) {
    return {error: error.name};
  }
}
(async () => {
  const answers = [];
  for (const [url, options] of ASKED) answers.push(await ask(url, options));
  await fetch("/answers", {method: "POST", body: JSON.stringify(answers)});
})();
</script>"""


def chromium() -> str:
    """The program. As root on Debian it is installed where it is missing."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], check=True)
        found = shutil.which("chromium")
    assert found is not None, NEEDED
    return found


def fetches(page: str, asked: list[tuple[str, dict[str, Any]]], profile: Path, port: int = 0) -> list[dict[str, Any]]:
    """What fetch(url, options) gives to a page of http://PAGE:port, each in turn. `profile`: an empty folder."""
    answers: queue.Queue[list[dict[str, Any]]] = queue.Queue()
    html = PAGE.replace("ASKED", json.dumps(asked))
    with _serving(html, answers, port) as port, _running(f"http://{page}:{port}/", page, profile):
        return answers.get(timeout=TIMEOUT_S)


def shows(url: str, page: str, profile: Path) -> str:
    """The document that opening a URL shows."""
    command = [*_command(page, profile), "--dump-dom", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout


def _command(page: str, profile: Path) -> list[str]:
    rules = f"MAP {page} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
    return [chromium(), *FLAGS, f"--user-data-dir={profile}", f"--host-resolver-rules={rules}"]


@contextmanager
def _running(url: str, page: str, profile: Path) -> Iterator[None]:
    command = [*_command(page, profile), "--remote-debugging-port=0", url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


@contextmanager
def _serving(html: str, answers: "queue.Queue[list[dict[str, Any]]]", port: int) -> Iterator[int]:
    """A page, and where it posts what it got. Yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(html.encode())

        def do_POST(self) -> None:
            answers.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._send(b"")

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
