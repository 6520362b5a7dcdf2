"""Ask a running server every case of an evaluation at temperature 0, and print the table.

Decides how cases travel (in batches to /generate), and when the evaluation has passed: each row with a target reaches
it, and every further dtype gives the first one's text on 97 % of the prompts. Knows no case.
"""

import json
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.demo_model.cases import Case, Reply

SAME_ANSWERS = 0.97
TIMEOUT_S = 600.0
AT_ONCE = 16  # cases with pictures in one request


@dataclass(frozen=True)
class Answers:
    """One dtype's replies, in the order of the cases."""

    dtype: str
    replies: list[Reply]
    seconds: float


def ask(url: str, cases: Sequence[Case]) -> list[Reply]:
    size = AT_ONCE if any(case.image for case in cases) else len(cases)
    return [reply for at in range(0, len(cases), size) for reply in _ask(url, cases[at : at + size])]


def _ask(url: str, cases: Sequence[Case]) -> list[Reply]:
    params = [{"temperature": 0, "max_new_tokens": case.max_new_tokens} for case in cases]
    body: dict[str, Any] = {"text": [case.prompt for case in cases], "sampling_params": params}
    if any(case.image for case in cases):
        body["image_data"] = [[case.image] if case.image else [] for case in cases]
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/generate", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        return [_reply(item) for item in json.load(response)]


def _reply(item: dict) -> Reply:
    reason = item["meta_info"]["finish_reason"]
    return Reply(item["text"], reason["matched"] if reason["type"] == "stop" else None)


def ask_model(folder: Path, dtype: str, cases: Sequence[Case]) -> Answers:
    """Through a server of our own on this folder."""
    from ramet.bench.server import started

    with started(["--model-path", str(folder), "--dtype", dtype]) as server:
        since = time.monotonic()
        replies = ask(server.url, cases)
        return Answers(dtype, replies, time.monotonic() - since)


def shares(cases: Sequence[Case], replies: Sequence[Reply]) -> dict[str, tuple[int, int]]:
    """row -> (right, asked), in the order of the cases."""
    rows: dict[str, tuple[int, int]] = {}
    for case, reply in zip(cases, replies, strict=True):
        right, asked = rows.get(case.row, (0, 0))
        rows[case.row] = right + case.is_right(reply), asked + 1
    return rows


def table(cases: Sequence[Case], targets: Mapping[str, float], answers: Sequence[Answers]) -> tuple[list[str], bool]:
    """The lines, and whether every target is met by every dtype."""
    columns = [shares(cases, each.replies) for each in answers]
    heads = "".join(f"{each.dtype:>18}" for each in answers)
    lines = [f"{'row':<36}{'target':>8}{heads}"]
    passed = True
    for row in columns[0]:
        target = targets.get(row)
        cells = ""
        for column in columns:
            right, asked = column[row]
            missed = target is not None and right < target * asked
            passed = passed and not missed
            cells += f"{right:>5}/{asked:<4}{right / asked:>6.1%}{' !' if missed else '  '}"
        lines.append(f"{row:<36}{'' if target is None else f'{target:.0%}':>8}{cells}")
    first, *others = answers
    for other in others:
        same = sum(one.text == two.text for one, two in zip(first.replies, other.replies, strict=True))
        passed = passed and same >= SAME_ANSWERS * len(cases)
        name = f"the same in {first.dtype} and {other.dtype}"
        lines.append(f"{name:<36}{SAME_ANSWERS:>8.0%}{same:>5}/{len(cases)} {same / len(cases):.1%}")
    took = ", ".join(f"{each.dtype} {each.seconds:.0f} s" for each in answers)
    lines.append(f"{len(cases)} prompts, temperature 0; {took}")
    return lines, passed


def evaluate(
    folder: Path,
    cases: Sequence[Case],
    targets: Mapping[str, float],
    dtypes: Sequence[str],
    failures: int = 0,
    log: Path | None = None,
) -> bool:
    """Print the table, add it to the training log, and print up to `failures` wrong answers of each row."""
    if not (folder / "config.json").is_file():
        raise SystemExit(f"folder is {folder}, must hold a model: there is no config.json")
    if log is not None and not log.is_file():
        raise SystemExit(f"--log is {log}, must be a file that training wrote")
    answers = [ask_model(folder, dtype, cases) for dtype in dtypes]
    lines, passed = table(cases, targets, answers)
    print("\n".join(lines))
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.writelines(f"{line.rstrip()}\n" for line in ("", *lines))
    _print_failures(cases, answers[0].replies, failures)
    return passed


def _print_failures(cases: Sequence[Case], replies: Sequence[Reply], limit: int) -> None:
    seen: dict[str, int] = {}
    for case, reply in zip(cases, replies, strict=True):
        if not case.is_right(reply) and seen.setdefault(case.row, 0) < limit:
            seen[case.row] += 1
            print(f"----- {case.row}\n{case.prompt}\n>>>>> {reply.text!r} ended by {reply.ended_by}")
