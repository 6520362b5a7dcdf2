"""Origins and host names: what browsers send in the headers Origin and Host, and what options say of them.

An origin is scheme://name[:port] (RFC 6454, section 7); a name is written as in a URL, an IPv6 address in brackets. Two
spellings are equal here if they differ in case, in a port that is the scheme's own, or in the dot of a full name.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ramet.runtime.errors import ConfigError

ANY = "*"
PORTS = {"http": 80, "https": 443}
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
NAME = r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?"
HOST = re.compile(NAME + r"(?::([0-9]{1,5}))?")  # of lower-case text: the name without its last dot, and the port
_ORIGIN = re.compile(rf"([a-z][a-z0-9+.-]*)://{HOST.pattern}")
_HOST_RULE = re.compile(rf"((?:\*?\.)?){NAME}")


class Origin(NamedTuple):
    scheme: str
    name: str
    port: int | None  # None: the scheme has no port of its own, and none is written

    @property
    def of_this_machine(self) -> bool:
        """A page that this machine itself served."""
        return self.scheme in PORTS and self.name in LOOPBACK

    def came_from(self, host: str) -> bool:
        """Whether a page of this origin is one that the server of this header Host sent. A proxy may end the TLS."""
        found = HOST.fullmatch(host.lower())
        if found is None:
            return False
        port = PORTS.get(self.scheme) if found[2] is None else int(found[2])
        return (self.name, self.port) == (found[1], port)


class HostRules(NamedTuple):
    names: frozenset[str]
    endings: tuple[str, ...]  # each begins with a dot
    any_name: bool

    def allow(self, name: str) -> bool:
        return self.any_name or name in self.names or name.endswith(self.endings)


class OriginRules(NamedTuple):
    origins: frozenset[Origin]
    any_origin: bool

    def lists(self, origin: Origin | None) -> bool:
        """Whether it is one of these, or this machine's own."""
        return origin is not None and (origin in self.origins or origin.of_this_machine)


def parse_origin(text: str) -> Origin | None:
    """None for what is no origin, as "null" of a page without one."""
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        return None
    scheme, name, port = found.groups()
    return Origin(scheme, name, PORTS.get(scheme) if port is None else int(port))


def read_origins(words: Sequence[str]) -> OriginRules:
    """Reads --allowed-origins. Raises ConfigError."""
    origins = [(word, parse_origin(word)) for word in words if word != ANY]
    for word, origin in origins:
        if origin is None:
            fact = f"--allowed-origins has {word!r}, must be scheme://name or scheme://name:port without a path, or *"
            raise ConfigError(fact)
    return OriginRules(frozenset(origin for _, origin in origins if origin is not None), ANY in words)


def read_hosts(words: Sequence[str]) -> HostRules:
    """Reads --allowed-hosts. Raises ConfigError."""
    names, endings = set[str](), list[str]()
    for word in words:
        if word == ANY:
            continue
        found = _HOST_RULE.fullmatch(word.lower())
        if found is None:
            fact = f"--allowed-hosts has {word!r}, must be a name without a port, .name for all names below it, or *"
            raise ConfigError(fact)
        if found[1]:
            endings.append("." + found[2])
        else:
            names.add(found[2])
    return HostRules(frozenset(names), tuple(endings), ANY in words)
