"""Values of the benches' options: each is checked where it is read; errors name value and range."""

import argparse
import json
from typing import Any


def positive(text: str) -> int:
    """An integer >= 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"is {text}, must be an integer >= 1")
    return value


def share(text: str) -> float:
    """A number in [0, 1]."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"is {text}, must be in [0, 1]")
    return value


def rate(text: str) -> float:
    """Requests a second."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"is {text}, must be > 0, or inf")
    return value


def json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("must be a JSON object")
    return value
