"""What OpenAI's and vLLM's clients write of the form of an output: response_format, structured_outputs, guided_*.

A schema is kept to exactly, strict or not: what of it cannot be enforced is refused.
"""

from typing import Annotated, Any, get_args

from msgspec import Struct

from ramet.ipc.params import about, shown
from ramet.ipc.spec import BackendName, Constraint, Whitespace
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import Checked
from ramet.runtime.intake.constraints import given, of_choices, of_grammar, of_pattern, of_schema, of_tag
from ramet.runtime.intake.fields import elsewhere, unbuilt
from ramet.runtime.intake.sampling_fields import SamplingFields

ANY_OBJECT = {"type": "object"}
# patterns of white space that clients of vLLM send -> ours, which is as they ask or a part of it
WHITESPACE: dict[str, Whitespace] = {
    "": "compact", "[ ]?": "single-space", " ?": "single-space", r"[\n\t ]*": "flexible", r"[ \t\n\r]*": "flexible",
    r"[\n ]*": "flexible", r"\s*": "flexible",
}  # fmt: skip
BACKENDS: dict[str, BackendName | None] = {"auto": None, "guidance": "llguidance"} | {
    name: name for name in get_args(BackendName)
}


NoSchema = Annotated[Any, elsewhere("the type json_schema")]


class Format(Checked, frozen=True, tag_field="type"):
    """Of an output."""


class WithoutSchema(Format, frozen=True, kw_only=True):
    """A form that has no schema, and refuses one."""

    schema: NoSchema = None
    json_schema: NoSchema = None


class TextFormat(WithoutSchema, frozen=True, tag="text"):
    pass


class JsonFormat(WithoutSchema, frozen=True, tag="json_object"):
    pass


Strict = Annotated[bool | None, about("accepted; a schema is kept to exactly in any case")]


class NamedSchema(Struct, frozen=True, kw_only=True):
    schema: dict[str, Any]
    name: str | None = None
    description: str | None = None
    strict: Strict = None


class SchemaFormat(Format, frozen=True, kw_only=True, tag="json_schema"):
    """The schema stands in `json_schema`, or beside the type."""

    json_schema: NamedSchema | None = None
    schema: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: Strict = None


class TagFormat(Format, frozen=True, kw_only=True, tag="structural_tag"):
    """With `format`, or with `structures` and `triggers`."""

    format: dict[str, Any] | None = None
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None


ResponseFormat = Annotated[
    TextFormat | JsonFormat | SchemaFormat | TagFormat | None,
    about("the form of the output's text: any text, a JSON object, what a JSON schema allows, or a structural tag"),
]


def of_format(place: str, asked: ResponseFormat) -> list[Constraint]:
    """None of text. Raises ClientError."""
    match asked:
        case JsonFormat():
            return [of_schema(place, ANY_OBJECT)]
        case SchemaFormat():
            schema = asked.json_schema.schema if asked.json_schema is not None else asked.schema
            if schema is None:
                raise ClientError(f"{place}.json_schema", "is missing, must be an object with the field `schema`")
            return [of_schema(place, schema)]
        case TagFormat(format=None):
            fields = {"structures": asked.structures, "triggers": asked.triggers}
            if None in fields.values():
                raise ClientError(place, "has no `format`, or `structures` and `triggers`, which stand beside its type")
            return [of_tag(place, fields)]
        case TagFormat():
            return [of_tag(place, {"type": "structural_tag", "format": asked.format})]
    return []


AsJson = Annotated[Any, elsewhere("structured_outputs.json")]
AsRegex = Annotated[Any, elsewhere("structured_outputs.regex")]
AsChoice = Annotated[Any, elsewhere("structured_outputs.choice")]
AsGrammar = Annotated[Any, elsewhere("structured_outputs.grammar")]


class StructuredOutputs(Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM's way to ask for one constraint."""

    json: Annotated[str | dict[str, Any] | None, about("as `json_schema`")] = None
    regex: str | None = None
    choice: Annotated[list[str] | None, about("the output is one of these texts")] = None
    grammar: Annotated[str | None, about("as `ebnf`")] = None
    json_object: Annotated[bool | None, about("true: the output is a JSON object")] = None
    structural_tag: str | dict[str, Any] | None = None
    whitespace_pattern: Annotated[str | None, about("as `guided_whitespace_pattern`")] = None
    disable_any_whitespace: Annotated[bool | None, about("true: JSON has single spaces, as Python writes it")] = None
    disable_fallback: Annotated[bool | None, about("accepted; there is no fallback")] = None
    disable_additional_properties: Annotated[
        bool | None,
        unbuilt(
            "objects without other properties", neutral=(False,), hint="write additionalProperties into the schema"
        ),
    ] = None
    # These names stand elsewhere for a constraint.
    json_schema: AsJson = None
    schema: AsJson = None
    guided_json: AsJson = None
    pattern: AsRegex = None
    guided_regex: AsRegex = None
    choices: AsChoice = None
    guided_choice: AsChoice = None
    ebnf: AsGrammar = None
    guided_grammar: AsGrammar = None

    def constraints(self, place: str) -> list[Constraint]:
        if all(getattr(self, name) is None for name in self.__struct_fields__):
            raise ClientError(place, "asks for nothing, must have one of json, regex, choice, grammar", "omit it")
        return [
            *given(of_schema, f"{place}.json", self.json),
            *given(of_schema, f"{place}.json_object", ANY_OBJECT if self.json_object else None),
            *given(of_pattern, f"{place}.regex", self.regex),
            *given(of_choices, f"{place}.choice", self.choice),
            *given(of_grammar, f"{place}.grammar", self.grammar),
            *given(of_tag, f"{place}.structural_tag", self.structural_tag),
        ]

    def whitespace(self, place: str) -> Whitespace | None:
        asked = read_whitespace(f"{place}.whitespace_pattern", self.whitespace_pattern)
        return asked or ("single-space" if self.disable_any_whitespace else None)


class StructuredFields(SamplingFields, frozen=True, kw_only=True):
    """Of bodies of chats, texts and responses."""

    structured_outputs: Annotated[
        StructuredOutputs | None,
        about("vLLM's name for a constraint: `json`, `regex`, `choice`, `grammar`, `json_object` or `structural_tag`"),
    ] = None

    def constraints(self, place: str = "") -> list[Constraint]:
        structured = self.structured_outputs
        return super().constraints(place) + (structured.constraints("structured_outputs") if structured else [])

    def whitespace(self) -> Whitespace | None:
        return self.structured_outputs.whitespace("structured_outputs") if self.structured_outputs else None


class GuidedFields(StructuredFields, frozen=True, kw_only=True):
    """Of bodies of chats and texts."""

    response_format: ResponseFormat = None
    guided_json: Annotated[str | dict[str, Any] | None, about("vLLM's older name of `json_schema`")] = None
    guided_regex: Annotated[str | None, about("vLLM's older name of `regex`")] = None
    guided_choice: Annotated[list[str] | None, about("the output is one of these texts")] = None
    guided_grammar: Annotated[str | None, about("vLLM's older name of `ebnf`")] = None
    guided_decoding_backend: Annotated[
        str | None, about(f"vLLM's older name of `grammar_backend`: {', '.join(f'`{name}`' for name in BACKENDS)}")
    ] = None
    guided_whitespace_pattern: Annotated[
        str | None,
        about(
            "white space between the tokens of JSON: "
            + ", ".join(f"`{pattern}`" for pattern in WHITESPACE if pattern)
            + ", or an empty text for none; `--json-whitespace` if absent"
        ),
    ] = None

    def constraints(self, place: str = "") -> list[Constraint]:
        return [
            *of_format("response_format", self.response_format),
            *super().constraints(place),
            *given(of_schema, "guided_json", self.guided_json),
            *given(of_pattern, "guided_regex", self.guided_regex),
            *given(of_choices, "guided_choice", self.guided_choice),
            *given(of_grammar, "guided_grammar", self.guided_grammar),
        ]

    def whitespace(self) -> Whitespace | None:
        return read_whitespace("guided_whitespace_pattern", self.guided_whitespace_pattern) or super().whitespace()

    def backend(self) -> BackendName | None:
        place, name = "guided_decoding_backend", self.guided_decoding_backend
        if not name:
            return super().backend()
        if name not in BACKENDS:
            raise ClientError(place, f"is {shown(name)}, must be {' or '.join(map(repr, BACKENDS))}", "omit it")
        meant = BACKENDS[name]
        if None not in (meant, self.grammar_backend) and meant != self.grammar_backend:
            raise ClientError(
                place, f"is {name!r}, but grammar_backend is {self.grammar_backend!r}", "send one of them"
            )
        return meant or self.grammar_backend


def read_whitespace(place: str, pattern: str | None) -> Whitespace | None:
    if pattern is None:
        return None
    if pattern not in WHITESPACE:
        known = " or ".join(f"'{each}'" for each in WHITESPACE)  # not their repr, which doubles each backslash
        raise ClientError(place, f"is {shown(pattern)}, which this server does not write, must be {known}", "omit it")
    return WHITESPACE[pattern]
