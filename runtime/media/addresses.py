"""Which addresses media may be fetched from: only those of the public network, whatever form they are written in.

An address may stand for another one (IPv6 has four ways to say an IPv4 address), so each is unwrapped first.
"""

import ipaddress
import re
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LOOKS_NUMERIC = re.compile(r"[0-9a-fx.]*[0-9a-f]\.?")  # 127.0.0.1, 127.1, 0x7f.1, 017700000001, 2130706433
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # NAT64, RFC 6052
_REFUSED = [
    ipaddress.ip_network(text)
    for text in (
        "168.63.129.16/32",  # Azure's metadata
        "192.0.0.0/24",  # special, and Oracle's metadata
        "192.88.99.0/24",  # relays of 6to4
        "64:ff9b:1::/48",  # NAT64 of one network
        "2001::/23",  # special, Teredo among them
        "fec0::/10",  # of one site, as it was
        "5f00::/16",  # segments of routes
    )
]


def address_of(host: str) -> Address | None:
    """Of a host that is an address in any of the spellings that a resolver takes; None: it is a name."""
    if ":" in host:
        try:
            return _unwrapped(ipaddress.ip_address(host.partition("%")[0]))
        except ValueError:
            return None
    if not _LOOKS_NUMERIC.fullmatch(host):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host.removesuffix(".")))
    except OSError:
        return None


def is_public(address: Address) -> bool:
    real = _unwrapped(address)
    if real.is_multicast or real.is_reserved or not real.is_global:
        return False
    return not any(real in network for network in _REFUSED if network.version == real.version)


def _unwrapped(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or address
