"""Who may ask what: keys, and for a server without them the names and web pages that may reach it.

A web page runs in a browser on a machine that may reach this server although the page's author may not. Its browser
says where the page came from (Origin), and which name it looked up (Host): a page that has its own name resolved to
this server's address (DNS rebinding) is told by the name. What browsers ask and need is the Fetch standard's, section
3.3. Reads no header that a proxy sets, for a client can set it as well.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import NamedTuple

from aiohttp import web

from ramet.ipc.params import shown
from ramet.runtime.access.origins import HOST, LOOPBACK, HostRules, OriginRules, parse_origin, read_hosts, read_origins
from ramet.runtime.config import Args
from ramet.runtime.errors import ClientError
from ramet.runtime.server.http.keys import Keys

METHODS = "GET, HEAD, POST, PUT, DELETE"
EXPOSED = "X-Request-Id, Request-Id, Retry-After, X-Should-Retry, Traceparent, Tracestate"
MAX_AGE_S = 7200  # for which a browser need not repeat a preflight; Chromium keeps none for longer
_WORDS = re.compile(r"[\w!#$%&'*+.^`|~, -]*", re.ASCII)  # names of headers


class Allowed(NamedTuple):
    keys: Keys
    hosts: HostRules
    origins: OriginRules


def read_allowed(args: Args) -> Allowed:
    """Raises ConfigError."""
    serve = args.serve
    hosts = read_hosts(serve.allowed_hosts)
    names = hosts.names | LOOPBACK | {socket.gethostname().lower(), serve.host.lower().removesuffix(".")}
    keys = Keys(serve, is_apart=args.keeps_keys_apart)
    return Allowed(keys, hosts._replace(names=names), read_origins(serve.allowed_origins))


def sent_keys(request: web.Request) -> list[bytes]:
    """Every key that a request has."""
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    bearer = sent.strip() if scheme.lower() == "bearer" else ""
    return [key.encode(errors="surrogateescape") for key in (bearer, request.headers.get("X-Api-Key", "")) if key]


async def check_host(allowed: Allowed, host: str) -> None:
    """`host`: as sent. Raises ClientError for a name that is not this server's."""
    found = HOST.fullmatch(host.lower())
    if found is not None and (allowed.hosts.allow(found[1]) or _is_address(found[1]) or await _is_full_name(found[1])):
        return
    fact = f"The request is for {shown(host)} (header Host, or target), which is not known as a name of this server."
    raise ClientError("", fact, "start it with that name in --allowed-hosts, or with --api-key", 403)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


async def _is_full_name(name: str) -> bool:
    """Only for a name that begins with this machine's: to look the full one up can take seconds."""
    return name.startswith(socket.gethostname().lower() + ".") and name == await asyncio.to_thread(_full_name)


@cache
def _full_name() -> str:
    return socket.getfqdn().lower().removesuffix(".")


def check_origin(allowed: Allowed, request: web.Request) -> None:
    """Raises ClientError for a page of another site. A request without the header comes from no page."""
    if "Origin" in request.headers and not _may_ask(allowed, request):
        raise _foreign(request.headers.getall("Origin"))


def preflight(allowed: Allowed, request: web.Request) -> web.Response | None:
    """The answer to a browser that asks what a page may ask. None: the request is another."""
    asked = request.headers
    if request.method != "OPTIONS" or "Origin" not in asked or "Access-Control-Request-Method" not in asked:
        return None
    if not _may_ask(allowed, request):
        raise _foreign(asked.getall("Origin"))
    names = asked.get("Access-Control-Request-Headers", "")
    headers = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": str(MAX_AGE_S)}
    if names and _WORDS.fullmatch(names):
        headers["Access-Control-Allow-Headers"] = names  # "*" would not stand for Authorization
    if asked.get("Access-Control-Request-Private-Network") == "true":
        headers["Access-Control-Allow-Private-Network"] = "true"
    return web.Response(status=204, headers=headers)


def add_cors_headers(allowed: Allowed, origin: str, headers: MutableMapping[str, str]) -> None:
    """To every reply to a page, so that it can read errors too."""
    headers["Vary"] = ", ".join(filter(None, (headers.get("Vary"), "Origin")))
    if allowed.origins.lists(parse_origin(origin)):
        headers["Access-Control-Allow-Origin"] = origin
        headers["Access-Control-Allow-Credentials"] = "true"
    elif allowed.origins.any_origin:
        headers["Access-Control-Allow-Origin"] = "*"
    else:
        return
    headers["Access-Control-Expose-Headers"] = EXPOSED


def _may_ask(allowed: Allowed, request: web.Request) -> bool:
    sent = request.headers.getall("Origin")
    origin = parse_origin(sent[0]) if len(sent) == 1 else None
    if allowed.origins.any_origin or allowed.origins.lists(origin):
        return True
    return origin is not None and origin.came_from(request.headers.get("Host", ""))


def _foreign(origins: Sequence[str]) -> ClientError:
    if len(origins) > 1:
        return ClientError("", f"The request has {len(origins)} headers Origin, must have one at most.", status=403)
    fact = f"The header Origin names {shown(origins[0])}: pages from there may not use this server."
    return ClientError("", fact, "start it with that origin in --allowed-origins", 403)
