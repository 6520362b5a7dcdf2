"""Numbers that a client writes in a query.

Digits are ASCII. `float` and `int` also take those of other scripts, underscores and blanks, which no client means.
"""

import math
import re

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[0-9]{1,9}")


def number(text: str) -> float:
    """nan: the text is no number."""
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def whole_number(text: str) -> int | None:
    """A number of at most nine digits, without a sign. None: the text is no such number."""
    return int(text) if _WHOLE.fullmatch(text) else None
