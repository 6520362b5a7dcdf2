"""Logit processors: each is called once a step, for all rows that ask for it."""

from collections.abc import Sequence
from dataclasses import replace

from ramet.runtime.engine.extras import Command
from ramet.runtime.sampling.columns import Forget, ProcessorRow, ProcessorRows, SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows
from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest


class ProcessorMemory(RowFeature):
    """What a logit processor remembers of an output is forgotten when tokens are taken back, and at its end."""

    flag = RowFlag.PROCESSOR

    def taken_back(self, running: RunningRequest) -> Sequence[Command]:
        return (Forget(running.uid),)

    def end(self, running: RunningRequest) -> Sequence[Command]:
        return (Forget(running.uid),)


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    groups: dict[str, list[ProcessorRow]] = {}
    for at, running in draws.with_flag(RowFlag.PROCESSOR):
        request = running.request
        assert request.spec.processor is not None, running.uid
        asked = ProcessorRow(at, running.uid, request.params.custom_params or {}, request.prompt, running.output.copy())
        groups.setdefault(request.spec.processor, []).append(asked)
    return replace(columns, processors=tuple(ProcessorRows(name, tuple(group)) for name, group in groups.items()))
