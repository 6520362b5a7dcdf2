"""What servers that speak OpenAI's API do beyond it, and what of it they leave out: one class for each.

Facts are those of the projects' own documentation. `FLAVORS` is the table that `ramet backends` prints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ramet.frontend.backends.base import Capabilities
from ramet.frontend.backends.forms import (
    FREE,
    EnforcedForm,
    Schema,
    bare_kind,
    read_choice,
    schema_of,
    schema_of_choices,
)
from ramet.frontend.backends.schemas import OPENAI
from ramet.frontend.errors import Unsupported
from ramet.frontend.ir import Held
from ramet.frontend.prompt import MediaPiece

COMMON = {
    "max_new_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "logit_bias": "logit_bias",
    "sampling_seed": "seed",
    "n": "n",
}
LOCAL = {
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "min_new_tokens": "min_tokens",
    "stop_token_ids": "stop_token_ids",
    "ignore_eos": "ignore_eos",
    "skip_special_tokens": "skip_special_tokens",
}
REASONING = {"max_new_tokens": "max_completion_tokens", "sampling_seed": "seed", "n": "n"}
LOGPROBS = frozenset({"return_logprob", "top_logprobs_num", "return_text_in_logprobs"})
CHAT_ROLES = frozenset({"system", "user", "assistant"})


class Flavor:
    """Servers that speak OpenAI's API, and of which no more is known."""

    name = "compatible"
    chat_names: Mapping[str, str] = COMMON
    text_names: Mapping[str, str] = COMMON
    held = frozenset({"json_schema", "regex"})
    text_held = frozenset[str]()
    options = LOGPROBS
    most_stops: int | None = 4
    samples_itself = True
    continues = False
    joins_turns = False  # goes on with a last message of the assistant, whether it was closed or not
    thoughts = False
    enforces_choices = False  # a choice takes no tokens but its own, unless the model thinks first
    text_logprobs = True  # its completions API has log-probabilities
    least_text_logprobs = 0  # of `logprobs` of the completions API, with which any are given
    media = frozenset({"image", "audio"})  # of its chats
    num_frames = False  # of films are chosen by the client
    streams_begun_stops = False  # gives the beginning of a stop text, and cuts what is left of it

    def capabilities(self, chat: bool, text: bool) -> Capabilities:
        """`chat`, `text`: which of the two APIs a model is asked by."""
        names = {**(self.chat_names if chat else {}), **(self.text_names if text else {})}
        held = self.held if chat else self.text_held
        return Capabilities(
            completion=text,
            chat=chat,
            continues=self.continues or not chat,
            any_turn=False,
            roles=CHAT_ROLES,
            held=held,
            dtype=bool(held),
            select="drawn" if held else "",
            sampling=frozenset({*names, "stop", *(() if self.samples_itself else ("n",))}),
            options=self.options if chat or self.text_logprobs else self.options - LOGPROBS,
            most_stops=self.most_stops,
            thoughts=self.thoughts and chat,
            media=self.media if chat else frozenset(),
            num_frames=self.num_frames,
        )

    def going_on(self) -> dict[str, Any]:
        """Fields with which the last message, the assistant's, is gone on with."""
        return {}

    def of_films(self, films: Sequence[MediaPiece]) -> dict[str, Any]:
        """Fields that say how films are looked at. Raises Unsupported."""
        return {}

    def sent(self, sampling: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of parameters that it has, those that it takes with these values."""
        return sampling

    def form(self, held: Held | None, kind: type | None, in_turns: bool) -> EnforcedForm:
        """Raises ValueError for what this server does not enforce."""
        if held is None:
            return FREE
        self._check_is_held(in_turns)
        return self._form(held, kind)

    def choices(self, choices: Sequence[str], in_turns: bool) -> EnforcedForm:
        """Raises ValueError where this server does not enforce it."""
        self._check_is_held(in_turns)
        return self._choices(choices)

    def _check_is_held(self, in_turns: bool) -> None:
        if not in_turns and not self.text_held:
            raise ValueError("outputs of the completions API are free")

    def _form(self, held: Held, kind: type | None) -> EnforcedForm:
        return self._json(schema_of(held, kind, OPENAI))

    def _choices(self, choices: Sequence[str]) -> EnforcedForm:
        return self._json(schema_of_choices(choices))

    def _json(self, schema: Schema) -> EnforcedForm:
        named = {"name": "answer", "strict": True, "schema": schema.schema}
        return EnforcedForm({"response_format": {"type": "json_schema", "json_schema": named}}, schema.read)


class OpenAIFlavor(Flavor):
    """The service itself, whose chats take max_completion_tokens; max_tokens is its deprecated name there."""

    name = "openai"
    chat_names: Mapping[str, str] = {**COMMON, "max_new_tokens": "max_completion_tokens"}
    enforces_choices = True


class ReasoningFlavor(OpenAIFlavor):
    """Its models that think: neither temperature nor penalties, no stop texts, no log-probabilities."""

    name = "openai, models that think"
    chat_names = REASONING
    media = frozenset({"image"})
    enforces_choices = False
    options = frozenset[str]()

    def capabilities(self, chat: bool, text: bool) -> Capabilities:
        return replace(super().capabilities(chat, text), sampling=frozenset(REASONING), most_stops=0)


class Vllm(Flavor):
    """structured_outputs is there since 0.11; servers before it are asked by response_format only, as "compatible"."""

    name = "vllm"
    enforces_choices = True
    chat_names: Mapping[str, str] = {**COMMON, **LOCAL}
    text_names = chat_names
    held = frozenset({"json_schema", "regex", "ebnf"})
    text_held = held
    options = LOGPROBS | {"priority", "cache_salt"}
    most_stops = None
    continues = True
    thoughts = True
    media = frozenset({"image", "video", "audio"})
    num_frames = True

    def going_on(self) -> dict[str, Any]:
        return {"continue_final_message": True, "add_generation_prompt": False}

    def of_films(self, films: Sequence[MediaPiece]) -> dict[str, Any]:
        """It has one number for all films of a call."""
        found = {film.options.get("num_frames") for film in films}
        if len(found) > 1:
            raise Unsupported(self.name, "video: num_frames", "looks at as many frames of each film of a prompt")
        num = next(iter(found), None)
        return {} if num is None else {"media_io_kwargs": {"video": {"num_frames": num}}}

    def _form(self, held: Held, kind: type | None) -> EnforcedForm:
        name = {"json_schema": "json", "ebnf": "grammar"}.get(held.kind, held.kind)
        return EnforcedForm({"structured_outputs": {name: held.value}})

    def _choices(self, choices: Sequence[str]) -> EnforcedForm:
        return EnforcedForm({"structured_outputs": {"choice": list(choices)}}, read_choice(choices))


class SglangFlavor(Flavor):
    """Its OpenAI API; `Endpoint` speaks its native one, which scores choices."""

    name = "sglang"
    enforces_choices = True
    streams_begun_stops = True
    chat_names: Mapping[str, str] = {**COMMON, **LOCAL, "stop_regex": "stop_regex"}
    text_names = chat_names
    held = frozenset({"json_schema", "regex", "ebnf"})
    text_held = held
    most_stops = None
    continues = True
    thoughts = True
    media = frozenset({"image", "video", "audio"})

    def going_on(self) -> dict[str, Any]:
        return {"continue_final_message": True}

    def _form(self, held: Held, kind: type | None) -> EnforcedForm:
        if held.kind != "json_schema":
            return EnforcedForm({held.kind: held.value})
        return EnforcedForm({"response_format": _named(held.value)})

    def _choices(self, choices: Sequence[str]) -> EnforcedForm:
        return EnforcedForm({"regex": "|".join(f"({_escaped(choice)})" for choice in choices)}, read_choice(choices))


class Tgi(Flavor):
    """A chat takes a schema or a regular expression; the completions API keeps to nothing and tells no probabilities.

    n is ignored. presence_penalty becomes another penalty, 2.0 even where it is 0, so it is not honoured.
    """

    name = "tgi"
    enforces_choices = True
    chat_names: Mapping[str, str] = {
        name: COMMON[name] for name in COMMON if name not in ("n", "logit_bias", "presence_penalty")
    }
    text_names = chat_names
    text_logprobs = False
    most_stops = 4
    samples_itself = False
    media = frozenset({"image"})

    def sent(self, sampling: Mapping[str, Any]) -> Mapping[str, Any]:
        """A top_p of 1 asks for nothing, and is refused."""
        return {name: value for name, value in sampling.items() if name != "top_p" or value < 1}

    def _form(self, held: Held, kind: type | None) -> EnforcedForm:
        if held.kind == "regex":
            return EnforcedForm({"response_format": {"type": "regex", "value": held.value}})
        return self._json(schema_of(held, kind, None))

    def _choices(self, choices: Sequence[str]) -> EnforcedForm:
        pattern = "|".join(f"({_escaped(choice)})" for choice in choices)
        return EnforcedForm({"response_format": {"type": "regex", "value": pattern}}, read_choice(choices))

    def _json(self, schema: Schema) -> EnforcedForm:
        return EnforcedForm({"response_format": {"type": "json_object", "value": schema.schema}}, schema.read)


class LlamaCpp(Flavor):
    """Schemas and grammars (GBNF) of any root. A last message of the assistant is gone on with, by its default."""

    name = "llama.cpp"
    enforces_choices = True
    chat_names: Mapping[str, str] = {
        **{name: COMMON[name] for name in COMMON if name != "n"},
        "top_k": "top_k",
        "min_p": "min_p",
        "repetition_penalty": "repeat_penalty",
        "ignore_eos": "ignore_eos",
    }
    text_names = chat_names
    held = frozenset({"json_schema", "regex", "ebnf"})
    text_held = held
    most_stops = None
    samples_itself = False
    continues = True
    joins_turns = True
    least_text_logprobs = 1
    thoughts = True

    def _form(self, held: Held, kind: type | None) -> EnforcedForm:
        if kind is not None:
            return self._json(bare_kind(kind))
        if held.kind == "ebnf":
            return EnforcedForm({"grammar": held.value})
        if held.kind == "json_schema":
            return EnforcedForm({"json_schema": held.value})
        return self._json(schema_of(held, None, None))

    def _choices(self, choices: Sequence[str]) -> EnforcedForm:
        grammar = "root ::= " + " | ".join(_quoted(choice) for choice in choices)
        return EnforcedForm({"grammar": grammar}, read_choice(choices))

    def _json(self, schema: Schema) -> EnforcedForm:
        return EnforcedForm({"json_schema": schema.schema}, schema.read)


FLAVORS: Mapping[str, type[Flavor]] = {
    each.name: each for each in (OpenAIFlavor, Flavor, Vllm, SglangFlavor, Tgi, LlamaCpp)
}
OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}  # owned_by of a server's models -> flavor


def _named(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def _escaped(text: str) -> str:
    """As a regular expression: `re.escape` writes some characters that only Python's own dialect knows."""
    return "".join(f"\\{char}" if char in r"\.^$*+?()[]{}|" else char for char in text)


def _quoted(text: str) -> str:
    """As a text of a grammar in GBNF."""
    named = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
    return '"' + "".join(named.get(char, char) for char in text) + '"'
