"""Every field of SGLang's, vLLM's, OpenAI's and Anthropic's requests is a field of the body here.

So it is honoured, refused by name, or documented as one that changes nothing; the tables in docs/ say which. The lists
are those of SGLang 0.5.23 and vLLM's main branch in November 2026; tests/clients compares OpenAI's and Anthropic's own
fields with what the installed clients send.
"""

from typing import Any

import pytest
from msgspec.structs import fields

from ramet.runtime.intake.messages import TemplateFields
from ramet.runtime.intake.sampling_fields import SamplingFields
from ramet.runtime.intake.specs import GivenParams, SpecFields
from ramet.runtime.server.anthropic.chat import CountBody, MessagesBody
from ramet.runtime.server.openai.types import ChatBody
from ramet.runtime.server.routes import ROUTES

GENERATE = """rid session_id text input_ids input_embeds image_data video_data audio_data mm_hashes mm_content_hashes
 use_audio_in_video video_config sampling_params return_logprob logprob_start_len top_logprobs_num token_ids_logprob
 return_sampling_mask return_text_in_logprobs return_flat_raw_top_logprobs return_flat_raw_top_logprobs_b64 stream
 log_metrics return_hidden_states return_routed_experts routed_experts_start_len return_indexer_topk modalities
 session_params lora_path lora_id custom_logit_processor positional_embed_overrides bootstrap_host bootstrap_port
 bootstrap_room bootstrap_pair_key decode_tp_size routed_dp_rank data_parallel_rank disagg_prefill_dp_rank
 kv_router_hint routing_key conversation_id http_worker_ipc background require_reasoning max_thinking_tokens priority
 extra_key no_logs custom_labels return_bytes return_entropy return_prompt_token_ids external_trace_header
 received_time need_wait_for_mm_inputs num_items_assigned encoder_urls max_dynamic_patch min_dynamic_patch
 image_max_dynamic_patch video_max_dynamic_patch images_config multi_item_delimiter_indices cache_salt"""
SAMPLING = """max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p frequency_penalty
 presence_penalty repetition_penalty min_new_tokens n json_schema regex ebnf structural_tag ignore_eos
 skip_special_tokens spaces_between_special_tokens no_stop_trim custom_params stream_interval logit_bias
 sampling_seed"""
SGLANG_CHAT = """messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n
 presence_penalty response_format seed stop stream stream_options temperature top_p user tools tool_choice
 parallel_tool_calls return_hidden_states return_routed_experts routed_experts_start_len return_cached_tokens_details
 return_prompt_token_ids return_token_ids return_meta_info reasoning_effort reasoning task top_k min_p min_tokens regex
 ebnf repetition_penalty stop_token_ids stop_regex no_stop_trim ignore_eos continue_final_message skip_special_tokens
 lora_path session_id session_params separate_reasoning stream_reasoning chat_template_kwargs max_dynamic_patch
 min_dynamic_patch use_audio_in_video images_config custom_logit_processor custom_params input_ids rid extra_key
 cache_salt ngram_corpus_id priority bootstrap_host bootstrap_port bootstrap_room routed_dp_rank
 disagg_prefill_dp_rank data_parallel_rank"""
SGLANG_COMPLETION = """model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty
 seed stop stream stream_options suffix temperature top_p user return_hidden_states return_routed_experts
 routed_experts_start_len return_cached_tokens_details return_token_ids top_k min_p min_tokens json_schema regex ebnf
 repetition_penalty stop_token_ids stop_regex no_stop_trim ignore_eos skip_special_tokens lora_path session_id
 session_params response_format custom_params custom_logit_processor images_config bootstrap_host bootstrap_port
 bootstrap_room routed_dp_rank disagg_prefill_dp_rank data_parallel_rank rid extra_key cache_salt ngram_corpus_id
 priority custom_labels"""
VLLM_SHARED = """model frequency_penalty logit_bias logprobs max_tokens n presence_penalty response_format seed stop
 stream stream_options temperature top_p user use_beam_search top_k min_p repetition_penalty watermarking length_penalty
 stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens
 truncate_prompt_tokens truncation_side prompt_logprobs logprob_token_ids allowed_token_ids bad_words
 add_special_tokens structured_outputs priority request_id session_id return_tokens_as_token_ids return_token_ids
 routed_experts_prompt_start return_token_offsets return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params
 vllm_xargs repetition_detection stream_interval thinking_token_budget guided_json guided_regex guided_choice
 guided_grammar echo"""
VLLM_CHAT = """messages top_logprobs max_completion_tokens tools tool_choice reasoning_effort include_reasoning
 parallel_tool_calls add_generation_prompt continue_final_message documents chat_template chat_template_kwargs
 media_io_kwargs mm_processor_kwargs return_prompt_text"""
VLLM_COMPLETION = "prompt suffix prompt_embeds"
RESPONSES = """background include input instructions max_output_tokens max_tool_calls metadata model logit_bias
 parallel_tool_calls previous_response_id prompt reasoning service_tier store stream temperature text tool_choice tools
 top_logprobs top_p top_k truncation user skip_special_tokens include_stop_str_in_output prompt_cache_key request_id
 mm_processor_kwargs priority cache_salt enable_response_messages previous_input_messages previous_response
 structured_outputs repetition_penalty seed stop ignore_eos vllm_xargs chat_template_kwargs session_id extra_key
 ngram_corpus_id frequency_penalty presence_penalty min_p"""
EMBEDDINGS = """input model encoding_format dimensions user rid priority lora_path embed_override_token_id
 embed_overrides truncate_prompt_tokens truncation_side request_id add_special_tokens normalize messages embed_dtype
 endianness cache_salt mm_processor_kwargs"""
SCORE = """query items embed_override_token_id query_embed_overrides item_embed_overrides label_token_ids apply_softmax
 item_first return_pooled_hidden_states model"""
PAIR = """model truncate_prompt_tokens truncation_side request_id priority add_special_tokens cache_salt user
 mm_processor_kwargs use_activation"""
VLLM_SCORE = f"text_1 text_2 queries documents data_1 data_2 {PAIR}"
RERANK = f"query documents top_n instruct return_documents max_tokens_per_doc {PAIR}"
VLLM_POOLED = f"input messages use_activation activation {EMBEDDINGS}"
NATIVE = "text input_ids image_data sampling_params rid dimensions priority lora_path embed_override_token_id"
KNOWN = {
    "/generate": GENERATE,
    "/v1/chat/completions": f"{SGLANG_CHAT} {VLLM_SHARED} {VLLM_CHAT}",
    "/v1/completions": f"{SGLANG_COMPLETION} {VLLM_SHARED} {VLLM_COMPLETION}",
    "/v1/responses": RESPONSES,
    "/v1/embeddings": EMBEDDINGS,
    "/v1/score": f"{SCORE} {VLLM_SCORE}",
    "/v1/rerank": RERANK,
    "/encode": NATIVE,
    "/pooling": f"task {VLLM_POOLED}",
    "/classify": " ".join(set(VLLM_POOLED.split()) - {"encoding_format", "dimensions", "normalize"}),
}


def missing(body: Any, known: str) -> set[str]:
    return set(known.split()) - set(body.__struct_fields__)


@pytest.mark.parametrize("path", KNOWN)
def test_no_field_of_a_known_server_is_ignored_unread(path: str) -> None:
    assert missing(ROUTES[path].body, KNOWN[path]) == set()


def test_no_sampling_parameter_of_a_known_server_is_ignored_unread() -> None:
    assert missing(GivenParams, SAMPLING) == set()


@pytest.mark.parametrize(("body", "part"), [(ChatBody, TemplateFields), (MessagesBody, CountBody)])
def test_a_body_has_every_field_of_the_struct_it_is_converted_to(body: Any, part: Any) -> None:
    """One that it lacked would be unset in the struct, whatever the client sent."""
    assert missing(body, " ".join(part.__struct_fields__)) == set()


def test_generate_knows_what_other_servers_clients_send_to_every_endpoint() -> None:
    marked = {
        field.name
        for field in fields(SamplingFields)
        if field.name not in SpecFields.__struct_fields__
        and any(str(meta.description).startswith(("accepted", "*refused")) for meta in field.type.__metadata__)
    }
    assert len(marked) >= 20
    assert missing(ROUTES["/generate"].body, " ".join(marked)) == set()
