"""Every option of the runtime: name, type, default, unit and reason, once. Flags, YAML and docs come from here.

Decides defaults and ranges. Parses nothing: flags.py does. What a device and a model make of them the runner says.
An option named `max_total_tokens` is `--max-total-tokens`, `max_total_tokens:` in YAML, `RAMET_MAX_TOTAL_TOKENS`.
"""

import os
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from ramet.ipc.params import shown
from ramet.runtime.access.key_file import check_keys as check_key_file
from ramet.runtime.access.origins import read_hosts, read_origins
from ramet.runtime.errors import ConfigError
from ramet.runtime.options.adapter_paths import NamedAdapter, read_paths
from ramet.runtime.options.media_options import MediaArgs, check_media
from ramet.runtime.options.option import SECRET, about, options_of
from ramet.runtime.options.otlp_endpoint import read_endpoint
from ramet.runtime.options.placement import placement_of

DAY_S, YEAR_S = 86400.0, 31536000.0
DAY_MS = 86400000.0
MAX_CONTEXT = 1 << 24  # tokens
MAX_POOL_TOKENS = 1 << 26  # of which the scheduler keeps 5 bytes each beside the pool
BUNDLED_MODEL = Path(__file__).resolve().parent / "models" / "bundled"
BUNDLED_VISION_MODEL = BUNDLED_MODEL.with_name("bundled_vision")  # answers about pictures
BUNDLED_VISION = "bundled:vision"  # its name as a path
BUNDLED = {"": ("ramet-bundled", BUNDLED_MODEL), BUNDLED_VISION: ("ramet-bundled-vision", BUNDLED_VISION_MODEL)}


class ModelArgs(Struct, frozen=True, kw_only=True):
    """Which model, and how it is read."""

    model_path: Annotated[
        str,
        about(
            "folder with config.json and safetensors, or a .gguf file; empty: the bundled model; bundled:vision: the "
            "bundled one that answers about pictures"
        ),
    ] = ""
    tokenizer_path: Annotated[str, about("folder with tokenizer.json; empty: the model's")] = ""
    served_model_name: Annotated[
        str, about("name in /v1/models; empty: the path as given, or ramet-bundled or ramet-bundled-vision")
    ] = ""
    load_format: Annotated[
        Literal["auto", "safetensors", "dummy"], about("dummy gives seeded random weights from config.json alone")
    ] = "auto"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        about("of weights and KV cache in memory; auto: what config.json says"),
    ] = "auto"
    quantization: Annotated[
        Literal["int8", "int8wo", "int4", "fp8", "awq", "gptq"] | None,
        about(
            "of linear layers and head; int8: weights and inputs in 8 bits; int8wo: weights alone; int4: weights in 4 "
            "bits and on a CPU inputs in 8, the head as int8; fp8: float8 e4m3 but for the head, on a GPU of compute "
            "capability 8.9 or more; awq, gptq: config.json must say so; unset: as the checkpoint is"
        ),
    ] = None
    weights_cache_gb: Annotated[
        float,
        about(
            "files of packed weights, which the next start on a CPU maps; those used longest ago go first; 0: none",
            ge=0,
            le=65536,
        ),
    ] = 32.0
    weights_cache_dir: Annotated[
        str, about("folder of these files, of this user alone; empty: ramet/weights in XDG_CACHE_HOME or ~/.cache")
    ] = ""
    context_length: Annotated[
        Annotated[int, Meta(ge=2, le=MAX_CONTEXT)] | None,
        about("tokens of prompt and output together; unset: the model's"),
    ] = None
    model_impl: Annotated[
        Literal["auto", "native", "transformers"],
        about(
            "whose modules compute; native: a family of our own; transformers: those of its class, with our cache and "
            "attention; auto: native where there is a family that reads config.json, else transformers"
        ),
    ] = "auto"
    json_model_override_args: Annotated[
        str,
        about(
            "JSON object of keys that stand in config.json instead of its own; null where the model has none, and for "
            "a key of a GGUF file that is to be left out"
        ),
    ] = ""
    chat_template: Annotated[
        str, about("file with a Jinja template, or the name of one of the model's or of ours; empty: the model's")
    ] = ""
    chat_template_timeout_s: Annotated[  # a conversation of 100,000 turns takes one or two
        float, about("CPU time that rendering one chat may take; its process is ended then", gt=0, le=DAY_S)
    ] = 3.0
    chat_template_memory_mb: Annotated[  # enough for 33 million letters, unless one is beyond U+FFFF: Python widens all
        float,
        about(
            "memory that rendering one chat may take; a tokenizer process has two processes that render",
            ge=64,
            le=1 << 20,
        ),
    ] = 256.0
    tool_call_parser: Annotated[
        str, about("how the model writes tool calls; auto: as its chat template shows, none: not at all")
    ] = "auto"
    reasoning_parser: Annotated[
        str, about("how the model marks its reasoning; auto: as its chat template shows, none: not at all")
    ] = "auto"
    sampling_defaults: Annotated[
        Literal["model", "openai"], about("model: generation_config.json completes the table of defaults")
    ] = "model"


class CacheArgs(Struct, frozen=True, kw_only=True):
    """Memory for keys and values."""

    kv_cache_dtype: Annotated[
        Literal["auto", "int8", "fp8"],
        about(
            "of cached keys and values; auto: that of --dtype, int8: 8 bits, with a scale for each token and head, "
            "fp8: float8 e4m3 without scales, on a GPU of compute capability 8.9 or more"
        ),
    ] = "auto"
    page_size: Annotated[Literal[1, 16, 64], about("tokens of a page: the unit of allocation and of sharing")] = 1
    max_total_tokens: Annotated[
        Annotated[int, Meta(ge=16, le=MAX_POOL_TOKENS)] | None,
        about(
            "tokens in the KV pool; unset: what --mem-fraction-static allows, but no more than 256 requests of full "
            "length need, or as many as may run if that is more or --max-itl-ms is set"
        ),
    ] = None
    mem_fraction_static: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        about(
            "share of memory for weights and KV pool; unset: 0.85 on cuda, on cpu 0.4 of what weights leave is the pool"
        ),
    ] = None
    disable_radix_cache: Annotated[bool, about("forget every prefix when its request ends")] = False
    prefix_cache: Annotated[
        Literal["tree", "list"],
        about("of cached prefixes; list: whole sequences, of which each request copies one, to see what a tree saves"),
    ] = "tree"
    cache_isolation: Annotated[
        Literal["auto", "key", "none"],
        about(
            "key: what one key of --api-key-file has cached (prefixes, media, constraints) is found by that key alone, "
            "so that neither counts nor times tell others of it; auto: key with such a file"
        ),
    ] = "auto"
    max_state_snapshots: Annotated[
        Annotated[int, Meta(ge=0, le=65536)] | None,
        about(
            "states of cached prefixes that are kept, where layers have states: a prefix is found up to one; unset: 2 "
            "for each running request, as far as a quarter of the memory goes"
        ),
    ] = None
    max_prefix_lease_s: Annotated[
        float, about("longest time for which a request may hold its prompt's prefix; 0: not at all", ge=0, le=86400)
    ] = 600.0


class ScheduleArgs(Struct, frozen=True, kw_only=True):
    """What runs next."""

    schedule_policy: Annotated[
        Literal["lpm", "dfs-weight", "fcfs", "lof", "random"],
        about(
            "order of the waiting queue: longest prefix match, depth first by weight, arrival, longest output, random"
        ),
    ] = "lpm"
    max_wait_s: Annotated[
        float,
        about(
            "the oldest request that waited longer goes before priority and policy, once in 64 admissions",
            gt=0,
            le=DAY_S,
        ),
    ] = 10.0
    chunked_prefill_size: Annotated[
        Annotated[int, Meta(ge=-1, le=MAX_CONTEXT)] | None,
        about("prompt tokens of a step at most; -1: no limit; unset: 256 to 2048, what half a second allows here"),
    ] = None
    max_itl_ms: Annotated[
        Annotated[float, Meta(gt=0, le=DAY_MS)] | None,
        about(
            "bound on the time between two tokens of a request: steps compute fewer prompt tokens, though 16 at least, "
            "and fewer pieces of media, though one at least; fewer requests run at once; the whole KV pool takes its "
            "memory at the start, some 4 s for each GiB; unset: none"
        ),
    ] = None
    max_running_requests: Annotated[
        Annotated[int, Meta(ge=1, le=4096)] | None, about("sequences in the running batch; unset: 256")
    ] = None
    max_penalised_requests: Annotated[
        Annotated[int, Meta(ge=1, le=4096)] | None,
        about("sequences in the running batch that use penalties; unset: as many as run, 256 at most"),
    ] = None
    max_queued_requests: Annotated[
        Annotated[int, Meta(ge=1, le=10**9)] | None,
        about(
            "sequences (prompts times n) that may wait before 503, beside those for which there is room in the running "
            "batch; while none waits, one request may exceed it by --max-running-requests; unset: no limit"
        ),
    ] = None
    schedule_conservativeness: Annotated[
        float, about("above 1 reserves more memory for outputs and retracts less often", gt=0, le=10)
    ] = 1.0
    repetition_penalty_scope: Annotated[
        Literal["generated", "all"], about("tokens that repetition_penalty scales; all: the prompt's as well")
    ] = "generated"
    token_healing: Annotated[
        Literal["off", "on"],
        about("whether text prompts of /generate and LLM.generate that do not say are healed: their end chosen again"),
    ] = "off"
    random_seed: Annotated[
        Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None,
        about("seed of sampling and of dummy weights; unset: from the clock"),
    ] = None


class ExecArgs(Struct, frozen=True, kw_only=True):
    """How a step runs."""

    device: Annotated[
        Literal["auto", "cpu", "cuda"], about("auto: cuda where torch finds a device of compute capability 8 or more")
    ] = "auto"
    attention_backend: Annotated[
        Literal["auto", "reference", "cpu", "gather", "triton", "flashinfer"],
        about(
            "auto: the fastest for the device (triton on cuda); gather: cpu, but cached prefixes are copied, to see "
            "what that costs; flashinfer: triton, but prompts by that package where it is installed"
        ),
    ] = "auto"
    overlap: Annotated[
        Literal["auto", "on", "off"],
        about("plan a step while the one before runs; auto: on for cuda, and on a CPU that prepares its steps"),
    ] = "auto"
    runner: Annotated[
        Literal["model", "scripted"],
        about("scripted: no model, tokens by a formula; measures everything but the model"),
    ] = "model"
    scripted_step_ms: Annotated[
        float,
        about(
            "of --runner scripted: how long a step takes, so that clients meet the pace of a device", ge=0, le=DAY_MS
        ),
    ] = 0.0
    scripted_token_us: Annotated[
        float,
        about("of --runner scripted: how much longer for each token of a prompt that it computes", ge=0, le=DAY_MS),
    ] = 0.0
    logprobs_mode: Annotated[
        Literal["sampled", "raw"],
        about(
            "of output tokens: as they were drawn (penalties, bias, mask, temperature), or of the model's own logits"
        ),
    ] = "sampled"
    enable_custom_logit_processor: Annotated[
        bool, about("let requests name logit processors: built-in, of installed packages, or of the module below")
    ] = False
    logit_processor_module: Annotated[
        str, about("Python module that registers more of them when it is imported; empty: none")
    ] = ""
    enable_return_routed_experts: Annotated[
        bool,
        about(
            "keep which experts every cached token went through, so that requests may ask for it "
            "(`return_routed_experts`)"
        ),
    ] = False
    num_threads: Annotated[
        Annotated[int, Meta(ge=1, le=256)] | None,
        about("threads of a CPU step; unset: one per core of the model, one in all for a model under 16 MiB"),
    ] = None
    cpu_affinity: Annotated[
        str,
        about(
            "cores of the model's threads, as 0-3,8; other processes get the rest; none: any core for all processes; "
            "auto: any core, memory spread over the nodes that these are on"
        ),
    ] = "auto"
    disable_cuda_graph: Annotated[
        bool,
        about(
            "compute every step anew, call by call; else decode steps are prepared and replayed, on a GPU as CUDA "
            "graphs, and the calls of other steps on a CPU run as a list"
        ),
    ] = False
    cuda_graph_max_bs: Annotated[
        Annotated[int, Meta(ge=1, le=4096)], about("rows of the largest decode step that is prepared")
    ] = 256
    cuda_graph_max_tokens: Annotated[
        Annotated[int, Meta(ge=0, le=4096)] | None,
        about(
            "on a GPU with --attention-backend triton: tokens of the largest step with prompts that is a CUDA graph, "
            "0 for none; unset: of the largest that takes longer to launch than to compute, measured at the start"
        ),
    ] = None
    check_invariants: Annotated[bool, about("check after every step that no slot is lost (idle is always checked)")] = (
        False
    )
    watchdog_timeout: Annotated[
        float, about("seconds a step may take before stacks are dumped and the server ends", gt=0, le=YEAR_S)
    ] = 300.0


class GrammarArgs(Struct, frozen=True, kw_only=True):
    """How outputs are kept to their constraints."""

    grammar_backend: Annotated[
        Literal["llguidance", "xgrammar", "outlines", "none"],
        about("library that compiles constraints, unless a request names another; none: no constraints"),
    ] = "llguidance"
    jump_forward: Annotated[
        Literal["ff", "retokenize", "off"] | None,
        about(
            "text that a constraint leaves no choice about takes no steps: ff appends its canonical tokens, retokenize "
            "its text, tokenised anew with what comes before; unset: ff where the backend can, else off"
        ),
    ] = None
    json_whitespace: Annotated[
        Literal["single-space", "compact", "flexible"],
        about("between the tokens of JSON: one space after , and :, none, or as the model likes"),
    ] = "single-space"
    grammar_timeout_s: Annotated[
        float, about("CPU time that compiling one constraint may take before its requests end with 504", gt=0, le=DAY_S)
    ] = 10.0
    grammar_memory_mb: Annotated[  # 40 strings that may be left out take 700 with xgrammar, most schemas 1
        float,
        about(
            "memory that a process may take to compile one constraint, beside its library; each backend that requests "
            "name has two at most",
            ge=64,
            le=1 << 20,
        ),
    ] = 1024.0
    grammar_step_items: Annotated[
        int,
        about(
            "parser items that a token of an output may take in the decode loop, a fifth of them at one place of its "
            "text; an output that takes more is parsed in a process of its own, while others go on",
            ge=1000,
            le=50_000,
        ),
    ] = 2500
    grammar_output_s: Annotated[
        float,
        about(
            "seconds of a core for parsing one output, before its request ends with 400: in the process of its own "
            "that --grammar-step-items moves it to, or, with its stop_regex, in the decode loop beyond 0.5 ms a token",
            gt=0,
            le=DAY_S,
        ),
    ] = 10.0
    grammar_cache_mb: Annotated[
        float, about("memory for compiled constraints that are kept, the least recently used go first", ge=0, le=65536)
    ] = 64.0
    grammar_held_mb: Annotated[  # most constraints take 0.1
        float,
        about(
            "memory for compiled constraints, those that are kept and those of requests, as their libraries' backends "
            "estimate it: a constraint for which none is left is compiled when others have ended, and its request "
            "waits for that",
            ge=1,
            le=1 << 20,
        ),
    ] = 1024.0


class AdapterArgs(Struct, frozen=True, kw_only=True):
    """Low-rank adapters (LoRA) of the model."""

    lora_paths: Annotated[
        tuple[str, ...],
        about(
            "folders of adapters in PEFT's format that are there from the start: NAME=PATH, PATH, or JSON with "
            "lora_name, lora_path and pinned"
        ),
    ] = ()
    max_loras_per_batch: Annotated[
        int, about("different adapters among the sequences that run; others wait", ge=1, le=256)
    ] = 8
    max_loaded_loras: Annotated[int, about("adapters that are loaded, in memory of the host", ge=1, le=4096)] = 128
    max_lora_rank: Annotated[int, about("rank of an adapter's layer; a larger one is refused", ge=1, le=4096)] = 256
    lora_dir: Annotated[str, about("folder that adapters must lie in; empty: any that this user can read")] = ""


class ServeArgs(Struct, frozen=True, kw_only=True):
    """The HTTP side."""

    host: Annotated[str, about("address to listen on")] = "127.0.0.1"
    port: Annotated[int, about("port to listen on; 0 picks a free one", ge=0, le=65535)] = 30000
    api_key: Annotated[str, about("asked of all but /health, /ready, /ping, /version and /metrics; empty: none")] = ""
    admin_api_key: Annotated[
        str,
        about(
            "key for what changes the server or shows what it does for all clients, and opens everything else as well; "
            "empty: the API key opens all"
        ),
    ] = ""
    api_key_file: Annotated[
        str,
        about(
            "file with a key for each client, a line NAME KEY, and comments after #; read again when it changes; takes "
            "the place of --api-key and needs --admin-api-key; empty: none"
        ),
    ] = ""
    max_share_per_key: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        about(
            "of what clients share, how much one key of --api-key-file may hold: of the queue (--max-queued-requests, "
            "or 64 sequences for each that may run), of connections and memory for bodies, of workers for media and "
            "constraints and what waits for them, of sessions, stored responses and leases; unset: 0.5"
        ),
    ] = None
    allowed_origins: Annotated[
        tuple[str, ...],
        about("origins of web pages that may use this server, as https://chat.example; this machine's own always may"),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        about("further names of this server in the header Host, for one without API key; .example.com: all below it"),
    ] = ()
    trace_dir: Annotated[
        str,
        about(
            "folder of timelines that SIGUSR2 or the death of a process writes, and of profiles, which it keeps to "
            "this folder; empty: ramet/traces in XDG_CACHE_HOME or ~/.cache, and profiles may name another"
        ),
    ] = ""
    ssl_certfile: Annotated[str, about("file with the server's certificates in PEM: HTTPS; empty: plain HTTP")] = ""
    ssl_keyfile: Annotated[str, about("file with its private key in PEM; empty: it is in --ssl-certfile")] = ""
    ssl_keyfile_password: Annotated[str, about("password of the key's file; empty: it has none")] = ""
    ssl_ca_certs: Annotated[
        str, about("file with authorities in PEM: only clients with a certificate of these are served; empty: all are")
    ] = ""
    enable_ssl_refresh: Annotated[
        bool, about("look for changes of these files every second; new connections get what they are then")
    ] = False
    tokenizer_worker_num: Annotated[int, about("tokenizer processes", ge=1, le=16)] = 1
    incremental_streaming_output: Annotated[bool, about("/generate streams deltas instead of cumulative text")] = False
    max_body_mb: Annotated[float, about("largest request body, once it is inflated", gt=0, le=4096)] = 32.0
    max_body_items: Annotated[
        int,
        about(
            "entries of lists and objects in a body; 1/32 of them may be keys, 1/64 lists and objects, and 1/64 "
            "numbers of fields in which one has 16 digits or more, which are kept. Parsing a million takes 50 to 100 "
            "ms, in which no one else is served",
            ge=1 << 12,
            le=1 << 28,
        ),
    ] = 1 << 21
    max_bodies_mb: Annotated[
        Annotated[float, Meta(gt=0, le=1 << 20)] | None,
        about(
            "memory for all bodies that are being received and are not parsed yet, beyond the first 64 KiB of each, "
            "and an eighth more for those of at most 1 MiB; what exceeds it is read when another body has been "
            "parsed, and a body that arrives at less than 1 MiB/s while another waits gets a 408; unset: 256, or "
            "--max-body-mb if that is more"
        ),
    ] = None
    stored_responses_mb: Annotated[
        float, about("memory for stored /v1/responses, the least recently used go first; 0: none is", ge=0, le=65536)
    ] = 64.0
    enable_streaming_session: Annotated[
        bool, about("let clients open sessions that are streaming: their requests only append, and stay cached")
    ] = False
    sessions_mb: Annotated[
        float,
        about(
            "memory for sessions: of each request 400 bytes, its id, and 4 bytes for each token of its own, or 8 of a "
            "streaming session; if it is full, their requests get a 503",
            ge=0,
            le=65536,
        ),
    ] = 64.0
    session_timeout_s: Annotated[
        float, about("a session that names no timeout and is idle for so long is closed", gt=0, le=YEAR_S)
    ] = 3600.0
    request_timeout_s: Annotated[
        Annotated[float, Meta(gt=0, le=YEAR_S)] | None,
        about("a request that takes longer ends with 504; unset: never"),
    ] = None
    header_timeout_s: Annotated[
        float,
        about("how long a request's header may take, from its first byte or the connection's start", gt=0, le=DAY_S),
    ] = 20.0
    transfer_timeout_s: Annotated[
        float,
        about(
            "how long a body, or what a client does not read, may take: that and a second for each 16 KiB",
            gt=0,
            le=DAY_S,
        ),
    ] = 60.0
    keep_alive_timeout_s: Annotated[
        float, about("how long a connection waits for its next request", gt=0, le=DAY_S)
    ] = 60.0
    max_connections: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 20)] | None,
        about("open connections before new ones get a 503; unset: 16384, or what the limit of open files leaves"),
    ] = None
    drain_timeout_s: Annotated[float, about("how long SIGTERM waits for running requests", ge=0, le=DAY_S)] = 60.0
    ui: Annotated[bool, about("serve the page at /ui; --no-ui: there is none")] = True
    log_level: Annotated[Literal["debug", "info", "warning", "error"], about("least severe line that is printed")] = (
        "info"
    )
    otlp_traces_endpoint: Annotated[
        str,
        about(
            "address that traces are sent to by OTLP, as http://localhost:4318/v1/traces, with ramet[otel]; empty: none"
        ),
    ] = ""
    trace_sample_ratio: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        about("share of the traces that begin here which are kept; unset: as OTEL_TRACES_SAMPLER says, or all"),
    ] = None
    metrics_compat: Annotated[
        tuple[Literal["sglang", "vllm"], ...],
        about("servers whose names /metrics has beside its own, for dashboards and gateways that read these"),
    ] = ()
    log_requests: Annotated[bool, about("log every request when it ends: what of it, the level says")] = False
    log_requests_level: Annotated[
        int,
        about(
            "0: usage and latency; 1: its parameters too; 2: prompt and output too, cut to 2048 characters or ids; "
            "3: all of these",
            ge=0,
            le=3,
        ),
    ] = 1
    log_requests_format: Annotated[
        Literal["text", "json"], about("json: an object for each line, and a line for a request's arrival too")
    ] = "text"
    log_requests_target: Annotated[
        tuple[str, ...],
        about("where these lines go, one or more: log (this log), stdout, or a folder of this server alone"),
    ] = ("log",)
    log_requests_file_mb: Annotated[
        float, about("of a folder: a larger file is put aside (requests.log.1), and another one begun", ge=1, le=65536)
    ] = 64.0
    log_requests_num_files: Annotated[
        int, about("of a folder: so many files are kept, the oldest is deleted", ge=1, le=1000)
    ] = 8
    log_requests_min_ms: Annotated[
        Annotated[float, Meta(ge=0, le=DAY_MS)] | None, about("log only requests that took longer; unset: all of them")
    ] = None


class Args(Struct, frozen=True, kw_only=True):
    """All options, grouped by their readers."""

    model: ModelArgs = ModelArgs()
    cache: CacheArgs = CacheArgs()
    schedule: ScheduleArgs = ScheduleArgs()
    execute: ExecArgs = ExecArgs()
    grammar: GrammarArgs = GrammarArgs()
    adapters: AdapterArgs = AdapterArgs()
    media: MediaArgs = MediaArgs()
    serve: ServeArgs = ServeArgs()

    @property
    def model_folder(self) -> Path:
        path = self.model.model_path
        return BUNDLED[path][1] if path in BUNDLED else Path(path)

    @property
    def is_bundled(self) -> bool:
        return self.model.model_path in BUNDLED

    @property
    def tokenizer_folder(self) -> Path:
        return Path(self.model.tokenizer_path) if self.model.tokenizer_path else self.model_folder

    @property
    def model_name(self) -> str:
        path = self.model.model_path
        return self.model.served_model_name or (BUNDLED[path][0] if path in BUNDLED else path)

    @property
    def named_adapters(self) -> list[NamedAdapter]:
        """Those of the start, in the order of their generations, from 1 on. Raises ConfigError."""
        own = self.adapters
        return read_paths(own.lora_paths, own.max_loaded_loras, own.max_loras_per_batch, own.lora_dir)

    @property
    def heals_unasked(self) -> bool:
        return self.schedule.token_healing == "on"

    @property
    def keeps_keys_apart(self) -> bool:
        """What the holder of one key has cached is not found by others."""
        return bool(self.serve.api_key_file) and self.cache.cache_isolation != "none"

    @property
    def share_per_key(self) -> float:
        """1.0 where clients have no keys of their own."""
        asked = self.serve.max_share_per_key
        return 1.0 if not self.serve.api_key_file else 0.5 if asked is None else asked

    @property
    def jump_forward(self) -> str:
        """The mode for constraints of the default backend; a request that names another one has that one's."""
        return self.grammar.jump_forward or ("ff" if self.grammar.grammar_backend == "llguidance" else "off")

    @property
    def max_bodies_bytes(self) -> int:
        """Memory for the bodies of all connections together."""
        asked, one = self.serve.max_bodies_mb, self.serve.max_body_mb
        return int((max(256.0, one) if asked is None else asked) * (1 << 20))

    @property
    def max_running(self) -> int:
        return self.schedule.max_running_requests or 256

    @property
    def max_penalised(self) -> int:
        return min(self.max_running, self.schedule.max_penalised_requests or 256)


def make_args(**options: Any) -> Args:
    """Args from option names alone: make_args(model_path="...", page_size=16). Checks types and ranges."""
    sections: dict[str, dict[str, Any]] = {section: {} for section in Args.__struct_fields__}
    owner = {name: section for section in sections for name in getattr(Args(), section).__struct_fields__}
    for name, value in options.items():
        if name not in owner:
            raise ConfigError(f"unknown option {name}; known are {', '.join(sorted(owner))}")
        sections[owner[name]][name] = value
    try:
        return msgspec.convert(sections, Args)
    except msgspec.ValidationError:
        raise ConfigError(_wrong_one(options, owner)) from None


def _wrong_one(options: dict[str, Any], owner: dict[str, str]) -> str:
    for option in options_of(Args):
        try:
            msgspec.convert({owner[option.name]: {option.name: options.get(option.name, option.default)}}, Args)
        except msgspec.ValidationError:
            given = "hidden" if option.name in SECRET else shown(options[option.name])
            return f"{option.name} is {given}, must be {option.valid}"
    raise AssertionError("the options are wrong together, but each of them is right")


def encode_args(args: Args) -> bytes:
    return msgspec.json.encode(args)


def decode_args(data: bytes) -> Args:
    return msgspec.json.decode(data, type=Args)


def located(args: Args) -> Args:
    """With the folder of the model, which has a config.json. Raises ConfigError.

    A GGUF file is served from the folder that is made of it, under its own name.
    """
    file = args.model_folder
    if not file.is_file():
        if not file.is_dir():
            raise ConfigError(
                f"--model-path {file} is not a folder on this machine (models are not downloaded by name)"
            )
        if not (file / "config.json").is_file():
            raise ConfigError(f"--model-path {file} has no config.json: it must be a Hugging Face model folder")
        return args
    if file.suffix != ".gguf":
        raise ConfigError(f"--model-path {file} is a file, must be a model folder or a .gguf file")
    from ramet.runtime.gguf.folder import folder_of
    from ramet.runtime.gguf.left_out import split

    overrides, left_out = split(args.model.json_model_override_args)
    folder = folder_of(file, tokenizer=not args.model.tokenizer_path, left_out=left_out)
    changed = {"model_path": str(folder), "served_model_name": args.model_name, "json_model_override_args": overrides}
    return replace(args, model=replace(args.model, **changed))


def _check_keys(serve: ServeArgs) -> None:
    """Such a key is part of no header, or arrives without its ends: nobody could send it."""
    for name in ("api_key", "admin_api_key"):
        key: str = getattr(serve, name)
        if key != key.strip() or not key.isprintable():
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} begins or ends with a space, or has line breaks or other control characters")
    check_key_file(serve.api_key_file, serve.api_key, serve.admin_api_key)


def _check_log_targets(serve: ServeArgs) -> None:
    seen: dict[str, str] = {}
    for target in serve.log_requests_target:
        place = target if target in ("log", "stdout") else os.path.realpath(target)
        if place in seen:
            raise ConfigError(f"--log-requests-target has {seen[place]!r} and {target!r}, which are the same")
        seen[place] = target


def _make_log_folders(serve: ServeArgs) -> None:
    for target in serve.log_requests_target if serve.log_requests else ():
        if target in ("log", "stdout"):
            continue
        try:
            Path(target).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--log-requests-target {target} cannot be made: {error.strerror}") from None
        if not os.access(target, os.W_OK | os.X_OK):
            raise ConfigError(f"--log-requests-target {target} is a folder that this user cannot write to")


def resolve(args: Args) -> Args:
    """Check that the files are there and draw the seed, so that every process has the same. Raises ConfigError."""
    if args.grammar.jump_forward == "ff" and args.grammar.grammar_backend in ("xgrammar", "outlines"):
        raise ConfigError(
            f"--jump-forward is ff, but --grammar-backend {args.grammar.grammar_backend} does not say which tokens "
            "canonically spell a text: use llguidance, or --jump-forward retokenize"
        )
    if args.execute.logit_processor_module and not args.execute.enable_custom_logit_processor:
        raise ConfigError("--logit-processor-module needs --enable-custom-logit-processor")
    args = located(args)
    if not (args.tokenizer_folder / "tokenizer.json").is_file():
        raise ConfigError(
            f"{args.tokenizer_folder} has no tokenizer.json: name a folder that has one with --tokenizer-path "
            "(transformers' save_pretrained of a fast tokenizer writes it)"
        )
    if args.adapters.lora_dir and not Path(args.adapters.lora_dir).is_dir():
        raise ConfigError(f"--lora-dir {args.adapters.lora_dir} is not a folder on this machine")
    if any(adapter.name in (args.model_name, "default") for adapter in args.named_adapters):
        raise ConfigError(f"--lora-paths: no adapter may have the model's name {args.model_name!r}, or 'default'")
    if args.adapters.lora_paths and args.execute.runner == "scripted":
        raise ConfigError("--lora-paths needs a model, but --runner is scripted")
    placement_of(args.execute.cpu_affinity)
    _check_keys(args.serve)
    _check_log_targets(args.serve)
    _make_log_folders(args.serve)
    read_origins(args.serve.allowed_origins)
    read_hosts(args.serve.allowed_hosts)
    if args.serve.otlp_traces_endpoint:
        read_endpoint(args.serve.otlp_traces_endpoint)
    _check_tls(args.serve)
    _check_bodies(args.serve)
    check_media(args.media)
    if args.cache.cache_isolation == "key" and not args.serve.api_key_file:
        raise ConfigError("--cache-isolation key needs --api-key-file: with one key there is nobody to keep apart")
    if args.serve.max_share_per_key is not None and not args.serve.api_key_file:
        raise ConfigError("--max-share-per-key needs --api-key-file: without it all clients are one")
    if args.schedule.chunked_prefill_size == 0:
        raise ConfigError("--chunked-prefill-size is 0, must be -1 (no limit) or >= 1")
    if args.schedule.random_seed is not None:
        return args
    return replace(args, schedule=replace(args.schedule, random_seed=time.time_ns()))


def _check_bodies(serve: ServeArgs) -> None:
    if serve.max_bodies_mb is not None and serve.max_bodies_mb < serve.max_body_mb:
        raise ConfigError(
            f"--max-bodies-mb is {serve.max_bodies_mb:g}, must be at least --max-body-mb, which is "
            f"{serve.max_body_mb:g}: all bodies together hold no less than one of them"
        )


def _check_tls(serve: ServeArgs) -> None:
    """What the files hold is checked where they are used (server/http/certificates.py)."""
    for name in ("ssl_keyfile", "ssl_keyfile_password", "ssl_ca_certs", "enable_ssl_refresh"):
        if getattr(serve, name) and not serve.ssl_certfile:
            raise ConfigError(f"--{name.replace('_', '-')} needs --ssl-certfile")
