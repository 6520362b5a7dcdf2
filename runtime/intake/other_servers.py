"""Fields of SGLang's, vLLM's, OpenAI's and Anthropic's requests that this server knows by name alone.

A field that would change what a client receives is refused until it is built, unless its value asks for nothing; one
that changes nothing a client receives is accepted. tests/rules/test_known_fields.py has the list of all their fields.
A constraint under a name that another endpoint has for it is refused with the name that it has here.
"""

from typing import Annotated, Any

from msgspec import Meta, defstruct

from ramet.ipc.params import about
from ramet.runtime.intake.body import Checked
from ramet.runtime.intake.fields import Field, elsewhere, unbuilt

Object = dict[str, Any]
Ints = int | list[int | None]
Texts = str | list[str | None]


def refused(kind: Any, text: str, *names: str, neutral: tuple[Any, ...] = (), hint: str = "omit it") -> list[Field]:
    return [(name, Annotated[kind | None, unbuilt(text, neutral, hint)], None) for name in names]


def ignored(kind: Any, why: str, *names: str) -> list[Field]:
    return [(name, Annotated[kind | None, about(f"accepted; {why}")], None) for name in names]


ONE_RANK = "another rank than the only one"
NO_MEDIA = "there are no media"
OF_MEDIA = "refused beside media, whose own options count"
PATCHES = ("max_dynamic_patch", "min_dynamic_patch")

# of every command
COMMANDS: list[Field] = ignored(str, "SGLang's own processes use it", "rid", "http_worker_ipc")

# of every endpoint that draws tokens
SHARED: list[Field] = [
    *refused(Texts, "prefill on another server", "bootstrap_host", neutral=("",)),
    *refused(Ints, "prefill on another server", "bootstrap_port", "bootstrap_room"),
    *refused(int, "prefill on another server", "disagg_prefill_dp_rank", neutral=(0,)),
    *refused(Object, "a cache on another server", "kv_transfer_params", "ec_transfer_params", neutral=({},)),
    *refused(int, ONE_RANK, "routed_dp_rank", "data_parallel_rank", neutral=(0,)),
    *refused(Object, "a session", "session_params", neutral=({},)),
    *refused(bool, "which experts each token went through", "return_routed_experts", neutral=(False,)),
    *refused(int, "from which token on", "routed_experts_start_len", "routed_experts_prompt_start", neutral=(0,)),
    *refused(int, "how long a thought may be", "max_thinking_tokens"),
    *refused(int, "how long a thought may be", "thinking_token_budget", neutral=(-1,)),
    *refused(Object, "arguments of vLLM's plugins", "vllm_xargs", neutral=({},)),
    *ignored(str, "it groups requests and changes no reply", "session_id", "conversation_id", "routing_key"),
    *ignored(Object, "metrics have no labels of clients", "custom_labels"),
    *ignored(Object, OF_MEDIA, "mm_processor_kwargs", "media_io_kwargs"),
    *ignored(Texts, "nothing is speculated", "ngram_corpus_id"),
]

GENERATE: list[Field] = [
    *refused(bool, "the reply as bytes", "return_bytes", neutral=(False,)),
    *refused(bool, "the entropy of each draw", "return_entropy", neutral=(False,)),
    *refused(bool, "which tokens could be drawn", "return_sampling_mask", neutral=(False,)),
    *refused(
        bool, "log-probabilities as arrays", "return_flat_raw_top_logprobs", "return_flat_raw_top_logprobs_b64",
        neutral=(False,),
    ),
    *refused(bool, "indices of sparse attention", "return_indexer_topk", neutral=(False,)),
    *refused(bool, "a request that no metric counts", "log_metrics", neutral=(True,)),
    *refused(bool, "an answer to ask for later", "background", neutral=(False,)),
    *refused(Texts, "an adapter", "lora_id", neutral=("",)),
    *refused(Any, "embeddings in the place of some tokens", "positional_embed_overrides"),
    *refused(list[Any], "prompts of several items", "multi_item_delimiter_indices"),
    *refused(Texts, "prefill on another server", "bootstrap_pair_key"),
    *refused(Ints, "prefill on another server", "decode_tp_size"),
    *refused(str, "the address of one of the server's own processes", "http_worker_ipc"),
    *refused(Object | list[Any] | bool, "media that another server encoded", "need_wait_for_mm_inputs",
             "num_items_assigned", "encoder_urls", neutral=(False, {})),
    *ignored(Object, OF_MEDIA, "video_config", "images_config"),
    *ignored(list[Any], "media are known by what they show", "mm_hashes", "mm_content_hashes"),
    *ignored(int, OF_MEDIA, *PATCHES, "image_max_dynamic_patch", "video_max_dynamic_patch"),
    *ignored(bool, OF_MEDIA, "use_audio_in_video"),
    *ignored(bool, "the log never has a request's text", "no_logs"),
    *ignored(Object, "it changes no reply", "kv_router_hint", "external_trace_header"),
    *ignored(float, "it changes no reply", "received_time"),
]  # fmt: skip

# of chat and text completions
COMPLETING: list[Field] = [
    *refused(bool, "beam search", "use_beam_search", neutral=(False,)),
    *refused(bool, "a watermark", "watermarking", neutral=(False,)),
    *refused(list[int], "log-probabilities of chosen tokens", "logprob_token_ids"),
    *refused(list[int], "a choice of tokens that may be drawn", "allowed_token_ids"),
    *refused(list[str], "words that may not be drawn", "bad_words"),
    *refused(bool, "where cached tokens were", "return_cached_tokens_details", neutral=(False,)),
    *refused(Object, "an end where the output repeats itself", "repetition_detection", neutral=({},)),
    *ignored(float, "it is about beam search", "length_penalty"),
    *ignored(bool, "it is about vLLM's endpoints that only render", "return_token_offsets", "return_mm_kwargs"),
    *ignored(Object, OF_MEDIA, "images_config"),
]

COMPLETION: list[Field] = [
    *refused(Texts, "a prompt of embeddings", "prompt_embeds", hint="send input_embeds to /generate"),
    *refused(bool, "a prompt without the tokenizer's special tokens", "add_special_tokens", neutral=(True,)),
]

# of OpenAI's chats and responses
OF_OPENAI: list[Field] = [
    *refused(Object, "a judgement of the content", "moderation", neutral=({},)),
    *ignored(Object, "every prefix is cached", "prompt_cache_options"),
    *ignored(str, "there is one tier", "service_tier"),
    *ignored(str, "nothing is done with it", "safety_identifier"),
    *ignored(str, "every prefix is cached", "prompt_cache_key", "prompt_cache_retention"),
]

CHAT: list[Field] = [
    *refused(bool, "special tokens beside those of the template", "add_special_tokens", neutral=(False,)),
    *refused(bool, "the last message before the reply", "echo", neutral=(False,)),
    *refused(bool, "the rendered prompt", "return_prompt_text", neutral=(False,)),
    *refused(bool, "`meta_info` of /generate", "return_meta_info", neutral=(False,)),
    *refused(str, "DeepSeek's single tasks", "task", neutral=("",)),
    *refused(list[int], "a prompt beside the messages", "input_ids", hint="send it to /generate"),
    *refused(Object, "options of reasoning", "reasoning", neutral=({},), hint="send reasoning_effort"),
    *ignored(int, OF_MEDIA, *PATCHES),
    *ignored(bool, OF_MEDIA, "use_audio_in_video"),
    *ignored(bool, "chats are not kept", "store"),
    *ignored(Object, "it only makes OpenAI's servers faster", "prediction"),
    *OF_OPENAI,
]

RESPONSES: list[Field] = [
    *refused(Any, "leaving out what came before", "context_management", neutral=({}, {"edits": []})),
    *refused(bool, "messages beside the items", "enable_response_messages", neutral=(False,)),
    *refused(Any, "a response that the client kept", "previous_response", "previous_input_messages", neutral=({},)),
    *ignored(int, "it is about OpenAI's own tools", "max_tool_calls"),
    *ignored(Object, "chunks are never padded", "stream_options"),
    *OF_OPENAI,
]

# of messages and their count
COUNTED: list[Field] = [
    *ignored(Object, "every prefix is cached", "cache_control"),
    *ignored(str, "there is one speed", "speed"),
    *ignored(str, "nothing is done with it", "user_profile_id", "workspace_id"),
]

MESSAGES: list[Field] = [
    *refused(Any, "leaving out what came before", "compaction", neutral=({},)),
    *refused(Object, "what happened to the request", "diagnostics", neutral=({},)),
    *refused(str, "where it is computed", "inference_geo", neutral=("",)),
    *ignored(list[str], "nothing depends on it", "betas"),
    *ignored(Any, "nothing is paid for", "billing_policy", "fallback_credit_token"),
    *ignored(list[Any], "there is one model", "fallbacks"),
]

# of whole texts, of which nothing is drawn
WHOLE_TEXTS: list[Field] = [
    *refused(int, "an order of such requests", "priority", neutral=(0,)),
    *refused(Texts, "an adapter", "lora_path", neutral=("",)),
    *refused(bool, "a prompt without the tokenizer's special tokens", "add_special_tokens", neutral=(True,)),
    *refused(str, "a cache of one's own", "cache_salt", neutral=("",)),
    *ignored(Object, NO_MEDIA, "mm_processor_kwargs"),
]

EMBEDDINGS: list[Field] = [
    *WHOLE_TEXTS,
    *refused(int, "embeddings in the place of some tokens", "embed_override_token_id"),
    *refused(list[Any], "embeddings in the place of some tokens", "embed_overrides"),
    *refused(int, "a prompt that is cut", "truncate_prompt_tokens"),
    *refused(str, "the end at which a prompt is cut", "truncation_side"),
    *refused(list[Any], "a chat in the place of texts", "messages"),
    *refused(str, "numbers of another type", "embed_dtype", neutral=("float32",)),
    *refused(str, "numbers of another order of bytes", "endianness", neutral=("native", "little")),
]

# of two texts
PAIRS: list[Field] = [
    *WHOLE_TEXTS,
    *refused(int, "a text that is cut", "truncate_prompt_tokens", "max_tokens_per_doc", "max_chunks_per_doc"),
    *refused(str, "the end at which a text is cut", "truncation_side"),
]

SCORES: list[Field] = [
    *PAIRS,
    *refused(int, "embeddings in the place of some tokens", "embed_override_token_id"),
    *refused(list[Any], "embeddings in the place of some tokens", "query_embed_overrides", "item_embed_overrides"),
    *refused(bool, "hidden states", "return_pooled_hidden_states", neutral=(False,)),
]

# -- constraints -------------------------------------------------------------------------------------------------------

# what is asked for -> its names, each of which some endpoint has
CONSTRAINTS: dict[str, tuple[str, ...]] = {
    "schema": ("json_schema", "guided_json"),
    "pattern": ("regex", "guided_regex"),
    "grammar": ("ebnf", "guided_grammar"),
    "tag": ("structural_tag",),
    "choice": ("guided_choice",),
    "format": ("response_format", "output_format"),
    "any": ("structured_outputs",),
    "space": ("guided_whitespace_pattern",),
    "backend": ("guided_decoding_backend",),
}
NOTHING = ("", {"type": "text"})  # values that ask for no constraint
CHOICE = "regex, with a bar between the texts"
SPACE = refused(str, "white space of one output's JSON", *CONSTRAINTS["space"], hint="--json-whitespace sets it")


def constraints_elsewhere(body: str, *objects: str, **fields: str) -> list[Field]:
    """Names of constraints. Those that the body itself has it keeps. `fields`: what it has for each kind.

    `objects`: what other bodies have a `format` in.
    """
    names = {name: field for kind, field in fields.items() for name in CONSTRAINTS[kind]}
    holder: Any = defstruct(
        f"{body}OtherFormat", _elsewhere({"format": fields["format"]}), bases=(Checked,), frozen=True
    )
    words = f"*refused with a `format`*: the field for it is {fields['format']}"
    mark = Meta(description=words, extra_json_schema={"x-unbuilt": True})
    held = Annotated[holder | str | float | bool | list[Any] | None, mark]
    return [*_elsewhere(names), *((name, held, None) for name in objects)]


def _elsewhere(names: dict[str, str]) -> list[Field]:
    space = CONSTRAINTS["space"]  # of which an empty text means something
    neutral = {name: () if name in space else NOTHING for name in names}
    return [(name, Annotated[Any, elsewhere(field, neutral[name])], None) for name, field in names.items()]


OF_GENERATE = constraints_elsewhere(
    "Generate",
    "output_config",
    schema="sampling_params.json_schema",
    pattern="sampling_params.regex",
    grammar="sampling_params.ebnf",
    tag="sampling_params.structural_tag",
    choice=f"sampling_params.{CHOICE}",
    format="sampling_params.json_schema",
    any="sampling_params.json_schema, regex, ebnf or structural_tag",
    backend="sampling_params.grammar_backend",
)
OF_GENERATE += SPACE
OF_COMPLETING = constraints_elsewhere("Completing", "text", "output_config", format="response_format")
OF_RESPONSES = constraints_elsewhere(
    "Responses",
    "output_config",
    schema="text.format or json_schema",
    pattern="regex",
    grammar="ebnf",
    choice="structured_outputs.choice",
    format="text.format",
    space="structured_outputs.whitespace_pattern",
    backend="grammar_backend",
)
OF_MESSAGES = constraints_elsewhere(
    "Messages",
    "text",
    schema="output_config.format or json_schema",
    pattern="regex",
    grammar="ebnf",
    choice=CHOICE,
    format="output_config.format",
    any="json_schema, regex, ebnf or structural_tag",
    backend="grammar_backend",
)
OF_MESSAGES += SPACE
# inside formats of another type, and inside structured_outputs
OF_FORMAT = _elsewhere(dict.fromkeys(("schema", "json_schema"), "the type json_schema"))
OF_STRUCTURED = _elsewhere(
    {
        **dict.fromkeys(("json_schema", "schema", "guided_json"), "structured_outputs.json"),
        **dict.fromkeys(("pattern", "guided_regex"), "structured_outputs.regex"),
        **dict.fromkeys(("choices", "guided_choice"), "structured_outputs.choice"),
        **dict.fromkeys(("ebnf", "guided_grammar"), "structured_outputs.grammar"),
    }
)
