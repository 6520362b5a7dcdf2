"""No call of the parser gets much more than a piece of long JSON, unless it is one long string."""

import pytest

from ramet.runtime.intake import json_pieces

SIZE = 1 << 20


@pytest.mark.parametrize(
    ("head", "entry", "tail"),
    [
        ('{"text": [', '"x"', "]}"),
        ('{"input_ids": [', "1", "]}"),
        ('{"messages": [', '{"role": "user", "content": "[{,"}', "]}"),
        ('{"a": {"b": [{"c": [', '{"d": ["e", {"f": 1}]}', "]}]}}"),
        ('{"tools": [{"function": {"parameters": {"properties": {', '"a": {"type": "integer"}', "}}}}]}"),
    ],
)
def test_long_json_is_parsed_in_pieces(head: str, entry: str, tail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    loads = json_pieces.orjson.loads

    def recorded(data: bytes) -> object:
        sizes.append(len(data))
        return loads(data)

    entries = ",".join([entry] * (SIZE // (len(entry) + 1)))
    data = f"{head}{entries}{tail}".encode()
    expected = loads(data)
    monkeypatch.setattr(json_pieces.orjson, "loads", recorded)
    assert json_pieces.loads(data, data.count(b",")) == expected
    assert max(sizes) < 1.1 * json_pieces.PIECE and sum(sizes) < 1.1 * len(data)


def test_a_long_string_is_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a, [b" * SIZE
    assert json_pieces.loads(f'{{"text": "{text}"}}'.encode(), 1) == {"text": text}
    assert json_pieces.loads(f'["{text}", "\\\\", "b"]'.encode(), 1 << 20) == [text, "\\", "b"]


def test_a_run_of_backslashes_takes_no_step_for_each() -> None:
    """A piece that would end within an escape is longer by one byte, not by all the escapes."""
    text = "\\\\" * SIZE
    assert json_pieces.loads(f'["{text}", 1]'.encode(), 1 << 20) == ["\\" * SIZE, 1]
