"""The formats of JSON Schema that are enforced, as patterns of whole strings: the same ones on every backend.

Each matches only what the format's specification allows; a few spellings that it also allows are left out.
"""

_DIGIT_PAIRS = "(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = f"(?:[0-9]{{2}}{_DIGIT_PAIRS}|(?:0[48]|[2468][048]|[13579][26])00)"
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"  # not 0000
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_SECONDS = "[0-9]{1,9}S"
_MINUTES = f"[0-9]{{1,9}}M(?:{_SECONDS})?"
_CLOCK = f"T(?:[0-9]{{1,9}}H(?:{_MINUTES})?|{_MINUTES}|{_SECONDS})"
_DAYS = "[0-9]{1,9}D"
_MONTHS = f"[0-9]{{1,9}}M(?:{_DAYS})?"
_CALENDAR = f"(?:[0-9]{{1,9}}Y(?:{_MONTHS})?|{_MONTHS}|{_DAYS})"
_ALNUM = "[A-Za-z0-9]"
_LDH = "[A-Za-z0-9-]"
# at most 63 characters, and no "--" in the third and fourth place, which marks encoded labels
_LONG_LABEL = f"{_ALNUM}{_LDH}(?:{_ALNUM}{_LDH}|-{_ALNUM}){_LDH}{{0,58}}{_ALNUM}"
_LABEL = f"(?:{_ALNUM}|{_ALNUM}{{2}}|{_ALNUM}{_LDH}{{1,2}}{_ALNUM}|{_LONG_LABEL})"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"  # four labels are at most 255 characters
_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_H16 = "[0-9a-fA-F]{1,4}"
_IPV6 = "|".join(
    [
        f"(?:{_H16}:){{7}}{_H16}",
        f"(?:{_H16}:){{1,7}}:",
        *(f"(?:{_H16}:){{1,{7 - n}}}(?::{_H16}){{1,{n}}}" for n in range(1, 7)),
        f":(?::{_H16}){{1,7}}",
        "::",
    ]
)
_PCHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_URI = (
    r"[A-Za-z][A-Za-z0-9+.-]*:(?://(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})+(?::[0-9]{1,4})?"
    rf"(?:/{_PCHAR}*)*|{_PCHAR}+(?:/{_PCHAR}*)*)(?:\?(?:{_PCHAR}|[/?])*)?(?:\#(?:{_PCHAR}|[/?])*)?"
)

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P(?:{_CALENDAR}(?:{_CLOCK})?|{_CLOCK}|[0-9]{{1,9}}W)",
    "email": rf"{_ATEXT}{{1,32}}(?:\.{_ATEXT}{{1,31}})?@{_HOSTNAME}",
    "hostname": _HOSTNAME,
    "ipv4": rf"{_OCTET}(?:\.{_OCTET}){{3}}",
    "ipv6": _IPV6,
    "uuid": "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "uri": _URI,
}
NUMBER_FORMATS: dict[str, tuple[int, ...]] = {  # OpenAPI's, of numbers: least and most; none: any number that JSON has
    **{f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32)},
    **{f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32)},
    "int64": (-(1 << 53), 1 << 53),  # the range in which a double can hold every integer
    "uint64": (0, 1 << 53),
    "float": (),
    "double": (),
}
SILENT_FORMATS = ("password",)  # how a value is shown
