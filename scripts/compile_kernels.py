"""Compile every configuration of the Triton kernels for Hopper (sm_90) and print what each takes. Needs no GPU.

    python -m scripts.compile_kernels [--every N]    every Nth configuration (1), one JSON object a line: kernel, flags,
                                                     registers, shared, stack, local

Decides which configurations there are; kernels/logits_epilogue.py launches these and no others. `registers` are of
a thread; `shared`, `stack` and `local` are bytes, and what spills takes the last two.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, product
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ramet.kernels import logits_epilogue as epilogue

TARGET = GPUTarget("cuda", 90, 32)
FLOATS = ("fp32", "bf16", "fp16")
TYPES = {
    **dict.fromkeys(("stride", "vocab", "words", "num_blocks", "out_stride"), "i32"),
    **dict.fromkeys(("slots", "bias_starts", "bias_ids", "ban_starts", "ban_ids", "masks", "seen", "allowed"), "*i32"),
    **dict.fromkeys(("table_rows", "lengths", "next_ids"), "*i32"),
    **dict.fromkeys(("seeds", "positions", "tokens", "top_k"), "*i64"),
    "places": "*i32",
    "counts": "*u8",
    "finite": "*i1",
}  # the others are *fp32
USAGE = {"registers": "REG", "stack": "STACK", "local": "LOCAL"}
Flags = dict[str, Any]


def configurations() -> Iterator[tuple[Any, str, Flags]]:
    """(kernel, type of the logits, constants)"""
    block = {"BLOCK": epilogue.BLOCK}

    def adjust(penalise: bool, mask: bool, write: bool, floor: bool) -> Flags:
        return {"PENALISE": penalise, "MASK": mask, "WRITE": write, "FLOOR": floor, **block}

    def draw(penalise: bool, mask: bool, floor: bool, logprobs: bool, count: bool) -> Flags:
        flags = {"PENALISE": penalise, "MASK": mask, "FLOOR": floor, "LOGPROBS": logprobs, "COUNT": count}
        return flags | block | {"BLOCKS": 32}

    for kind, penalise in product(FLOATS, (False, True)):
        for write, floor in ((False, False), (True, False), (False, True)):
            yield epilogue._adjust, kind, adjust(penalise, True, write, floor)
    yield epilogue._adjust, "fp32", adjust(True, False, True, False)  # before a logit processor
    for floor in (False, True):
        yield epilogue._adjust, "fp32", adjust(False, False, False, floor)  # after a cut by rank
    for kind, floor in product(FLOATS, (False, True)):
        for penalise, count in ((False, False), (True, True), (False, True)):
            yield epilogue._draw, kind, draw(penalise, True, floor, floor, count)
    for floor, count in product((False, True), (False, True)):
        yield epilogue._draw, "fp32", draw(False, False, floor, True, count)
    for blocks in (8, 32):
        yield epilogue._cut, "fp32", {**block, "BLOCKS": blocks}


def compiled(kernel: Any, kind: str, flags: Flags) -> dict[str, Any]:
    names = [name for name in kernel.arg_names if name not in flags]
    signature = {name: TYPES.get(name, "*fp32") for name in names} | dict.fromkeys(flags, "constexpr")
    if "logits" in signature:
        signature["logits"] = f"*{kind}"
    aligned = {(place,): [["tt.divisibility", 16]] for place, name in enumerate(kernel.arg_names) if name in names}
    source = ASTSource(kernel, {name: signature[name] for name in kernel.arg_names}, flags, aligned)
    made = triton.compile(source, target=TARGET, options={"num_warps": epilogue.WARPS})
    what = {"kernel": kernel.fn.__name__, "logits": kind, **flags, "shared": made.metadata.shared}
    return what | resources(made.asm["cubin"])


def resources(cubin: bytes) -> dict[str, int]:
    """What the assembler has given a kernel."""
    dump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(dump), "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(re.findall(rf"{key}:(\d+)", said)[0]) for name, key in USAGE.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.compile_kernels")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    every = parser.parse_args().every
    with ThreadPoolExecutor(2) as pool:
        for line in pool.map(lambda each: compiled(*each), islice(configurations(), 0, None, every)):
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
