"""How the rows of a step sample: from seats to plain columns. Knows requests and their parameters, no logits.

A column that no row needs is absent, so that a request without penalties, biases and bans costs nothing for them.
"""

from typing import Any

import numpy as np

from ramet.ipc.params import SamplingParams
from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.request import Request
from ramet.runtime.sampling.columns import (
    REQUEST,
    LogitEntries,
    LogprobRow,
    Penalties,
    ProcessorRows,
    RequestView,
    SamplingColumns,
)
from ramet.runtime.scheduler.running import Seat

LEAST_REPETITION = 1e-6  # a repetition_penalty of 0 divides by this
HOTTEST = 1e30  # every token is as likely as any other long before; beyond float32's largest a banned one is NaN


def sampling_columns(seats: list[Seat], eos_ids: frozenset[int]) -> SamplingColumns:
    """One row for each seat that draws in this step."""
    requests = [seat.request for seat in seats]
    params = [request.params for request in requests]
    biased, biases = _biases(params)
    return SamplingColumns(
        temperature=np.array([0.0 if p.greedy else min(p.temperature, HOTTEST) for p in params], dtype=np.float32),
        top_k=np.array([max(p.top_k, 0) for p in params], dtype=np.int64),
        top_p=np.array([p.top_p for p in params], dtype=np.float32),
        min_p=np.array([p.min_p for p in params], dtype=np.float32),
        seeds=np.array([request.seed for request in requests], dtype=np.uint64),
        positions=np.array([request.num_output for request in requests], dtype=np.int64),
        penalties=_penalties(seats),
        biased=biased,
        biases=biases,
        processors=processor_rows(requests),
        banned=_banned(requests, eos_ids),
        logprobs=tuple(
            LogprobRow(i, request.spec.logprobs.num_top, np.array(request.spec.logprobs.ids, dtype=np.int32))
            for i, request in enumerate(requests)
            if request.spec.logprobs is not None
        ),
    )


def _penalties(seats: list[Seat]) -> Penalties | None:
    rows = [i for i, seat in enumerate(seats) if seat.penalty_slot is not None]
    if not rows:
        return None
    params = [seats[i].request.params for i in rows]
    return Penalties(
        rows=np.array(rows, dtype=np.int32),
        slots=np.array([seats[i].penalty_slot for i in rows], dtype=np.int32),
        frequency=np.array([p.frequency_penalty for p in params], dtype=np.float32),
        presence=np.array([p.presence_penalty for p in params], dtype=np.float32),
        repetition=np.array([max(p.repetition_penalty, LEAST_REPETITION) for p in params], dtype=np.float32),
    )


def _biases(params: list[SamplingParams]) -> tuple[LogitEntries | None, Floats | None]:
    """Where something is added to a logit, and how much."""
    rows = [i for i, p in enumerate(params) if p.logit_bias]
    if not rows:
        return None, None
    ids = np.array([token for i in rows for token, _ in params[i].logit_bias], dtype=np.int32)
    biases = np.array([bias for i in rows for _, bias in params[i].logit_bias], dtype=np.float32)
    return _entries(rows, [len(params[i].logit_bias) for i in rows], ids), biases


def _banned(requests: list[Request], eos_ids: frozenset[int]) -> LogitEntries | None:
    """What would end a request that has fewer than its min_new_tokens."""
    rows = [i for i, request in enumerate(requests) if request.num_output < request.params.min_new_tokens]
    stops = [_stop_ids(requests[i].params, eos_ids) for i in rows]
    if not any(stops):
        return None
    return _entries(rows, [len(ids) for ids in stops], np.array([t for ids in stops for t in ids], dtype=np.int32))


def processor_rows(requests: list[Request]) -> tuple[ProcessorRows, ...]:
    """One group for each logit processor that a row asks for."""
    rows_of: dict[str, list[int]] = {}
    for i, request in enumerate(requests):
        if request.spec.processor:
            rows_of.setdefault(request.spec.processor, []).append(i)
    return tuple(
        ProcessorRows(name, np.array(rows, dtype=np.int32), [_processor_params(requests[i]) for i in rows])
        for name, rows in rows_of.items()
    )


def _processor_params(request: Request) -> dict[str, Any]:
    if request.processor_prompt is None:
        request.processor_prompt = request.prompt.copy()
    view = RequestView(request.processor_prompt, request.output.copy(), request.processor_memory)
    return {**(request.params.custom_params or {}), REQUEST: view}


def _entries(rows: list[int], lengths: list[int], ids: Ints) -> LogitEntries:
    """rows[i] owns the next lengths[i] of the ids."""
    return LogitEntries(np.repeat(np.array(rows, dtype=np.int32), lengths), ids)


def _stop_ids(params: SamplingParams, eos_ids: frozenset[int]) -> list[int]:
    return sorted({*params.stop_token_ids, *(() if params.ignore_eos else eos_ids)})
