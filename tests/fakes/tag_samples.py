"""Outputs that a structural tag allows, drawn by hypothesis, with the calls that they must be read as.

Knows the parts that the parsers' forms are made of, and what stands for a call: a tag whose beginning has the name of a
tool. Arguments are any JSON object; those in Python are what their pattern allows.
"""

import json
from typing import Any

from hypothesis import strategies as st

PIECES = ["a", "b c", "é", "😀", "\n", " ", "{", "[", "<", "<tool", "[TOOL", "</", '"', "f(", '{"name": "evil"', "]"]
TEXT = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.sampled_from([0.5, -2e10]) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["a", "b", "name", "arguments"]), VALUES, max_size=3)
HEADERS = ["<|start|>assistant", "<|channel|>commentary to=functions.evil<|message|>{}", "<|call|>", "<|en"]
Call = tuple[str, dict[str, Any]]
ANSWERS = [
    '{"answer": 1}', '["[TOOL_CALLS]f{}"]', '{"a": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}"}',
    '{"a": "<tool_call>{}</tool_call>"}', '["<|python_start|>[now()]"]', '[[], "[now()]"]', '"[now()]"', "17",
]  # fmt: skip


class TagSampler:
    """`names`: of the tools; none is part of another, or of a marker."""

    def __init__(self, draw: st.DrawFn, names: list[str]) -> None:
        self._draw, self._names = draw, names
        self.calls: list[Call] = []
        self.answer = ""

    def text(self, part: dict[str, Any]) -> str:
        draw = self._draw
        match part:
            case {"type": "const_string", "value": value}:
                return str(value)
            case {"type": "sequence", "elements": elements}:
                return "".join(map(self.text, elements))
            case {"type": "or", "elements": elements}:
                return self.text(draw(st.sampled_from(elements)))
            case {"type": "regex", "pattern": pattern}:
                return draw(st.from_regex(pattern, fullmatch=True))
            case {"type": "json_schema"}:  # an answer
                self.answer = draw(st.sampled_from(ANSWERS))
                return self.answer
            case {"type": "any_text"}:
                return "".join(draw(st.lists(st.sampled_from([*PIECES, *HEADERS]), max_size=5)))
            case {"type": "tag", "begin": begin, "content": content, "end": end}:
                return str(begin) + self._content(begin, content) + str(end)
            case {"type": "tags_with_separator", "tags": tags, "separator": separator}:
                assert part["at_least_one"]
                most = 1 if part["stop_after_first"] else 3
                chosen = draw(st.lists(st.sampled_from(tags), min_size=1, max_size=most))
                return str(separator).join(map(self.text, chosen))
            case {"type": "triggered_tags", "triggers": [trigger], "tags": tags}:
                most = 1 if part["stop_after_first"] else 3
                chosen = draw(st.lists(st.sampled_from(tags), max_size=most))
                text = "".join(self._free(trigger) + self.text(each) for each in chosen)
                return text if chosen and part["stop_after_first"] else text + self._free(trigger)
        raise AssertionError(f"a part that is not known: {part}")

    def _free(self, trigger: str) -> str:
        return self._draw(TEXT.filter(lambda text: trigger not in text))

    def _content(self, begin: str, content: dict[str, Any]) -> str:
        """The inside of a tag: arguments, or more tags."""
        name = next((name for name in self._names if name in begin), None)
        if name is None:
            return self.text(content)
        if content["type"] == "json_schema":
            arguments = self._draw(ARGUMENTS)
            self.calls.append((name, arguments))
            return json.dumps(arguments, ensure_ascii=self._draw(st.booleans()))
        text = self.text(content)
        self.calls.append((name, eval(f"dict({text.removeprefix('(')})")))
        return text
