"""Types that fields of several bodies have, and the marks of what is refused."""

from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

from msgspec import Meta

from ramet.ipc.params import about
from ramet.runtime.intake.limits import INT32, MAX_KEY_CHARS, MAX_RID_CHARS

T = TypeVar("T")
OrEach: TypeAlias = T | list[T | None] | None  # one value for all prompts, or one for each


def named(words: str, **bounds: Any) -> Meta:
    """Bounds, and the words that an error has for them."""
    return Meta(extra={"words": words}, **bounds)


Text = Annotated[str, Meta(min_length=1)]
Some: TypeAlias = Annotated[list[T], Meta(min_length=1)]
TokenId = Annotated[int, named("a token id of the vocabulary", ge=0, le=INT32 - 1)]
# of a prompt: what is outside the vocabulary is refused where the vocabulary is known
PromptId = Annotated[int, named("a token id", extra_json_schema={"minimum": 0, "maximum": INT32 - 1})]
Ids = Some[PromptId]
Prompts = Text | Annotated[list[Text | PromptId | Ids], named("a list of strings, or token ids", min_length=1)]
Int32 = Annotated[int, Meta(ge=-INT32, le=INT32 - 1)]
Key = Annotated[str, Meta(max_length=MAX_KEY_CHARS)]
# Patterns: msgspec 0.22 writes past its own memory where one stands in a union with a list or an object; a test looks.
# The log prints a rid, so it has no line breaks; `$` alone would let a last one pass.
RID = rf"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]{{1,{MAX_RID_CHARS}}}$(?!\n)"
RID_WORDS = f"a string of 1 to {MAX_RID_CHARS} characters, no line breaks and other control characters"
Rid = Annotated[str, named(RID_WORDS, pattern=RID)]
ToolName = Annotated[str, Meta(pattern="^[A-Za-z0-9_.:/-]{1,128}$")]


class Unbuilt(NamedTuple):
    """Marks a field of a Checked struct. Any value is refused but null, [] and the neutral ones."""

    neutral: tuple[Any, ...]
    hint: str
    code: str
    fact: str = "but this feature is not built yet"


def unbuilt(text: str, neutral: tuple[Any, ...] = (), hint: str = "omit it", code: str = "", **schema: Any) -> Meta:
    return Meta(
        description=f"*refused until it is built*: {text}",
        extra_json_schema={"x-unbuilt": True, **schema},
        extra={"unbuilt": Unbuilt(neutral, hint, code)},
    )


def accepted(why: str) -> Meta:
    """Marks a field that changes nothing a client receives."""
    return about(f"accepted; {why}")


def elsewhere(field: str, neutral: tuple[Any, ...] = ("", {"type": "text"})) -> Meta:
    """Marks a name that another body has for a constraint that is `field` in this one.

    `neutral`: values that ask for no constraint.
    """
    fact = "but this endpoint has another field for it"
    return Meta(
        description=f"*refused*: the field for it is {field}",
        extra_json_schema={"x-unbuilt": True},
        extra={"unbuilt": Unbuilt(neutral, f"send {field}", "", fact)},
    )


def format_elsewhere(field: str) -> Meta:
    """Marks a name under which another body has an object whose `format` is `field` in this one."""
    words = f"*refused with a `format`*: the field for it is {field}"
    return Meta(description=words, extra_json_schema={"x-unbuilt": True})
