"""Whether a text has a format of JSON Schema, read strictly from the RFCs: for the validator of conformance tests."""

import ipaddress
import re
import uuid
from contextlib import suppress
from datetime import date

TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII)
DURATION = re.compile(
    r"P(?:\d+W|(?=.)(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)?"
    r"(?:T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S))?)",
    re.ASCII,
)
ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
LOCAL_PART = re.compile(rf'{ATOM}(?:\.{ATOM})*|"(?:[ !#-\[\]-~]|\\[ -~])*"')
LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
PCHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
USERINFO = r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*"
REG_NAME = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
AUTHORITY = rf"(?:{USERINFO}@)?(?:\[(?P<literal>[^\]]*)\]|{REG_NAME})(?::[0-9]*)?"
URI = re.compile(
    rf"[A-Za-z][A-Za-z0-9+.-]*:(?://{AUTHORITY}(?:/{PCHAR}*)*|/(?:{PCHAR}+(?:/{PCHAR}*)*)?|{PCHAR}+(?:/{PCHAR}*)*|)"
    rf"(?:\?(?:{PCHAR}|[/?])*)?(?:\#(?:{PCHAR}|[/?])*)?"
)
IP_FUTURE = re.compile(r"v[0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+")


def is_date(text: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return False
    if text.startswith("0000"):  # a leap year of RFC 3339, and none that Python counts
        text = "2000" + text[4:]
    with suppress(ValueError):
        date.fromisoformat(text)
        return True
    return False


def is_time(text: str) -> bool:
    match = TIME.fullmatch(text)
    if not match:
        return False
    hour, minute, second = (int(part) for part in match.group(1, 2, 3))
    offset_hour, offset_minute = int(match.group(5) or 0), int(match.group(6) or 0)
    if hour > 23 or minute > 59 or second > 60 or offset_hour > 23 or offset_minute > 59:
        return False
    if second < 60:
        return True
    offset = offset_hour * 60 + offset_minute
    universal = hour * 60 + minute - (offset if match.group(4) == "+" else -offset)
    return universal % 1440 == 23 * 60 + 59  # leap seconds are the last of a day of universal time


def is_date_time(text: str) -> bool:
    return len(text) > 11 and text[10] in "Tt" and is_date(text[:10]) and is_time(text[11:])


def is_duration(text: str) -> bool:
    return DURATION.fullmatch(text) is not None


def is_hostname(text: str) -> bool:
    labels = text.split(".")
    if not text or len(text) > 253 or not all(LABEL.fullmatch(label) for label in labels):
        return False
    # hyphens in third and fourth place are those of encoded labels alone
    return all(label[2:4] != "--" or _is_encoded(label) for label in labels)


def _is_encoded(label: str) -> bool:
    if label[:4].lower() != "xn--":
        return False
    with suppress(UnicodeError):
        decoded = label[4:].encode().decode("punycode")
        return bool(decoded) and not decoded.isascii() and decoded.encode("punycode").decode() == label[4:]
    return False


def is_email(text: str) -> bool:
    local, at, domain = text.rpartition("@")
    if not at or not LOCAL_PART.fullmatch(local):
        return False
    if domain.startswith("[") and domain.endswith("]"):
        inside = domain[1:-1]
        return is_ipv6(inside[5:]) if inside.lower().startswith("ipv6:") else is_ipv4(inside)
    return is_hostname(domain)


def is_ipv4(text: str) -> bool:
    with suppress(ValueError):
        ipaddress.IPv4Address(text)
        return text.isascii()
    return False


def is_ipv6(text: str) -> bool:
    with suppress(ValueError):
        ipaddress.IPv6Address(text)
        return "%" not in text and text.isascii()
    return False


def is_uuid(text: str) -> bool:
    with suppress(ValueError):
        uuid.UUID(text)
        return len(text) == 36 and all(text[place] == "-" for place in (8, 13, 18, 23))
    return False


def is_uri(text: str) -> bool:
    match = URI.fullmatch(text)
    if not match:
        return False
    literal = match.group("literal")
    return literal is None or is_ipv6(literal) or IP_FUTURE.fullmatch(literal) is not None


CHECKS = {
    "date": is_date, "time": is_time, "date-time": is_date_time, "duration": is_duration, "email": is_email,
    "hostname": is_hostname, "ipv4": is_ipv4, "ipv6": is_ipv6, "uuid": is_uuid, "uri": is_uri,
}  # fmt: skip
SHORTEST = {
    "date": "2000-01-01", "time": "00:00:00Z", "date-time": "2000-01-01T00:00:00Z", "duration": "P1D", "email": "a@b",
    "hostname": "a", "ipv4": "0.0.0.0", "ipv6": "::", "uuid": "00000000-0000-0000-0000-000000000000", "uri": "a:b",
}  # fmt: skip
