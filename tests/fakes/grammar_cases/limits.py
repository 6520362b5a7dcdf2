"""Valid instances of the JSON-Schema-Test-Suite that no output is, with the reason: what is enforced is narrower there.

Each is "file: group: test", in both drafts. Nothing like it exists for invalid instances: none is ever an output.
"""

from collections.abc import Mapping

from ramet.runtime.grammar.base import BackendName

ASSERTED = "format: "  # a file: what has no right format is valid there, because formats only inform
TIME = "optional/format/time: validation of time strings: "
DATE_TIME = "optional/format/date-time: validation of date-time strings: "
EMAIL = "optional/format/email: validation of e-mail addresses: "
IPV6 = "optional/format/ipv6: validation of IPv6 addresses: "
URI = "optional/format/uri: validation of URIs: "

EVERYWHERE = {
    "leap seconds are not written: a pattern cannot compare them with the offset": (
        TIME + "a valid time string with leap second, Zulu",
        TIME + "valid leap second, large negative time-offset",
        TIME + "valid leap second, large positive time-offset",
        TIME + "valid leap second, negative time-offset",
        TIME + "valid leap second, positive time-offset",
        TIME + "valid leap second, zero time-offset",
        DATE_TIME + "a valid date-time with a leap second, UTC",
        DATE_TIME + "a valid date-time with a leap second, with minus offset",
    ),
    "times are written with capital T and Z": (
        TIME + "a valid time string with case-insensitive Z",
        DATE_TIME + "case-insensitive T and Z",
    ),
    "addresses of mail are words, with at most one dot, at a host name": (
        EMAIL + "a quoted string with a @ in the local part is valid",
        EMAIL + "a quoted string with a double dot in the local part is valid",
        EMAIL + "a quoted string with a space in the local part is valid",
        EMAIL + "an IPv4-address-literal after the @ is valid",
        EMAIL + "an IPv6-address-literal after the @ is valid",
        EMAIL + "two separated dots inside local part are valid",
    ),
    "whether an encoded label is valid is no matter of a pattern": (
        "optional/format/hostname: validation of host names: a valid punycoded IDN hostname",
    ),
    "IPv6 addresses are written in groups of sixteen bits": (
        IPV6 + "a long valid ipv6",
        IPV6 + "mixed format with double colons between the sections",
        IPV6 + "mixed format with leading double colons (ipv4-mapped ipv6 address)",
        IPV6 + "mixed format with the ipv4 section as decimal octets",
    ),
    "the host of a URI is a name, without users and IPv6 literals": (
        URI + "a valid URL ",
        URI + "a valid URL with many special characters",
    ),
    "a number is written as its constant is, from 2^53 on": (
        "const: float and integers are equal up to 64-bit representation limits: float is valid",
    ),
    "the neighbours of $ref count in draft 7 too": (
        "ref: ref overrides any sibling keywords: ref valid, maxItems ignored",
    ),
    "all keywords are enforced, whatever vocabulary $schema names": (
        "vocabulary: schema that uses custom metaschema with with no validation vocabulary: "
        "no validation: invalid number, but it still validates",
    ),
}
ONLY: Mapping[BackendName, Mapping[str, tuple[str, ...]]] = {}


def narrower(backend: BackendName) -> frozenset[str]:
    """The tests whose instance the backend does not write."""
    reasons = [*EVERYWHERE.values(), *ONLY.get(backend, {}).values()]
    return frozenset(name for names in reasons for name in names)
