"""The bodies of OpenAI's endpoints for texts and chats. Only shapes: no endpoint, no engine.

A field of type `Any` is a sampling parameter, which ipc/params.py checks.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ramet.ipc.params import MAX_SAMPLES, about
from ramet.ipc.spec import ExpertRoutes, LogprobSpec, Truncation
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import other_servers
from ramet.runtime.intake.body import Checked
from ramet.runtime.intake.fields import OrEach, PromptId, Prompts, accepted, elsewhere, format_elsewhere, named, unbuilt
from ramet.runtime.intake.limits import INT32, MAX_CHAT_TOP, MAX_TOP
from ramet.runtime.intake.messages import (
    BeginsReply,
    Documents,
    Effort,
    GoesOn,
    Messages,
    ParallelCalls,
    TemplateArguments,
    TemplateFields,
    Tool,
    ToolChoice,
    Verbosity,
)
from ramet.runtime.intake.specs import HIDDEN, LORA, RETURN_ROUTES, ROUTES_FROM, Hidden, Returned, RouteStart, sampled
from ramet.runtime.intake.truncation import read_truncation
from ramet.runtime.server.openai.formats import GuidedFields


class StreamOptions(Struct, frozen=True, kw_only=True):
    include_usage: Annotated[bool | None, about("a last chunk without choices has the usage")] = None
    continuous_usage_stats: Annotated[bool | None, about("every chunk has its choice's usage so far")] = None
    include_obfuscation: Annotated[bool | None, about("accepted; chunks are never padded")] = None


TOOLS = "functions that the model may call; tools of other types are left out, since this server runs none"
Top = Annotated[int, Meta(ge=0, le=MAX_CHAT_TOP)]  # how many of the best tokens
# tokens of a prompt that are kept; read_truncation refuses 0, and what the context has no room for
Kept = Annotated[
    int,
    named("-1 or an integer >= 1, below 2^31", ge=-1, le=INT32 - 1, extra_json_schema={"not": {"const": 0}}),
]


RenderOption = Annotated[bool | None, accepted("it is about vLLM's endpoints that only render")]


class CompletingOtherFormat(Checked, frozen=True):
    format: Annotated[Any, elsewhere("response_format")] = None


OtherForm = Annotated[other_servers.HeldFormat[CompletingOtherFormat], format_elsewhere("response_format")]


class SamplingBody(GuidedFields, frozen=True, kw_only=True):
    """What chat and text completions share beside what every endpoint knows that draws tokens."""

    stream_options: Annotated[
        StreamOptions | None,
        about("`include_usage`: a last chunk has the usage; `continuous_usage_stats`: every chunk has it so far"),
    ] = None
    stream_interval: Annotated[Any, sampled("stream_interval")] = None
    n: Annotated[Any, sampled("n")] = None
    stop: Annotated[Any, sampled("stop")] = None
    user: Annotated[str | None, about("accepted; nothing is done with it")] = None
    metadata: Annotated[dict[str, Any] | None, about("accepted; nothing is done with it")] = None
    return_hidden_states: Annotated[Hidden | None, HIDDEN] = None
    return_routed_experts: Annotated[bool | None, RETURN_ROUTES] = None
    routed_experts_start_len: Annotated[RouteStart | None, ROUTES_FROM] = None
    routed_experts_prompt_start: Annotated[
        RouteStart | None,
        about(
            "choices have `routed_experts`, of the tokens from this one on: base64 of a .npy file of the layers that "
            "have experts; needs `--enable-return-routed-experts`"
        ),
    ] = None
    return_token_ids: Annotated[bool | None, about("choices have `token_ids`, and `prompt_token_ids` is there")] = None
    return_prompt_token_ids: Annotated[bool | None, about("choices have `prompt_token_ids`")] = None
    return_tokens_as_token_ids: Annotated[
        bool | None, about("log-probabilities name their tokens `token_id:5` in the place of their texts")
    ] = None
    prompt_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_TOP)] | None,
        about("the prompt's log-probabilities, with so many best tokens at each place; not in a stream"),
    ] = None
    truncate_prompt_tokens: Annotated[
        Kept | None,
        about("so many tokens of the prompt are kept; -1: as many as the context has beside the output"),
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"] | None, about("of those that are left out; `left` if it is absent")
    ] = None
    # Clients of other servers send these names.
    use_beam_search: Annotated[bool | None, unbuilt("beam search", neutral=(False,))] = None
    watermarking: Annotated[bool | None, unbuilt("a watermark", neutral=(False,))] = None
    logprob_token_ids: Annotated[list[int] | None, unbuilt("log-probabilities of chosen tokens")] = None
    allowed_token_ids: Annotated[list[int] | None, unbuilt("a choice of tokens that may be drawn")] = None
    bad_words: Annotated[list[str] | None, unbuilt("words that may not be drawn")] = None
    return_cached_tokens_details: Annotated[bool | None, unbuilt("where cached tokens were", neutral=(False,))] = None
    repetition_detection: Annotated[
        dict[str, Any] | None, unbuilt("an end where the output repeats itself", neutral=({},))
    ] = None
    length_penalty: Annotated[float | None, accepted("it is about beam search")] = None
    return_token_offsets: RenderOption = None
    return_mm_kwargs: RenderOption = None
    images_config: other_servers.MediaOptions = None
    output_format: Annotated[Any, elsewhere("response_format")] = None
    text: OtherForm = None
    output_config: OtherForm = None

    @property
    def with_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def with_usage_each(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)

    def details(
        self, context_length: int, new_tokens: int, num_top: int | None, start: int | None = None
    ) -> tuple[Returned, Truncation | None]:
        """What the reply has beside its text, and how much of the prompt is kept. Raises ClientError.

        `num_top`: best tokens at the output's places, None: no log-probabilities of the output. `start`: the first
        prompt token with log-probabilities, beside those of prompt_logprobs.
        """
        logprobs = self._logprobs(num_top, start)
        truncate = read_truncation(self.truncate_prompt_tokens, self.truncation_side, context_length, new_tokens)
        with_ids = bool(self.return_token_ids or self.return_prompt_token_ids)
        return Returned(logprobs, self.return_hidden_states, with_ids, self._routes()), truncate

    def _routes(self) -> ExpertRoutes | None:
        """SGLang's names ask for one form, vLLM's for another."""
        if (start := self.routed_experts_prompt_start) is None:
            return ExpertRoutes(self.routed_experts_start_len or 0) if self.return_routed_experts else None
        if self.routed_experts_start_len is not None:
            raise ClientError(
                "routed_experts_prompt_start", f"is {start}, beside routed_experts_start_len", "send one of them"
            )
        return ExpertRoutes(start, compact=True)

    def _logprobs(self, num_top: int | None, start: int | None) -> LogprobSpec | None:
        if self.prompt_logprobs is None:
            return None if num_top is None else LogprobSpec(start, num_top, texts=True)
        if self.stream:
            fact = f"is {self.prompt_logprobs}, but a stream has no log-probabilities of the prompt"
            raise ClientError("prompt_logprobs", fact, "omit stream")
        return LogprobSpec(0, max(self.prompt_logprobs, num_top or 0), texts=True)


class CompletionBody(SamplingBody, frozen=True, kw_only=True):
    prompt: Annotated[Prompts, about("a text, token ids, or a list of either")]
    lora_path: Annotated[OrEach[str], LORA] = None  # type: ignore[assignment]  # one for each prompt
    max_tokens: Annotated[Any, sampled("max_new_tokens", "16 if it is absent")] = None
    echo: Annotated[bool | None, about("the prompt goes before the output")] = None
    best_of: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_SAMPLES)] | None,
        about("so many outputs are made, and the n whose tokens are likeliest on average are returned"),
    ] = None
    logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_TOP)] | bool | None,
        about("so many best tokens at each place; with `echo` those of the prompt as well"),
    ] = None
    suffix: Annotated[str | None, unbuilt("what comes after the output", neutral=("",))] = None
    prompt_embeds: Annotated[
        other_servers.Texts | None, unbuilt("a prompt of embeddings", hint="send input_embeds to /generate")
    ] = None
    add_special_tokens: other_servers.AddSpecialTokens = None


class ChatBody(SamplingBody, frozen=True, kw_only=True):
    messages: Messages
    max_tokens: Annotated[Any, sampled("max_new_tokens", "to the context's end if it is absent")] = None
    max_completion_tokens: Annotated[Any, sampled("max_new_tokens", "counts where `max_tokens` is sent as well")] = None
    logprobs: Annotated[bool | None, about("log-probabilities of the output's tokens")] = None
    top_logprobs: Annotated[Top | None, about("at each place those of this many best tokens; needs `logprobs`")] = None
    tools: Annotated[list[Tool | None] | None, about(TOOLS)] = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: ParallelCalls = None
    separate_reasoning: Annotated[bool | None, about("false: reasoning stays in the content")] = None
    stream_reasoning: Annotated[bool | None, about("false: reasoning comes in one piece, when it ends")] = None
    include_reasoning: Annotated[bool | None, about("false: reasoning is left out; `usage` counts it")] = None
    modalities: Annotated[list[str] | None, unbuilt('anything but ["text"]', neutral=("text",))] = None
    audio: Annotated[dict[str, Any] | None, unbuilt("speech")] = None
    web_search_options: Annotated[dict[str, Any] | None, unbuilt("searching the web")] = None
    functions: Annotated[list[Any] | None, unbuilt("the old form of `tools`")] = None
    function_call: Annotated[
        str | dict[str, Any] | None, unbuilt("the old form of `tool_choice`", neutral=("none", "auto"))
    ] = None
    chat_template: Annotated[
        str | None, unbuilt("a template of the client's; the server's is `--chat-template`", neutral=("",))
    ] = None
    # TemplateFields has these fields as well; a chat is converted into them.
    reasoning_effort: Effort = None
    verbosity: Verbosity = None
    chat_template_kwargs: TemplateArguments = None
    documents: Documents = None
    add_generation_prompt: BeginsReply = None
    continue_final_message: GoesOn = None
    # Clients of other servers send these names.
    add_special_tokens: Annotated[
        bool | None, unbuilt("special tokens beside those of the template", neutral=(False,))
    ] = None
    echo: Annotated[bool | None, unbuilt("the last message before the reply", neutral=(False,))] = None
    return_prompt_text: Annotated[bool | None, unbuilt("the rendered prompt", neutral=(False,))] = None
    return_meta_info: Annotated[bool | None, unbuilt("`meta_info` of /generate", neutral=(False,))] = None
    task: Annotated[str | None, unbuilt("DeepSeek's single tasks", neutral=("",))] = None
    input_ids: Annotated[list[int] | None, unbuilt("a prompt beside the messages", hint="send it to /generate")] = None
    reasoning: Annotated[
        dict[str, Any] | None, unbuilt("options of reasoning", neutral=({},), hint="send reasoning_effort")
    ] = None
    max_dynamic_patch: other_servers.NumPatches = None
    min_dynamic_patch: other_servers.NumPatches = None
    use_audio_in_video: other_servers.WithAudio = None
    store: Annotated[bool | None, accepted("chats are not kept")] = None
    prediction: Annotated[dict[str, Any] | None, accepted("it only makes OpenAI's servers faster")] = None
    moderation: other_servers.Moderation = None
    prompt_cache_options: other_servers.CacheOptions = None
    service_tier: other_servers.Tier = None
    safety_identifier: other_servers.Unread = None
    prompt_cache_key: other_servers.CacheKey = None
    prompt_cache_retention: other_servers.CacheKey = None


class TokenizeBody(TemplateFields, frozen=True, kw_only=True):
    prompt: Annotated[str | Annotated[list[str], Meta(min_length=1)] | None, about("a text, or a list of them")] = None
    messages: Annotated[Messages | None, about("a chat, in the place of a prompt")] = None
    tools: Annotated[list[Tool | None] | None, about("what the chat offers")] = None
    model: str | None = None
    add_special_tokens: Annotated[
        bool, about("as the tokenizer does before a prompt; a chat's template writes its own")
    ] = True


class DetokenizeBody(Struct, frozen=True, kw_only=True):
    tokens: Annotated[list[PromptId | list[PromptId]], about("token ids, or a list of such lists")]
    model: str | None = None
    skip_special_tokens: bool = True
