"""The patterns of formats: whatever they match is valid by an implementation of the format."""

import datetime
import ipaddress
import re
import uuid
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.grammar.formats import FORMATS
from ramet.runtime.grammar.regex import normal_form


def is_hostname(text: str) -> bool:
    text.encode("idna")  # raises for labels that are too long, or empty
    return len(text) <= 253 and not any(label[2:4] == "--" for label in text.split("."))


def is_email(text: str) -> bool:
    local, _, domain = text.partition("@")
    return len(local) <= 64 and is_hostname(domain) and ".." not in text


def is_duration(text: str) -> bool:
    found = re.fullmatch(r"P(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?|P\d+W", text)
    return bool(found) and text != "P" and not text.endswith("T")


def is_uri(text: str) -> bool:
    parts = urlsplit(text)
    return bool(parts.scheme) and (parts.port or 0) <= 65_535 and bool(parts.netloc or parts.path)


IMPLEMENTED = {
    "date": datetime.date.fromisoformat,
    "time": lambda text: datetime.time.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).tzinfo,
    "date-time": lambda text: datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).tzinfo,
    "duration": is_duration,
    "email": is_email,
    "hostname": is_hostname,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uuid": uuid.UUID,
    "uri": is_uri,
}
TAKEN = {
    "date": ["2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31"],
    "time": ["23:59:59Z", "00:00:00.123456+05:30"],
    "date-time": ["2024-02-29T12:00:00Z"],
    "duration": ["P1Y2M3DT4H5M6S", "PT1M", "P2W", "P3D"],
    "email": ["a.b+c@example.com"],
    "hostname": ["a", "a-b.example.com", "a" * 63],
    "ipv4": ["255.0.1.99"],
    "ipv6": ["::", "::1", "1::", "fe80::1:2", "1:2:3:4:5:6:7:8"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "uri": ["https://example.com:8080/a/b?c=d#e", "urn:isbn:0451450523", "mailto:a@b.c"],
}
REFUSED = {
    "date": ["2023-02-29", "1900-02-29", "0000-01-01", "2024-04-31", "2024-13-01"],
    "time": ["24:00:00Z", "12:00:00", "12:60:00Z"],
    "date-time": ["2024-02-29 12:00:00Z", "2023-02-29T12:00:00Z"],
    "duration": ["P", "PT", "P1", "P1W2D"],
    "email": ["a@", "@b", "a..b@c.d", "a@b..c"],
    "hostname": ["", "-a", "a-", "a..b", "a" * 64, "ab--cd"],
    "ipv4": ["256.0.0.1", "1.2.3", "01.2.3.4"],
    "ipv6": ["1", ":::", "1:2:3:4:5:6:7:8:9", "1::2::3"],
    "uuid": ["123e4567e89b12d3a456426614174000"],
    "uri": ["//a", "a b:c", "1a:b"],
}


@pytest.mark.parametrize("name", FORMATS)
def test_whatever_a_format_matches_is_valid(name):
    @given(st.from_regex(re.compile(normal_form(FORMATS[name])), fullmatch=True))
    def every_text(text: str) -> None:
        assert IMPLEMENTED[name](text), text

    every_text()


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_format_takes_and_refuses(name):
    pattern = re.compile(normal_form(FORMATS[name]))
    assert [text for text in TAKEN[name] if not pattern.fullmatch(text)] == []
    assert [text for text in REFUSED[name] if pattern.fullmatch(text)] == []
