"""The kernels of a GPU, computed by their oracles in plain torch, as launches of a recording device.

What an oracle is given is read when it is launched or replayed, so a graph of it serves rows of any length.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from recording_device import DeviceTensor, RecordingDevice
from torch import Tensor
from torch.utils._pytree import tree_flatten

from ramet.kernels import gpu_ops, logits_epilogue, reference, reference_latent
from ramet.kernels.attention_call import AttendCall, Extends
from ramet.kernels.decode_attention import DecodeScratch
from ramet.kernels.epilogue_rows import DrawnRows, EpilogueRows, EpilogueState
from ramet.kernels.reference_delta import DeltaShape, DeltaStates, DeltaWeights, PlacedRows, StateRows
from ramet.kernels.step_rows import StepColumns
from ramet.runtime.attention import latent_triton
from ramet.runtime.attention import triton as attention
from ramet.runtime.engine.devices import cuda_graphs as graphs

OF_TORCH = (  # their oracles launch torch's ops
    "rms_norm", "add_rms_norm", "silu_mul", "gelu_mul", "clamped_mul", "softcap",
)  # fmt: skip


def take_in(
    columns: StepColumns, next_ids: Tensor, lengths: Tensor, ids: Tensor, positions: Tensor, rope_positions: Tensor,
    table: Tensor,
) -> None:  # fmt: skip
    own, at = columns.rows.long(), columns.relayed != 0
    lengths[own[~at]] = columns.seq_lens[~at]
    ids[at] = next_ids[own[at]].long()
    positions[at] = lengths[own[at]].long() - 1
    rope_positions.copy_(positions - columns.position_offsets)
    table[own, positions] = columns.slots.int()


def plan_decode(rows: Tensor, seq_lens: Tensor, scratch: DecodeScratch) -> None:
    num = len(rows)
    scratch.num_items.fill_(num)
    scratch.items[:num, 0], scratch.items[:num, 1] = rows, seq_lens


def decode_attention(call: AttendCall, out: Tensor, scratch: DecodeScratch, shares: bool = False) -> None:
    num = int(scratch.num_items)
    rows, lens = (scratch.items[:num, column].tolist() for column in (0, 1))
    out[:num] = reference.extend_attention(call.of_tokens(slice(num)), rows, [1] * num, lens)


def extend_attention(
    call: AttendCall, rows: Extends, out: Tensor, *, tile: int, key_ends: Tensor | None = None
) -> None:
    for row, first, new, length in zip(*(column.tolist() for column in rows[:4]), strict=True):
        own = slice(first, first + new)
        if new:  # the row that padding tiles belong to has none
            ends = None if key_ends is None else key_ends[own]
            out[own] = reference.extend_attention(call.of_tokens(own), [row], [new], [length], ends)


def decode_latents(
    q: Tensor, turned: Tensor, keys: Tensor, table: Tensor, out: Tensor, scratch: DecodeScratch, scale: float
) -> None:
    num = int(scratch.num_items)
    rows, lens = scratch.items[:num, 0].long(), scratch.items[:num, 1].tolist()
    meeting = torch.cat((q, turned), dim=-1)
    out.copy_(reference_latent.latent_attention(meeting, keys, q.shape[2], table[rows], [1] * num, lens, scale))


def extend_latents(
    q: Tensor, turned: Tensor, keys: Tensor, table: Tensor, rows: Extends, out: Tensor, scale: float
) -> None:
    meeting = torch.cat((q, turned), dim=-1)
    for row, first, new, length in zip(*(column.tolist() for column in rows[:4]), strict=True):
        own = slice(first, first + new)
        if new:  # the row that padding tiles belong to has none
            asked = table[row : row + 1], [new], [length], scale
            out[own] = reference_latent.latent_attention(meeting[own], keys, q.shape[2], *asked)


def nothing(*_: Any) -> None:
    """What rows share is computed for each."""


def launching(run: Callable[..., Any]) -> Callable[..., None]:
    """An oracle that returns nothing, as a launch."""

    def launch(*args: Any, **kwargs: Any) -> None:
        tensors = [each for each in tree_flatten((opened(args), opened(kwargs)))[0] if isinstance(each, DeviceTensor)]
        RecordingDevice.current().launch(run.__name__, tensors, lambda: run(*inside(args), **inside(kwargs)))

    return launch


def epilogue(logits: Tensor, rows: EpilogueRows, state: EpilogueState, adjusted: bool = False) -> DrawnRows:
    num = len(logits)
    made = DrawnRows(
        torch.empty(num, dtype=torch.int64, device=logits.device),
        torch.empty(num, dtype=torch.float32, device=logits.device),
        torch.empty(num, dtype=torch.bool, device=logits.device),
    )
    _draw(logits, rows, state, adjusted, made)
    return made


@launching
def _draw(logits: Tensor, rows: EpilogueRows, state: EpilogueState, adjusted: bool, made: DrawnRows) -> None:
    if not len(state.allowed):
        state = replace(state, allowed=state.allowed.new_zeros(0, state.seen.shape[1]))
    drawn = reference.logits_epilogue(logits, rows, state, adjusted)
    for each in fields(made):
        getattr(made, each.name).copy_(getattr(drawn, each.name))


def delta_net(
    x: Tensor, gates: Tensor, of: DeltaShape, weights: DeltaWeights, states: DeltaStates, at: StateRows
) -> Tensor:
    made = torch.empty((len(x), of.values), dtype=x.dtype, device=x.device)
    assert at.placed is not None, "rows of states are read on the device"
    _delta_net(x, gates, of, weights, states, at.placed, made)
    return made


@launching
def _delta_net(
    x: Tensor,
    gates: Tensor,
    of: DeltaShape,
    weights: DeltaWeights,
    states: DeltaStates,
    placed: PlacedRows,
    made: Tensor,
) -> None:
    columns = placed.rows, placed.num_new, placed.seq_lens, placed.save_at, placed.save_to
    rows = StateRows(*(column.numpy().copy() for column in columns))
    made.copy_(reference.delta_net(x, gates, of, weights, states, rows))


def opened(tree: Any) -> Any:
    """Dataclasses as tuples of their fields, where tensors are found."""
    if isinstance(tree, (tuple, list)):
        return [opened(each) for each in tree]
    if isinstance(tree, dict):
        return [opened(each) for each in tree.values()]
    if is_dataclass(tree):
        return [opened(getattr(tree, each.name)) for each in fields(tree)]
    return tree


def inside(tree: Any) -> Any:
    """The same with what lies inside tensors of the device."""
    if isinstance(tree, DeviceTensor):
        return tree.inner
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*map(inside, tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map(inside, tree))
    if isinstance(tree, dict):
        return {name: inside(each) for name, each in tree.items()}
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{each.name: inside(getattr(tree, each.name)) for each in fields(tree)})
    return tree


def use_oracles(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the Triton kernels."""
    for name in OF_TORCH:
        monkeypatch.setattr(gpu_ops, name, getattr(reference, name))
    monkeypatch.setattr(gpu_ops, "norm_rope_store", launching(reference.norm_rope_store))
    monkeypatch.setattr(gpu_ops, "delta_net", delta_net)
    monkeypatch.setattr(graphs, "take_in", launching(take_in))
    for name, run in (
        ("plan_decode", plan_decode),
        ("decode_attention", decode_attention),
        ("extend_attention", extend_attention),
    ):
        monkeypatch.setattr(attention, name, launching(run))
    for each in (decode_latents, extend_latents):
        monkeypatch.setattr(latent_triton, each.__name__, launching(each))
    for name in ("plan_shared", "shared_attention"):
        monkeypatch.setattr(attention, name, nothing)
    monkeypatch.setattr(logits_epilogue, "adjust_logits", launching(reference.adjust_logits))
    monkeypatch.setattr(logits_epilogue, "logits_epilogue", epilogue)
