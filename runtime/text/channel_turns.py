"""Turns for templates that write channels, such as GPT-OSS': the text of a turn with calls joins the turn's thought.

Such a template shows either the thought or the text of a turn with calls, and only until an answer follows. If the
text became a turn of its own, it would be such an answer, and the thoughts before it would be lost. Thoughts before an
answer are not shown, so texts beside calls before it are left alone: fit_turns.py makes turns of them.
"""

from typing import Any

ANALYSIS = "<|channel|>analysis"


def with_texts_in_thoughts(turns: list[dict[str, Any]], template_source: str) -> list[dict[str, Any]]:
    if ANALYSIS not in template_source:
        return turns
    answers = [i for i, turn in enumerate(turns) if turn["role"] == "assistant" and not turn.get("tool_calls")]
    newest = answers[-1] + 1 if answers else 0
    return turns[:newest] + list(map(_with_text_in_thought, turns[newest:]))


def _with_text_in_thought(turn: dict[str, Any]) -> dict[str, Any]:
    said = turn["content"]
    if not (turn.get("tool_calls") and said and isinstance(said, str)):
        return turn
    thought = turn.get("reasoning_content")
    return {**turn, "content": "", "reasoning_content": f"{thought}\n\n{said}" if thought else said}
