"""`ramet bench serving`: load a running server and print what its users would feel.

Definitions. All times are the client's own clock, from the moment a request is sent (after it got its place under
--max-concurrency).
  TTFT      until the read that brings the first token: an event that reports at least one token, even if its text is
            still held back. (Others wait for text that is not empty; a token that ends inside a character has none.)
  ITL       one value per token after the first arrival. Tokens that arrive in one read share the gap before it equally,
            so the mean is true however a server packs its events. Max ITL is the longest whole gap, unshared.
  TPOT      per request: (last arrival - first arrival) / tokens after the first arrival. Requests whose tokens came in
            one arrival have none and do not enter.
  E2E       until the end of the response, [DONE] included.
  duration  from the first request sent to the end of the last response; not until some later call returned.
  tokens    input and output as the server counts them; "retokenized" encodes the answers' text again, here.
Rates divide by the duration; only requests that succeeded count. Not streamed (--disable-stream), TTFT is E2E.

What differs from the habit of the field: the warm-up sends prompts of its own, so it leaves no cached prefix behind;
Poisson arrivals are due at absolute times, so a busy client does not lower the rate; a request that failed, was
aborted or whose stream broke off makes the exit code 1.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
import orjson
import tqdm

from ramet.bench import arrivals, datasets, report, stamp
from ramet.bench.client import Completions, Dialect, NativeApi, Sampling, ask
from ramet.bench.datasets import DatasetPrompt, DatasetVocabulary
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.metrics import LoadMetrics, Timeline, measure
from ramet.bench.values import json_object, positive, rate, share

DEFAULT_PORTS = {"ramet": 30000, "sglang": 30000, "vllm": 8000, "openai": 8000}
WARMUP_SEED = 1 << 20  # far from any --seed, so that a warm-up prompt is never one of the run's
WARMUP_OUTPUT = 32


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadOption(message)


def parser() -> argparse.ArgumentParser:
    text = "Load a running server and print what its users would feel."
    p = _Parser(prog="ramet bench serving", description=text, allow_abbrev=False)
    p.add_argument("--backend", choices=list(DEFAULT_PORTS), default="ramet", help="ramet, sglang: /generate; vllm, "
                   "openai: /v1/completions. openai is not sent ignore_eos, which OpenAI refuses: answers may be "
                   "shorter than asked")  # fmt: skip
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, help="default 30000; vllm, openai: 8000")
    p.add_argument("--base-url", help="instead of host and port")
    p.add_argument("--api-key", default=os.environ.get("OPENAI_API_KEY", ""), help="default: OPENAI_API_KEY")
    p.add_argument("--model", help="name in the request; default: the server's first")
    p.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json; default: what the server uses")
    _dataset_options(p.add_argument_group("prompts"))
    _load_options(p.add_argument_group("load"))
    p.add_argument("--output-file", type=Path, help="append the result to this file as one JSON line")
    p.add_argument("--output-details", action="store_true", help="with every request's times and text in that line")
    p.add_argument("--disable-tqdm", action="store_true", help="no progress bar")
    return p


def _dataset_options(p: Any) -> None:
    names = ["random", "random-ids", "generated-shared-prefix", "sharegpt-file"]
    p.add_argument("--dataset-name", choices=names, default="random", help="default random")
    p.add_argument("--dataset-path", type=Path, help="the JSON file of sharegpt-file")
    p.add_argument("--num-prompts", type=positive, default=1000, help="default 1000")
    p.add_argument("--random-input-len", "--random-input", type=positive, default=1024, help="tokens, default 1024")
    p.add_argument("--random-output-len", "--random-output", type=positive, default=1024, help="tokens, default 1024")
    p.add_argument("--random-range-ratio", type=share, default=0.0,
                   help="lengths are uniform in [ratio x len, len]; 1 is always len; default 0")  # fmt: skip
    p.add_argument("--gsp-num-groups", type=positive, default=64)
    p.add_argument("--gsp-prompts-per-group", type=positive, default=16)
    p.add_argument("--gsp-system-prompt-len", type=positive, default=2048)
    p.add_argument("--gsp-question-len", type=positive, default=128)
    p.add_argument("--gsp-output-len", type=positive, default=256)
    p.add_argument("--seed", type=int, default=1, help="of prompts and arrivals, default 1")


def _load_options(p: Any) -> None:
    p.add_argument("--request-rate", type=rate, default=float("inf"), help="requests/s, Poisson; default inf")
    p.add_argument("--max-concurrency", type=positive, help="requests in flight at most; default: no limit")
    p.add_argument("--extra-request-body", type=json_object, default={}, metavar="JSON",
                   help="fields or sampling parameters for every request")  # fmt: skip
    p.add_argument("--warmup-requests", type=int, default=1, help="default 1")
    p.add_argument("--flush-cache", action="store_true", help="empty the server's prefix cache after the warm-up")
    p.add_argument("--disable-ignore-eos", action="store_true", help="let answers end before their asked length")
    p.add_argument("--disable-stream", action="store_true")


def main(argv: Sequence[str]) -> int:
    try:
        options = parser().parse_args(list(argv))
        lines, metrics, server = run_fast(_run(options))
    except BadOption as error:
        print(f"ramet bench serving: {error}", file=sys.stderr)
        return 2
    print(report.table(metrics))
    if options.output_file:
        report.append_line(options.output_file, _record(options, argv, lines, metrics, server))
    return 1 if metrics.failed else 0


async def _run(options: argparse.Namespace) -> tuple[list[Timeline], LoadMetrics, dict[str, Any]]:
    headers = {"Content-Type": "application/json"}
    if options.api_key:
        headers["Authorization"] = f"Bearer {options.api_key}"
    base = options.base_url or f"http://{options.host}:{options.port or DEFAULT_PORTS[options.backend]}"
    async with aiohttp.ClientSession(
        base.rstrip("/"),
        headers=headers,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
        json_serialize=lambda value: orjson.dumps(value).decode(),
    ) as session:
        server = await _describe(session, options.backend)
        vocabulary = DatasetVocabulary(options.tokenizer or _tokenizer_of(server))
        dialect = _dialect(options.backend, server)
        sampling = Sampling(
            model=options.model or _model_of(server),
            stream=not options.disable_stream,
            ignore_eos=not options.disable_ignore_eos,
            extra=options.extra_request_body,
        )
        prompts = make_prompts(options, vocabulary)

        async def send(body: bytes) -> Timeline:
            return await ask(session, dialect.path, body, dialect, sampling.stream)

        await _warm_up(options, vocabulary, prompts[0], lambda p: send(orjson.dumps(dialect.body(p, sampling))))
        if options.flush_cache:
            await _flush(session)
        bodies = [orjson.dumps(dialect.body(prompt, sampling)) for prompt in prompts]
        due = arrivals.due_times(len(bodies), options.request_rate, options.seed)
        with tqdm.tqdm(total=len(bodies), disable=options.disable_tqdm, file=sys.stderr) as bar:
            lines = await drive(bodies, due, options.max_concurrency, send, bar.update)
    for line, prompt in zip(lines, prompts):
        line.prompt_tokens = line.prompt_tokens or prompt.input_len  # a server that reports no usage
    retokenized = sum(vocabulary.count([line.text for line in lines if not line.error], special=False))
    metrics = measure(lines, retokenized, options.backend, options.request_rate, options.max_concurrency)
    return lines, metrics, server


def make_prompts(o: argparse.Namespace, vocabulary: DatasetVocabulary) -> list[DatasetPrompt]:
    match o.dataset_name:
        case "generated-shared-prefix":
            return datasets.shared_prefix(
                vocabulary, o.gsp_num_groups, o.gsp_prompts_per_group,
                o.gsp_system_prompt_len, o.gsp_question_len, o.gsp_output_len, o.seed,
            )  # fmt: skip
        case "sharegpt-file":
            if o.dataset_path is None:
                raise BadOption("--dataset-path must name the JSON file of sharegpt-file")
            return datasets.sharegpt_file(vocabulary, o.dataset_path, o.num_prompts, o.seed)
        case _:
            make = datasets.random_ids if o.dataset_name == "random-ids" else datasets.random_text
            return make(
                vocabulary, o.num_prompts, o.random_input_len, o.random_output_len, o.random_range_ratio, o.seed
            )


async def drive(
    bodies: Sequence[bytes],
    due: Sequence[float],
    max_concurrency: int | None,
    send: Callable[[bytes], Awaitable[Timeline]],
    ended: Callable[[], object],
) -> list[Timeline]:
    """Send each body at its time, or as soon after as --max-concurrency lets it; the timelines in the same order."""
    loop = asyncio.get_running_loop()
    places = asyncio.Semaphore(max_concurrency) if max_concurrency else contextlib.nullcontext()
    start = loop.time()

    async def one(body: bytes, at: float) -> Timeline:
        if (wait := start + at - loop.time()) > 0:
            await asyncio.sleep(wait)
        async with places:
            line = await send(body)
        ended()
        return line

    return await asyncio.gather(*(one(body, at) for body, at in zip(bodies, due)))


async def _warm_up(
    o: argparse.Namespace,
    vocabulary: DatasetVocabulary,
    like: DatasetPrompt,
    send: Callable[[DatasetPrompt], Awaitable[Timeline]],
) -> None:
    if o.warmup_requests < 1:
        return
    output = min(WARMUP_OUTPUT, like.output_len)
    prompts = datasets.random_text(vocabulary, o.warmup_requests, like.input_len, output, 1.0, o.seed + WARMUP_SEED)
    for line in await asyncio.gather(*(send(prompt) for prompt in prompts)):
        if line.error:
            raise BadOption(f"the warm-up request failed: {line.error}")


async def _describe(session: aiohttp.ClientSession, backend: str) -> dict[str, Any]:
    """What the server says of itself, by path. Only ramet and SGLang must know the last two."""
    said: dict[str, Any] = {}
    for path in ("/v1/models", "/get_model_info", "/get_server_info"):
        try:
            async with session.get(path) as response:
                if response.status == 200:
                    said[path] = orjson.loads(await response.read())
                elif path == "/v1/models" or backend in ("ramet", "sglang"):
                    raise BadOption(f"{response.url} answers HTTP {response.status}: {(await response.text())[:200]}")
        except (aiohttp.ClientError, OSError) as error:
            raise BadOption(f"no server answers: {error}; start one, e.g. with `ramet serve`") from None
        except orjson.JSONDecodeError as error:
            raise BadOption(f"{path} of this server is not JSON: {error}") from None
    return said


def _model_of(server: dict[str, Any]) -> str:
    models = server["/v1/models"].get("data") or []
    return models[0]["id"] if models else ""


def _tokenizer_of(server: dict[str, Any]) -> Path:
    said = server.get("/get_model_info", {})
    models = server["/v1/models"].get("data") or [{}]
    named = said.get("tokenizer_path") or said.get("model_path") or models[0].get("root") or _model_of(server)
    if not named or not Path(named).exists():
        raise BadOption(f"the server's tokenizer {named!r} is not on this machine: give --tokenizer FOLDER")
    return Path(named)


def _dialect(backend: str, server: dict[str, Any]) -> Dialect:
    if backend in ("vllm", "openai"):
        return Completions(extended=backend == "vllm")
    return NativeApi(incremental='"incremental_streaming_output": true' in json.dumps(server["/get_server_info"]))


async def _flush(session: aiohttp.ClientSession) -> None:
    async with session.post("/flush_cache", params={"timeout": "10"}) as response:
        if response.status != 200:
            raise BadOption(f"--flush-cache: the server answers HTTP {response.status}: {await response.text()}")


def _record(
    options: argparse.Namespace,
    argv: Sequence[str],
    lines: list[Timeline],
    metrics: LoadMetrics,
    server: dict[str, Any],
) -> dict[str, Any]:
    chosen = {k: v if isinstance(v, int | str | dict | None) else str(v) for k, v in vars(options).items()}
    chosen["api_key"] = "hidden" if options.api_key else ""
    record = {"bench": "serving", **stamp.stamp(stamp.command_line("serving", argv)), "options": chosen}
    record |= {"metrics": report.metrics_record(metrics), "server": server}
    if options.output_details:
        record["requests"] = [dataclasses.asdict(line) for line in lines]
    return record


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
