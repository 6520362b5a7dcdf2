"""The page's files: read once, from a fixed table by name, so that no path of a request ever reaches the disk.

They hold no secret and are the same for everybody. What a page of this origin could do with a stored script is why
every one of them is sent under POLICY: nothing but our own files runs, and nothing leaves but to this server.
"""

import gzip
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

FOLDER = Path(__file__).resolve().parent / "assets"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "media-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # a browser keeps it, and asks each time whether it is current
    "Vary": "Accept-Encoding",
}


class Asset(NamedTuple):
    data: bytes
    zipped: bytes
    headers: dict[str, str]
    etag: str


@cache
def table() -> dict[str, Asset]:
    """Every file by its path below FOLDER."""
    files = sorted(path for path in FOLDER.rglob("*") if path.is_file())
    return {path.relative_to(FOLDER).as_posix(): _read(path) for path in files}


def _read(path: Path) -> Asset:
    data = path.read_bytes()
    etag = sha256(data).hexdigest()[:32]
    headers = {**HEADERS, "Content-Type": TYPES[path.suffix], "ETag": f'W/"{etag}"'}  # weak: one for both encodings
    return Asset(data, gzip.compress(data, mtime=0), headers, etag)


def respond(asset: Asset, request: web.Request) -> web.Response:
    """The file, or a 304 to a browser that has it."""
    if any(known.value in (asset.etag, "*") for known in request.if_none_match or ()):
        return web.Response(status=304, headers=asset.headers)
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return web.Response(body=asset.zipped, headers={**asset.headers, "Content-Encoding": "gzip"})
    return web.Response(body=asset.data, headers=asset.headers)
