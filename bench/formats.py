"""`ramet bench formats`: what the form of a checkpoint costs and saves.

  decode    tokens/s of one request: 4-bit weights in groups of 128, as compressed-tensors has them, against bfloat16
  start     seconds until `ramet serve` is ready without packed weights that were kept, and with them, against those of
            reading the checkpoint's file once, each with files that are not in the page cache; what the last start
            spent them on; and those of the bundled model, whose weights take no time

Weights are made by seed. Both forms are measured in turn, round by round, and a ratio is of two figures of one round.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loads import SHAPE, SHAPE_1B
from ramet.bench.offline import make_checkpoint, make_folder
from ramet.bench.server import await_kept, started
from ramet.bench.values import positive

SHAPES = {"160m": SHAPE, "1b": SHAPE_1B}
GROUP, PROMPT = 128, 32
TARGET_FASTER, TARGET_READS = 1.5, 2.0
READ_BYTES = 16 << 20


def main(argv: Sequence[str]) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench formats", description=__doc__, formatter_class=formatter)
    p.add_argument("--model", choices=list(SHAPES), default="1b", help="shape, default 1b")
    p.add_argument("--rounds", type=positive, default=3, help="default 3")
    p.add_argument("--output-len", type=positive, default=64, help="tokens, default 64")
    p.add_argument("--output-file", type=Path, default=report.results_file("formats"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as place:
        plain, few = Path(place) / "plain", Path(place) / "few"
        for folder in (plain, few):
            folder.mkdir()
        make_checkpoint(plain, SHAPES[options.model])
        make_few_bits(plain, few, SHAPES[options.model])
        try:
            starts = measure_starts(plain, options.rounds)
        except BadOption as error:
            print(f"ramet bench formats: {error}", file=sys.stderr)
            return 1
        rates = measure_rates({"bfloat16": plain, "int4": few}, options.rounds, options.output_len)
    faster = statistics.median(four / two for four, two in zip(rates["int4"], rates["bfloat16"], strict=True))
    first, kept, bundled = (
        statistics.median(one[name] / one["read_s"] for one in starts)
        for name in ("first_ready_s", "ready_s", "bundled_ready_s")
    )
    for name, each in rates.items():
        print(f"{name:<9} {statistics.median(each):8.1f} tokens/s")
    print(f"int4 is {faster:.2f} times as fast as bfloat16 (target {TARGET_FASTER:g})")
    print(f"ready after {first:.2f} times a read of the file; {kept:.2f} with weights that were kept "
          f"(target {TARGET_READS:g}), and {bundled:.2f} with the bundled model")  # fmt: skip
    for role, phases in starts[-1]["phases"].items():
        print(f"  {role:<12} {phases}")
    record = {"bench": "formats", **stamp.stamp(stamp.command_line("formats", argv)), "model": options.model}
    record |= {
        "rates": rates,
        "faster": faster,
        "starts": starts,
        "first_reads": first,
        "reads": kept,
        "bundled_reads": bundled,
    }
    report.append_line(options.output_file, record)
    return 0


def make_few_bits(plain: Path, few: Path, shape: dict[str, Any]) -> None:
    """The linear layers of `plain` as random words of eight weights; everything else as it is."""
    import torch
    from safetensors.torch import load_file, save_file

    torch.manual_seed(0)
    tensors = load_file(plain / "model.safetensors")
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        num_out, num_in = tensors.pop(name).shape
        words = torch.randint(-(1 << 31), 1 << 31, (num_out, num_in // 8)).int()
        scales = torch.full((num_out, num_in // GROUP), 0.005, dtype=torch.bfloat16)
        tensors |= {f"{name}_packed": words, f"{name}_scale": scales, f"{name}_shape": torch.tensor([num_out, num_in])}
    save_file(tensors, few / "model.safetensors", {"format": "pt"})
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": True}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    make_folder(few, shape)
    config = json.loads((few / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }  # fmt: skip
    (few / "config.json").write_text(json.dumps(config))


def measure_rates(folders: dict[str, Path], rounds: int, output: int) -> dict[str, list[float]]:
    """Form -> tokens/s of each round."""
    from ramet.runtime.llm import LLM

    prompt = list(range(3, 3 + PROMPT))
    asked = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
    llms = {
        name: LLM(model_path=str(folder), max_total_tokens=1024, random_seed=0, log_level="warning", weights_cache_gb=0)
        for name, folder in folders.items()
    }
    rates: dict[str, list[float]] = {name: [] for name in folders}
    for number in range(rounds + 1):
        for name, llm in llms.items():
            started_at = time.perf_counter()
            llm.generate([prompt], asked)
            if number:  # the first one warms up
                rates[name].append(output / (time.perf_counter() - started_at))
    for llm in llms.values():
        llm.close()
    return rates


def measure_starts(folder: Path, rounds: int) -> list[dict[str, Any]]:
    found = []
    for number in range(rounds):
        kept = folder.parent / f"weights-{number}"
        serve = ["--model-path", str(folder), "--weights-cache-dir", str(kept)]
        read_s = read_once(folder / "model.safetensors")
        (first, _), (second, phases) = ready_s(serve, folder.parent, kept), ready_s(serve, folder.parent)
        bundled, _ = ready_s([], folder.parent)
        found.append(
            {"read_s": read_s, "first_ready_s": first, "ready_s": second, "bundled_ready_s": bundled, "phases": phases}
        )
    return found


def forget(path: Path) -> None:
    """Take a file, or the files below a folder, out of the page cache."""
    for file in path.rglob("*") if path.is_dir() else (path,):
        if file.is_file():
            opened = os.open(file, os.O_RDONLY)
            try:
                os.fsync(opened)  # pages that are not on the disk yet would stay
                os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(opened)


def read_once(file: Path) -> float:
    """Seconds, from the disk."""
    forget(file)
    buffer = memoryview(bytearray(READ_BYTES))
    started_at = time.perf_counter()
    with file.open("rb", buffering=0) as source:
        while source.readinto(buffer):
            pass
    return time.perf_counter() - started_at


def ready_s(serve: Sequence[str], place: Path, keeps: Path | None = None) -> tuple[float, dict[str, str]]:
    """Seconds, and what each process spent them on. Returns when weights are kept in `keeps`."""
    forget(place)
    started_at = time.perf_counter()
    with started(serve) as server:
        seconds = time.perf_counter() - started_at
        if keeps is not None:
            await_kept(keeps)
        return seconds, dict(server.phases)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
