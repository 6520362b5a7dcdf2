"""Fields of SGLang's, vLLM's, OpenAI's and Anthropic's requests that this server knows by name alone.

A field that would change what a client receives is refused until it is built, unless its value asks for nothing; one
that changes nothing a client receives is accepted. tests/rules/test_known_fields.py has the list of all their fields.
A constraint under a name that another endpoint has for it is refused with the name that it has here. Here are the
types of fields that several bodies declare, and the classes that bodies of one kind derive from.
"""

from typing import Annotated, Any, TypeAlias, TypeVar

from ramet.runtime.intake.body import Checked
from ramet.runtime.intake.fields import accepted, elsewhere, format_elsewhere, unbuilt

T = TypeVar("T")
Object: TypeAlias = dict[str, Any]
Ints: TypeAlias = int | list[int | None]
Texts: TypeAlias = str | list[str | None]

Unread = Annotated[str | None, accepted("nothing is done with it")]
CacheKey = Annotated[str | None, accepted("every prefix is cached")]
CacheOptions = Annotated[Object | None, accepted("every prefix is cached")]
AddSpecialTokens = Annotated[bool | None, unbuilt("a prompt without the tokenizer's special tokens", neutral=(True,))]

# of every endpoint that draws tokens
PREFILL = "prefill on another server"
PrefillHost = Annotated[Texts | None, unbuilt(PREFILL, neutral=("",))]
PrefillNumber = Annotated[Ints | None, unbuilt(PREFILL)]
PrefillRank = Annotated[int | None, unbuilt(PREFILL, neutral=(0,))]
OtherCache = Annotated[Object | None, unbuilt("a cache on another server", neutral=({},))]
OtherRank = Annotated[int | None, unbuilt("another rank than the only one", neutral=(0,))]
ReturnRoutes = Annotated[bool | None, unbuilt("which experts each token went through", neutral=(False,))]
RoutesFrom = Annotated[int | None, unbuilt("from which token on", neutral=(0,))]
MaxThought = Annotated[int | None, unbuilt("how long a thought may be")]
ThoughtBudget = Annotated[int | None, unbuilt("how long a thought may be", neutral=(-1,))]
PluginArguments = Annotated[Object | None, unbuilt("arguments of vLLM's plugins", neutral=({},))]
GroupName = Annotated[str | None, accepted("it groups requests and changes no reply")]
MetricLabels = Annotated[Object | None, accepted("metrics have no labels of clients")]
Corpus = Annotated[Texts | None, accepted("nothing is speculated")]

# of media
OF_MEDIA = "refused beside media, whose own options count"
MediaOptions = Annotated[Object | None, accepted(OF_MEDIA)]
NumPatches = Annotated[int | None, accepted(OF_MEDIA)]
WithAudio = Annotated[bool | None, accepted(OF_MEDIA)]

# of OpenAI's chats and responses
Moderation = Annotated[Object | None, unbuilt("a judgement of the content", neutral=({},))]
Tier = Annotated[str | None, accepted("there is one tier")]

OwnProcesses = Annotated[str | None, accepted("SGLang's own processes use it")]


class CommandBody(Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a command."""

    rid: OwnProcesses = None
    http_worker_ipc: OwnProcesses = None


OVERRIDES = "embeddings in the place of some tokens"
OverrideToken = Annotated[int | None, unbuilt(OVERRIDES)]
Overrides = Annotated[list[Any] | None, unbuilt(OVERRIDES)]


class WholeTextNames(Checked, frozen=True, kw_only=True):
    """Fields of whole texts, of which nothing is drawn."""

    priority: Annotated[int | None, unbuilt("an order of such requests", neutral=(0,))] = None
    lora_path: Annotated[Texts | None, unbuilt("an adapter", neutral=("",))] = None
    add_special_tokens: AddSpecialTokens = None
    cache_salt: Annotated[str | None, unbuilt("a cache of one's own", neutral=("",))] = None
    mm_processor_kwargs: Annotated[Object | None, accepted("there are no media")] = None


class EmbeddingNames(WholeTextNames, frozen=True, kw_only=True):
    """Fields of texts whose embeddings or labels are asked for."""

    embed_override_token_id: OverrideToken = None
    embed_overrides: Overrides = None
    truncate_prompt_tokens: Annotated[int | None, unbuilt("a prompt that is cut")] = None
    truncation_side: Annotated[str | None, unbuilt("the end at which a prompt is cut")] = None
    messages: Annotated[list[Any] | None, unbuilt("a chat in the place of texts")] = None
    embed_dtype: Annotated[str | None, unbuilt("numbers of another type", neutral=("float32",))] = None
    endianness: Annotated[str | None, unbuilt("numbers of another order of bytes", neutral=("native", "little"))] = None


CutText = Annotated[int | None, unbuilt("a text that is cut")]


class PairNames(WholeTextNames, frozen=True, kw_only=True):
    """Fields of pairs of texts."""

    truncate_prompt_tokens: CutText = None
    max_tokens_per_doc: CutText = None
    max_chunks_per_doc: CutText = None
    truncation_side: Annotated[str | None, unbuilt("the end at which a text is cut")] = None


# -- constraints -------------------------------------------------------------------------------------------------------

CHOICE = "regex, with a bar between the texts"
WhiteSpace = Annotated[str | None, unbuilt("white space of one output's JSON", hint="--json-whitespace sets it")]
HeldFormat: TypeAlias = T | str | float | bool | list[Any] | None  # T: a class whose `format` is refused

# of /generate
SchemaParam = Annotated[Any, elsewhere("sampling_params.json_schema")]
PatternParam = Annotated[Any, elsewhere("sampling_params.regex")]
GrammarParam = Annotated[Any, elsewhere("sampling_params.ebnf")]
TagParam = Annotated[Any, elsewhere("sampling_params.structural_tag")]
ChoiceParam = Annotated[Any, elsewhere(f"sampling_params.{CHOICE}")]
ConstraintParam = Annotated[Any, elsewhere("sampling_params.json_schema, regex, ebnf or structural_tag")]
BackendParam = Annotated[Any, elsewhere("sampling_params.grammar_backend")]


class GenerateOtherFormat(Checked, frozen=True):
    format: SchemaParam = None


HeldParam = Annotated[HeldFormat[GenerateOtherFormat], format_elsewhere("sampling_params.json_schema")]
