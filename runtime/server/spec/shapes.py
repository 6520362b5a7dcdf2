"""What replies of several endpoints have in common, for /openapi.json and a test that holds every reply against it.

Decides nothing: replies are plain objects, made where they are told. A field that one may leave out is UNSET here.
"""

from typing import Literal

from msgspec import Struct


class Shape(Struct, kw_only=True, forbid_unknown_fields=True):
    """Base: a reply has these keys and no others."""


class CachedTokens(Shape):
    cached_tokens: int


class ReasoningTokens(Shape):
    reasoning_tokens: int


class Usage(Shape):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens


class ToldToken(Shape):
    token: str
    logprob: float
    bytes: list[int]


class ToldPlace(ToldToken):
    top_logprobs: list[ToldToken]


Reason = Literal["stop", "length", "tool_calls", "abort"]


class PromptUsage(Shape):
    prompt_tokens: int
    total_tokens: int
