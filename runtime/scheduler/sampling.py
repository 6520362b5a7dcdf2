"""How the rows of a step sample: from the row table to plain columns. Knows requests and their parameters, no logits.

A column that no row needs is absent, so that a request without penalties, biases and bans costs nothing for them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from ramet.ipc.params import SamplingParams
from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.sampling.columns import (
    LogitEntries,
    LogprobRow,
    Penalties,
    ProcessorRow,
    ProcessorRows,
    SamplingColumns,
)
from ramet.runtime.scheduler.rows import RowFlag, RowTable
from ramet.runtime.scheduler.running import RunningRequest, RunningSet

Indices = npt.NDArray[np.signedinteger[Any]]


def sampling_columns(running: RunningSet, rows: Ints, eos_ids: frozenset[int]) -> SamplingColumns:
    """One entry for each of `rows` [Q], which draw in this step. Every array is a copy."""
    table = running.table
    flags, num_output = table.flags[rows], table.planned_totals[rows] - table.prompt_lens[rows]
    biased, biases = _biases(running, rows, np.flatnonzero(flags & RowFlag.BIAS))
    return SamplingColumns(
        temperature=table.temperature[rows],
        top_k=table.top_k[rows],
        top_p=table.top_p[rows],
        min_p=table.min_p[rows],
        seeds=table.seeds[rows],
        positions=num_output.astype(np.int64),
        penalties=_penalties(table, rows),
        biased=biased,
        biases=biases,
        processors=_processors([(int(i), running.at(rows[i])) for i in np.flatnonzero(flags & RowFlag.PROCESSOR)]),
        banned=_banned(running, rows, np.flatnonzero(num_output < table.min_new[rows]), eos_ids),
        logprobs=tuple(_logprob_row(int(i), running.at(rows[i])) for i in np.flatnonzero(flags & RowFlag.LOGPROBS)),
    )


def _penalties(table: RowTable, rows: Ints) -> Penalties | None:
    slots = table.penalty_slots[rows]
    at = np.flatnonzero(slots).astype(np.int32)
    if not len(at):
        return None
    own = rows[at]
    return Penalties(at, slots[at], table.frequency[own], table.presence[own], table.repetition[own])


def _biases(running: RunningSet, rows: Ints, at: Indices) -> tuple[LogitEntries | None, Floats | None]:
    """Where something is added to a logit, and how much."""
    if not len(at):
        return None, None
    given = [running.at(rows[i]).request.params.logit_bias for i in at]
    ids = np.array([token for biases in given for token, _ in biases], dtype=np.int32)
    values = np.array([bias for biases in given for _, bias in biases], dtype=np.float32)
    return _entries(at, [len(biases) for biases in given], ids), values


def _banned(running: RunningSet, rows: Ints, at: Indices, eos_ids: frozenset[int]) -> LogitEntries | None:
    """What would end a request that has fewer than its min_new_tokens."""
    stops = [_stop_ids(running.at(rows[i]).request.params, eos_ids) for i in at]
    if not any(stops):
        return None
    return _entries(at, [len(ids) for ids in stops], np.array([t for ids in stops for t in ids], dtype=np.int32))


def _logprob_row(at: int, running: RunningRequest) -> LogprobRow:
    asked = running.request.spec.logprobs
    assert asked is not None, running.uid
    return LogprobRow(at, asked.num_top, np.array(asked.ids, dtype=np.int32))


def _processors(rows: list[tuple[int, RunningRequest]]) -> tuple[ProcessorRows, ...]:
    """One group for each logit processor that a row asks for."""
    groups: dict[str, list[ProcessorRow]] = {}
    for at, running in rows:
        request = running.request
        assert request.spec.processor is not None, running.uid
        asked = ProcessorRow(at, running.uid, request.params.custom_params or {}, request.prompt, running.output.copy())
        groups.setdefault(request.spec.processor, []).append(asked)
    return tuple(ProcessorRows(name, tuple(group)) for name, group in groups.items())


def _entries(rows: Indices, lengths: list[int], ids: Ints) -> LogitEntries:
    """rows[i] owns the next lengths[i] of the ids."""
    return LogitEntries(np.repeat(rows.astype(np.int32), lengths), ids)


def _stop_ids(params: SamplingParams, eos_ids: frozenset[int]) -> list[int]:
    return sorted({*params.stop_token_ids, *(() if params.ignore_eos else eos_ids)})
