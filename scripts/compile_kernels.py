"""Compile every configuration of the Triton kernels for each kind of card and print what each takes. Needs no GPU.

    python -m scripts.compile_kernels [--every N] [--capability 80 89 90 100] [--keep]

--keep: what attention takes is the table of docs/gpu.md from now on (bench/results/gpu_kernels.jsonl).

One JSON object a line for every Nth configuration (1): capability, kernel, flags, registers, shared, stack, local,
programs, copies, products. Decides which configurations there are; the modules of kernels/ launch these and no others.
`registers` are of a thread; `shared`, `stack` and `local` are bytes, and what spills takes `stack` and `local`.
`programs` a multiprocessor holds at once. `copies` are asynchronous ones of 16 bytes into shared memory, `products`
instructions of the tensor cores, both as PTX has them.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ramet.bench import report, stamp
from ramet.kernels import (
    decode_attention,
    delta_net,
    extend_attention,
    gated,
    grouped_linear,
    latent_attention,
    linear_fp8,
    linear_int4,
    norms,
    rope,
    shared_attention,
    step_rows,
    triton_parts,
    tuned,
)
from ramet.kernels import logits_epilogue as epilogue
from ramet.kernels.int4_words import GROUPS
from ramet.kernels.tuned import Processor

FLOATS = ("fp32", "bf16", "fp16")
TYPES = {
    **dict.fromkeys(("stride", "vocab", "words", "num_blocks", "out_stride"), "i32"),
    **dict.fromkeys(("slots", "bias_starts", "bias_ids", "ban_starts", "ban_ids", "masks", "seen", "allowed"), "*i32"),
    **dict.fromkeys(("table_rows", "lengths", "next_ids"), "*i32"),
    **dict.fromkeys(("seeds", "positions", "tokens", "top_k"), "*i64"),
    **dict.fromkeys(("places", "packed"), "*i32"),
    **dict.fromkeys(("scales", "zeros"), "*fp16"),
    "counts": "*u8",
    "finite": "*i1",
    **{f"{name}_stride": "i32" for name in ("q", "new", "slot", "table", "x", "turned")},
    **dict.fromkeys(("q_head", "turned_head"), "i32"),
    **dict.fromkeys(("num", "num_rows", "heads", "kv_heads", "size", "head_dim", "half", "window"), "i32"),
    **dict.fromkeys(("num_tokens", "num_in", "num_out"), "i32"),
    **dict.fromkeys(("scale", "cap", "eps", "alpha", "limit"), "fp32"),
    **dict.fromkeys(("table", "rows", "seq_lens", "items", "num_items", "arrived", "firsts", "num_new"), "*i32"),
    **dict.fromkeys(("block_rows", "block_starts", "tile_rows", "tile_starts", "relayed", "position_offsets"), "*i32"),
    **dict.fromkeys(("leaders", "members", "shared", "own_chunks", "key_ends"), "*i32"),
    **dict.fromkeys(("ids", "rope_positions", "new_slots", "experts"), "*i64"),
    **dict.fromkeys(("num_routes", "num_tiles", "num_experts"), "i32"),
    **dict.fromkeys(("order", "ends"), "*i32"),
    **dict.fromkeys(("row_of", "save_at", "save_to"), "*i32"),
    **dict.fromkeys(("gates_stride", "saves", "key_heads", "value_heads", "key", "value", "channels"), "i32"),
}  # the others are *fp32
OF_THE_MODEL = (
    "logits", "q", "k", "v", "k_new", "v_new", "keys", "values", "x", "residual", "weight", "q_weight",
    "k_weight", "gate_up", "bias", "turned", "gates", "conv", "last", "read",
)  # fmt: skip
HALVES, FP8 = ("bf16", "fp16"), "fp8e4nv"
MIN_FP8 = 89  # capability
ATTENTION = ("_decode", "_extend", "_shared")
LATENTS = ((16, 512, 64), (20, 512, 64), (128, 512, 64), (40, 256, 32))  # heads, numbers of a latent and of what turns
USAGE = {"registers": "REG", "stack": "STACK", "local": "LOCAL"}
SEEN = {
    "copies": r"cp\.async\.cg\.shared\.global [^;]*, 0x10",
    "products": r"(?:wgmma\.mma|mma\.sync|tcgen05\.mma)",
}  # in PTX
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


def attention(processor: Processor) -> Iterator[tuple[Any, str, Flags]]:
    """Decode and extend, for head sizes and groups that models have."""
    of = {"LOG2_E": triton_parts.LOG2_E, "INTERPRETED": False}
    plain = product(
        HALVES, ((64, 7), (80, 1), (128, 4), (128, 8), (256, 2), (512, 8)),
        ((False, False), (True, False), (True, True)), ((False, None),),
    )  # fmt: skip
    caches = (None,) if processor.capability < MIN_FP8 else (None, FP8)
    further = product(("bf16",), ((64, 8), (128, 4)), ((False, False), (True, False)), product((False, True), caches))
    for kind, (head_dim, group), (windowed, capped), (sinks, cache) in chain(plain, further):
        heads = {"GROUP": group, "KV_HEADS": 8, "D": head_dim, "D_PAD": triton_parts.padded(head_dim), "cache": cache}
        rule = {"WINDOWED": windowed, "CAPPED": capped, "SINKS": sinks, **of}
        few = tuned.decode_tuning(head_dim, processor, float8=cache == FP8)
        many, together = tuned.extend_tuning(head_dim, processor), tuned.shared_tuning(head_dim, processor)
        lanes = triton_parts.padded(group)
        yield decode_attention._decode, kind, {
            **heads, **rule, "SHARING": not windowed, "SPLITS": decode_attention.SPLITS, "LANES": lanes,
            "BLOCK": few.block, "STAGES": few.stages, "num_warps": few.warps,
        }  # fmt: skip
        if not windowed:
            of_rows = {name: flag for name, flag in rule.items() if name not in ("WINDOWED", "SINKS")}
            yield shared_attention._shared, kind, {
                **heads, **of_rows, "SPLITS": decode_attention.SPLITS, "LANES": together.queries,
                "BLOCK": together.block, "STAGES": together.stages, "num_warps": together.warps,
            }  # fmt: skip
        for ahead in (False, True):
            yield extend_attention._extend, kind, {
                **heads, **rule, "TOKENS": many.queries // group, "PARTS": 1, "LANES": many.queries,
                "BLOCK": many.block, "STAGES": many.stages, "AHEAD": ahead,
                **tuned.launched(many.warps, head_dim, ahead),
            }  # fmt: skip


def latents(processor: Processor) -> Iterator[tuple[Any, str, Flags]]:
    """Attention of DeepSeek-V2-Lite and V3; 20 and 40 heads fill no tile. In float32 tiles are others."""
    for kind, (heads, latent, rotated) in product(FLOATS, LATENTS):
        itemsize = 4 if kind == "fp32" else 2
        of = {
            "HEADS": heads, "L": latent, "L_PAD": triton_parts.padded(latent), "P": rotated,
            "P_PAD": triton_parts.padded(rotated), "LOG2_E": triton_parts.LOG2_E, "INTERPRETED": False,
        }  # fmt: skip
        lanes = latent_attention.latent_lanes(heads, itemsize)
        few = tuned.latent_decode_tuning(lanes, itemsize, processor)
        yield latent_attention._decode_latents, kind, {
            **of, "TILE": latent_attention.heads_of_tile(heads, lanes), "LANES": lanes, "BLOCK": few.block,
            "STAGES": few.stages, "SPLITS": decode_attention.SPLITS, **tuned.launched(few.warps, latent),
        }  # fmt: skip
        many = tuned.latent_extend_tuning(itemsize, processor)
        yield latent_attention._extend_latents, kind, {
            **of, "TILE": latent_attention.heads_of_tile(heads, many.queries),
            "TOKENS": latent_attention.tokens_of_latent_tile(heads, many), "LANES": many.queries, "BLOCK": many.block,
            "STAGES": many.stages, **tuned.launched(many.warps, latent),
        }  # fmt: skip


def small_ops(processor: Processor) -> Iterator[tuple[Any, str, Flags]]:
    yield decode_attention._plan, "bf16", {**decode_attention.CUTS, "num_warps": 4}
    compared = {"COMPARED": shared_attention.COMPARED}
    yield shared_attention._lead, "bf16", {**decode_attention.CUTS, **compared, "num_warps": 4}
    for per_tile in (8, 16, 64):
        least = {"PER_TILE": per_tile, "MIN_NUM": shared_attention.MIN_SHARERS}
        yield shared_attention._group, "bf16", {**decode_attention.CUTS, **least, "num_warps": 4}
    yield step_rows._take_in, "bf16", {"BLOCK": step_rows.BLOCK, "num_warps": 4}
    yield gated._softcap, "fp32", {"BLOCK": gated.BLOCK, "num_warps": 4}
    for kind in HALVES:
        for weight, add, block in product((kind, "fp32"), (False, True), (1024, 4096, 8192)):
            flags = {"norm": weight, "ADD": add, "INTERPRETED": False, "BLOCK": block}
            yield norms._norm, kind, {**flags, "num_warps": norms.warps_of(block)}
        heads = {"INTERPRETED": False, "num_warps": 4}
        for half, rest, normed in product((32, 64, 128), (0, 64), (False, True)):
            turned = {"HEADS": rope.HEADS, "BLOCK": half, "REST": rest, "NORMED": normed}
            turned |= {"VALUES": normed, "norm": "fp32" if normed else kind}
            yield rope._place, kind, {**heads, **turned}
            if processor.capability >= MIN_FP8:
                yield rope._place, kind, {**heads, **turned, "cache": FP8}
        for activation in (gated.SILU, gated.GELU, gated.GELU_TANH, gated.CLAMPED):
            yield gated._gated, kind, {**heads, "KIND": activation, "BLOCK": gated.BLOCK}


def linears(processor: Processor) -> Iterator[tuple[Any, str, Flags]]:
    """Layers of 4-bit and float8 weights."""
    for kind, block in product(HALVES, (1024, 4096, 16384)) if processor.capability >= MIN_FP8 else ():
        rounds = {"BLOCK": block, "INTERPRETED": False, "num_warps": linear_fp8.WARPS, "cache": FP8}
        yield linear_fp8._round_rows, kind, rounds
    for kind, group in product(HALVES, GROUPS):
        cut = linear_int4.cuts(group) | {"INTERPRETED": False}
        for tokens, biased in product(linear_int4.TOKENS, (False, True)):
            flags = {"TOKENS": tokens, "STAGES": linear_int4.STAGES, "BIASED": biased, "num_warps": linear_int4.WARPS}
            yield linear_int4._linear, kind, {**cut, **flags}
        yield linear_int4._widen, kind, {**cut, "num_warps": linear_int4.WARPS}


def experts(processor: Processor) -> Iterator[tuple[Any, str, Flags]]:
    """Layers of experts: Mixtral's, Qwen3-MoE's and those of GPT-OSS, which have biases."""
    yield grouped_linear._sort, "bf16", {"ROUTES": grouped_linear.ROUTES, "num_warps": 4}
    for kind in HALVES:
        of = {"INTERPRETED": False, "BLOCK": grouped_linear.SUMMED, "num_warps": 4}
        for per_token in (2, 4, 8):
            yield grouped_linear._combine, kind, {**of, "PER_TOKEN": per_token}
        sizes = ((8, 2, 4096, 28672, False), (128, 8, 2048, 1536, False), (32, 4, 2880, 5760, True))
        for (num, per_token, num_in, num_out, biased), tuning in product(sizes, tuned.GROUPED[processor]):
            for scatter, (n, m) in ((False, (num_in, num_out)), (True, (num_out // 2, num_in))):
                yield grouped_linear._grouped, kind, {
                    "PER_TOKEN": per_token, "SCATTER": scatter, **grouped_linear.cut(num, n, m, tuning),
                    "BIASED": biased, "INTERPRETED": False, **tuned.launched(tuning.warps),
                }  # fmt: skip


def states(processor: Processor) -> Iterator[tuple[Any, str, Flags]]:
    """Layers with a state: heads of Qwen3-Next and Qwen3.5, and small and large ones."""
    padded = triton.next_power_of_2
    for kind, (key, value, heads), taps in product(HALVES, ((128, 128, 32), (64, 64, 16), (256, 128, 48)), (2, 4)):
        of = {"TAPS": taps, "INTERPRETED": False}
        brings = {"GATES": padded(heads), "BLOCK": padded(max(key, value)), "num_warps": 1}
        yield delta_net._bring, kind, {**of, **brings}
        cut = {"ROWS": padded(key), "COLUMNS": delta_net.COLUMNS, "CHANNELS": delta_net.CHANNELS}
        yield delta_net._advance, kind, {**of, **cut, "num_warps": delta_net.warps_of(padded(key))}
        if taps == 4:
            yield delta_net._normed, kind, {"BLOCK": padded(value), "INTERPRETED": False, "num_warps": 1}


def compiled(processor: Processor, kernel: Any, kind: str, constants: Flags) -> dict[str, Any]:
    """How it is launched is no constant of the kernel's, nor are `cache`, the type of keys and values in the pool, and
    `norm`, that of the weights of norms.
    """
    launched, cache, norm = {"num_warps": epilogue.WARPS}, constants.get("cache"), constants.get("norm")
    launched |= {name: constants[name] for name in tuned.launched(1) if name in constants}
    flags = {name: value for name, value in constants.items() if name not in (*launched, "cache", "norm")}
    names = [name for name in kernel.arg_names if name not in flags]
    signature = {name: TYPES.get(name, "*fp32") for name in names} | dict.fromkeys(flags, "constexpr")
    own = OF_THE_MODEL if "values" not in signature or "keys" in signature else ("logits",)  # `_cut` has values, too
    signature |= {name: f"*{kind}" for name in own if name in signature}
    if cache is not None:
        signature |= dict.fromkeys(("keys", "values"), f"*{cache}")
    if norm is not None:
        signature |= {name: f"*{norm}" for name in ("weight", "q_weight", "k_weight") if name in signature}
    if "out" in signature and kernel.fn.__module__ != epilogue.__name__:
        signature["out"] = f"*{kind}"
    if kernel.fn is linear_fp8._round_rows.fn:
        signature |= {"out": f"*{FP8}", "scales": "*fp32"}
    if kernel.fn is gated._softcap.fn:
        signature["x"] = "*fp32"
    aligned = {(place,): [["tt.divisibility", 16]] for place, name in enumerate(kernel.arg_names) if name in names}
    source = ASTSource(kernel, {name: signature[name] for name in kernel.arg_names}, flags, aligned)
    target = GPUTarget("cuda", processor.capability, 32)
    made = triton.compile(source, target=target, options=launched)
    used, shared = resources(made.asm["cubin"]), made.metadata.shared
    warps = launched["num_warps"]
    return {
        "capability": processor.capability, "kernel": kernel.fn.__name__, "type": kind, "cache": cache or kind,
        **flags, "warps": warps, "shared": shared, **used,
        "programs": processor.programs(warps, used["registers"], shared),
        **{name: len(re.findall(x, made.asm["ptx"])) for name, x in SEEN.items()},
    }  # fmt: skip


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
    parser = argparse.ArgumentParser(
        prog="python -m scripts.compile_kernels", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    capabilities = [each.capability for each in tuned.PROCESSORS]
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth configuration; default 1")
    parser.add_argument(
        "--capability", type=int, nargs="+", choices=capabilities, default=capabilities, help="default: all"
    )
    parser.add_argument("--keep", action="store_true", help="into bench/results/gpu_kernels.jsonl")
    options = parser.parse_args()
    found = []
    with ThreadPoolExecutor(2) as pool:
        for processor in (each for each in tuned.PROCESSORS if each.capability in options.capability):
            kinds = attention, latents, small_ops, linears, experts, states
            every = chain(configurations(), *(of(processor) for of in kinds))
            each = islice(every, 0, None, options.every)
            for line in pool.map(lambda one, processor=processor: compiled(processor, *one), each):
                print(json.dumps(line), flush=True)
                found.append(line)
    if options.keep:
        named = [name for name in sys.argv[1:] if name != "--keep"]
        kept = [line for line in found if line["kernel"] in ATTENTION and line["type"] == "bf16"]
        stamped = stamp.stamp(["python", "-m", "scripts.compile_kernels", *named])
        report.append_line(report.results_file("gpu_kernels"), {"bench": "gpu.kernels", **stamped, "kernels": kept})
    return 0


if __name__ == "__main__":
    sys.exit(main())
