"""The thought in front of an answer, separated while the text arrives.

A thought is at the start of the output or nowhere: a tag that opens later is content. White space after
the open tag and on both sides of the close tag belongs to neither (MAX_BLANKS of it, before a tag), but that after a
thought which a constraint follows; open tags repeated at the start of a thought are dropped. A thought that is never
closed takes the whole output. A thought that stays in the text keeps its tags and the white space around them.
"""

import msgspec

from ramet.runtime.errors import ConfigError
from ramet.runtime.intake.parsers.pieces import BLANKS, CallPieces, Steps
from ramet.runtime.intake.parsers.tools import GPT_OSS


class ReasoningStyle(msgspec.Struct, frozen=True):
    """How a family of models marks its thoughts."""

    open_tag: str
    close_tag: str
    always: bool = False  # every output starts inside a thought, whether or not it opens the tag
    shows_special: bool = False  # the tags are special tokens: they must be shown in the text
    channels: bool = False  # what stands between the tags is read by harmony.py


class ReasoningParser:
    """Feed it the output; it gives back (reasoning, content) as they become certain.

    `starts_inside`: the output begins inside a thought. `exact`: white space after it is content. `with_tags`: so are
    its tags and the white space around them, which belong to the reasoning.
    """

    def __init__(
        self, open_tag: str, close_tag: str, starts_inside: bool, exact: bool = False, with_tags: bool = False
    ) -> None:
        self._open_tag, self._close_tag = open_tag, close_tag
        self._exact, self._with_tags = exact or with_tags, with_tags
        self.starts_inside = starts_inside
        self.thinking = True  # inside the thought, or it is not yet decided whether there is one
        self.begun = starts_inside  # there is a thought
        self._answering = False  # all that comes is content
        self._text = CallPieces()
        self._reasoning: list[str] = []
        self._steps = self._read()

    def opened_by(self, first: str) -> bool:
        """Whether there is a thought, if its tag stands in the first text or nowhere."""
        return self.starts_inside or first.startswith(self._open_tag)

    def push(self, text: str) -> tuple[str, str]:
        if self._answering:
            return "", text
        if self._text.awaited not in text and text[-1:] not in BLANKS:
            return text, ""
        self._text.add(text)
        next(self._steps)
        reasoning = "".join(self._reasoning)
        self._reasoning.clear()
        return reasoning, self._text.rest() if self._answering else ""

    def close(self) -> tuple[str, str]:
        """What only the end makes certain."""
        waiting = "" if self._answering else self._text.rest()
        self._steps.close()  # they know this object: without the circle it is freed with its output
        return (waiting, "") if self.begun else ("", waiting)

    def _read(self) -> Steps[None]:
        text = self._text
        self.begun = self.starts_inside or (yield from text.begins(self._open_tag))
        if self.begun:
            while not self._with_tags and (yield from text.passes(self._open_tag)):
                pass
            yield from text.until(self._close_tag, self._reasoning.append)
            self.thinking = False
            tag_from = text.at
            yield from text.passes(self._close_tag)  # all of which has come
            if self._with_tags:
                self._reasoning.append(text.text[tag_from : text.at])
            if not self._exact:
                yield from text.skip_blanks()
        self.thinking, self._answering = False, True
        yield


_STYLES = {
    "qwen3": ReasoningStyle("<think>", "</think>"),
    "deepseek-r1": ReasoningStyle("<think>", "</think>", always=True),
    "mistral": ReasoningStyle("[THINK]", "[/THINK]", shows_special=True),
    GPT_OSS: ReasoningStyle("<|channel|>", "<|channel|>final<|message|>", shows_special=True, channels=True),
}


def reasoning_names() -> list[str]:
    return sorted(_STYLES)


def reasoning_style(name: str) -> ReasoningStyle:
    if name not in _STYLES:
        raise ConfigError(f"no reasoning style is called {name!r}, known are {', '.join(reasoning_names())}")
    return _STYLES[name]


def make_reasoning(
    name: str, prompt_tail: str, continued: str | None = None, exact: bool = False, with_tags: bool = False
) -> ReasoningParser:
    """Where the output starts: inside a thought if the rendered prompt ends with the tag that opens one.

    `continued`: the text of the turn that the output goes on with, which may have opened a thought and not closed it.
    """
    style, tail = reasoning_style(name), prompt_tail.rstrip()
    if continued is not None:
        thinking = continued.rfind(style.open_tag) > continued.rfind(style.close_tag)
    else:
        thinking = tail.endswith(style.open_tag) or (style.always and not tail.endswith(style.close_tag))
    return ReasoningParser(style.open_tag, style.close_tag, thinking, exact, with_tags)


def thought_of(name: str, prompt_tail: str, continued: str | None = None, thinks: bool = True) -> tuple[str, str]:
    """The tags that open and close the thought which an output begins with, if it does. "" for none.

    Without the first of them the output starts inside a thought. A prompt that closed one, and a turn that was begun,
    are followed by an answer. `thinks` False: the client wants no thought, so the model does not get to open one.
    """
    style = reasoning_style(name)
    if make_reasoning(name, prompt_tail, continued).starts_inside:
        return "", style.close_tag
    answers = not thinks or bool(continued) or prompt_tail.rstrip().endswith(style.close_tag)
    return ("", "") if answers else (style.open_tag, style.close_tag)


def detect_reasoning(template: str) -> str | None:
    """The style that a chat template's source writes, or None."""
    if "<|channel|>analysis" in template:
        return GPT_OSS
    if "[THINK]" in template:
        return "mistral"
    return "qwen3" if "<think>" in template or "</think>" in template else None
