"""Logit processors: each is called once a step, for all rows that ask for it."""

from dataclasses import replace

from ramet.runtime.sampling.columns import ProcessorRow, ProcessorRows, SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows
from ramet.runtime.scheduler.rows import RowFlag


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    groups: dict[str, list[ProcessorRow]] = {}
    for at, running in draws.with_flag(RowFlag.PROCESSOR):
        request = running.request
        assert request.spec.processor is not None, running.uid
        asked = ProcessorRow(at, running.uid, request.params.custom_params or {}, request.prompt, running.output.copy())
        groups.setdefault(request.spec.processor, []).append(asked)
    return replace(columns, processors=tuple(ProcessorRows(name, tuple(group)) for name, group in groups.items()))
