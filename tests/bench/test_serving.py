"""`ramet bench serving` as a whole, against a small server on loopback."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_server import Events, FakeServer, completion_events, native_events, serving

from ramet.bench import report, stamp
from ramet.bench.client import Completions, NativeApi, Sampling
from ramet.bench.datasets import DatasetPrompt, DatasetVocabulary
from ramet.bench.serving import main

BUNDLED = Path(__file__).resolve().parents[2] / "runtime" / "models" / "bundled"
SMALL = ["--num-prompts", "6", "--random-input", "8", "--random-output", "4", "--random-range-ratio", "1",
         "--disable-tqdm", "--warmup-requests", "0"]  # fmt: skip

Bench = Callable[..., tuple[int, FakeServer]]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Runs the command against a server that answers by `answer`; its code and the server afterwards."""

    def run(answer: Callable[[dict[str, Any], int], Events | int], *argv: str) -> tuple[int, FakeServer]:
        server = FakeServer(answer, str(BUNDLED))
        with serving(server) as port:
            return main([*SMALL, "--port", str(port), *argv]), server

    return run


def native(body: dict[str, Any], number: int) -> Events:
    return native_events(body["sampling_params"]["max_new_tokens"])


def completions(body: dict[str, Any], number: int) -> Events:
    return completion_events(body["max_tokens"])


def rows(out: str) -> dict[str, str]:
    return {k.strip(): v.strip() for k, _, v in (row.partition(":") for row in out.splitlines())}


@pytest.mark.parametrize(
    ("backend", "answer"),
    [("ramet", native), ("sglang", native), ("vllm", completions), ("openai", completions)],
)
def test_every_backend_is_counted_the_same(
    bench: Bench, capsys: pytest.CaptureFixture[str], backend: str, answer: Any
) -> None:
    code, _ = bench(answer, "--backend", backend)
    table = rows(capsys.readouterr().out)
    assert code == 0
    assert table["Backend"] == backend and table["Successful requests"] == "6"
    assert (table["Total input tokens"], table["Total generated tokens"]) == ("30", "24")
    assert table["Cached input tokens"] == "12"
    assert int(table["Total generated tokens (retokenized)"]) > 0


def test_prompts_have_the_asked_tokens_and_sampling_is_greedy_to_the_full_length(bench: Bench) -> None:
    _, server = bench(native)
    assert DatasetVocabulary(BUNDLED).count([b["text"] for b in server.bodies]) == [8] * 6
    assert all(
        b["sampling_params"] == {"temperature": 0.0, "max_new_tokens": 4, "ignore_eos": True} for b in server.bodies
    )
    assert all(b["stream"] for b in server.bodies)


def test_extra_body_goes_where_the_server_reads_it(bench: Bench) -> None:
    _, server = bench(native, "--extra-request-body", '{"frequency_penalty": 1.1, "priority": 3}')
    assert server.bodies[0]["sampling_params"]["frequency_penalty"] == 1.1
    assert server.bodies[0]["priority"] == 3 and "priority" not in server.bodies[0]["sampling_params"]


def test_extra_sampling_params_complete_ours() -> None:
    extra = {"sampling_params": {"top_k": 5, "temperature": 1}}
    body = NativeApi().body(DatasetPrompt(1, 9, text="a"), Sampling(model="", extra=extra))
    assert body["sampling_params"] == {"temperature": 1, "max_new_tokens": 9, "ignore_eos": True, "top_k": 5}


def test_ids_are_sent_as_ids() -> None:
    prompt = DatasetPrompt(2, 4, ids=(5, 6))
    assert NativeApi().body(prompt, Sampling(model=""))["input_ids"] == (5, 6)
    assert Completions().body(prompt, Sampling(model="m"))["prompt"] == (5, 6)


def test_an_incremental_stream_is_joined(bench: Bench) -> None:
    from ramet.bench.metrics import Timeline

    dialect, events = NativeApi(incremental=True), []
    for event in native_events(3):
        dialect.keep(events, json.dumps(event | {"text": "x"}).encode())
    line = Timeline(start=0)
    dialect.finish(line, events)
    assert line.text == "xxx" and line.completion_tokens == 3


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (503, 'HTTP 503: {"error": {"message": "no\\nroom"}}'),
        ([{"error": {"message": "gone", "code": 500}}], 'gone'),
        ([b": only a comment\n\n"], "the stream ended before [DONE]"),
        ([b"data: {not json}\n\n"], "the answer cannot be read"),
    ],
)  # fmt: skip
def test_failures_are_counted_shown_and_make_the_exit_code_1(
    bench: Bench, capsys: pytest.CaptureFixture[str], events: Any, message: str
) -> None:
    code, _ = bench(lambda body, number: events if number == 2 else native(body, number))
    out = capsys.readouterr().out
    table = rows(out)
    assert code == 1
    assert (table["Successful requests"], table["Failed requests"]) == ("5", "1")
    assert message in out


def test_an_aborted_answer_is_a_failure(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    def aborted(body: dict[str, Any], number: int) -> Events:
        events = native(body, number)
        events[-1]["meta_info"]["finish_reason"] = {"type": "abort", "message": "memory ran out"}
        return events

    code, _ = bench(aborted)
    assert code == 1 and "6 failed: aborted: memory ran out" in capsys.readouterr().out


def test_an_aborted_completion_is_a_failure(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    def aborted(body: dict[str, Any], number: int) -> Events:
        events = completions(body, number)
        if number == 1:
            events[-2]["choices"][0]["finish_reason"] = "abort"
        return events

    code, _ = bench(aborted, "--backend", "vllm")
    assert code == 1 and "1 failed: aborted" in capsys.readouterr().out


@pytest.mark.parametrize(("backend", "sent"), [("vllm", True), ("openai", False)])
def test_openai_is_sent_no_field_that_it_does_not_know(bench: Bench, backend: str, sent: bool) -> None:
    _, server = bench(completions, "--backend", backend)
    known = {"model", "prompt", "temperature", "max_tokens", "stream", "stream_options"}
    assert all(set(body) - known == ({"ignore_eos"} if sent else set()) for body in server.bodies)


def test_concurrency_is_never_above_its_limit(bench: Bench) -> None:
    assert bench(native, "--max-concurrency", "2", "--num-prompts", "20")[1].most_running <= 2


def test_warm_up_prompts_are_none_of_the_runs(bench: Bench) -> None:
    _, server = bench(native, "--warmup-requests", "2", "--flush-cache")
    texts = [b["text"] for b in server.bodies]
    assert len(texts) == 8 and not set(texts[:2]) & set(texts[2:])
    assert server.flushed == 1


def test_a_failing_warm_up_ends_the_run(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    code, server = bench(lambda body, number: 400, "--warmup-requests", "1")
    assert code == 2 and len(server.bodies) == 1
    assert "the warm-up request failed: HTTP 400" in capsys.readouterr().err


def test_not_streamed_the_first_token_is_the_last(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    code, server = bench(native, "--disable-stream")
    table = rows(capsys.readouterr().out)
    assert code == 0 and not any(b["stream"] for b in server.bodies)
    assert table["Mean TTFT (ms)"] == table["Mean E2E Latency (ms)"] and table["Mean ITL (ms)"] == "0.00"


@pytest.mark.parametrize("words", [["--api-key", "sesame"], ["--api-key=sesame"]])
def test_the_api_key_is_sent_and_not_written(bench: Bench, tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "r.jsonl"
    _, server = bench(native, *words, "--output-file", str(file))
    assert {h["Authorization"] for h in server.headers} == {"Bearer sesame"}
    line = file.read_text()
    assert "sesame" not in line and "--api-key" in json.loads(line)["command"]


def test_the_command_is_one_to_type_and_names_no_folder_of_this_machine(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    bench(native, f"--tokenizer={BUNDLED}", "--output-file", str(file))
    command = json.loads(file.read_text())["command"]
    assert command.startswith("python -m ramet bench serving --num-prompts 6 ")
    assert command.endswith("--tokenizer=bundled --output-file r.jsonl") and "/" not in command


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--", "--api-key", "--odd", "--port", "1"], ["--", "--api-key", "hidden", "--port", "1"]),
        (["--base-url", "http://127.0.0.1:9/v1"], ["--base-url", "http://127.0.0.1:9/v1"]),
        (["--a=b=c", "/"], ["--a=b=c", "/"]),
    ],
)
def test_a_command_line_is_kept_but_for_secrets_and_folders(argv: list[str], shown: list[str]) -> None:
    assert stamp.command_line("startup", argv) == ["python", "-m", "ramet", "bench", "startup", *shown]


def test_figures_go_to_the_checkout_or_the_current_folder(tmp_path: Path) -> None:
    assert report.results_file("x", tmp_path) == Path("x.jsonl")
    (tmp_path / "pyproject.toml").touch()
    assert report.results_file("x", tmp_path) == tmp_path / "bench" / "results" / "x.jsonl"


def test_each_run_adds_one_json_line_with_all_that_is_needed_to_repeat_it(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "new" / "r.jsonl"
    bench(native, "--output-file", str(file))
    bench(native, "--output-file", str(file), "--output-details", "--seed", "7")
    first, second = [json.loads(text) for text in file.read_text().splitlines()]
    assert {"time", "command", "commit", "machine", "versions", "options", "metrics", "server"} <= set(first)
    assert first["machine"]["cores"] >= 1 and "python" in first["versions"]
    assert first["metrics"]["completed"] == 6 and first["options"]["num_prompts"] == 6
    assert "requests" not in first and len(second["requests"]) == 6 and second["options"]["seed"] == 7


def test_no_server_is_one_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--base-url", "http://127.0.0.1:9"]) == 2
    err = capsys.readouterr().err
    assert "no server answers" in err and err.count("\n") == 1


def test_a_tokenizer_that_is_elsewhere_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with _elsewhere() as port:
        assert main([*SMALL, "--port", str(port)]) == 2
    assert "give --tokenizer FOLDER" in capsys.readouterr().err


@contextmanager
def _elsewhere() -> Iterator[int]:
    with serving(FakeServer(native, "/nowhere/model")) as port:
        yield port
