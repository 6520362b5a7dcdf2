"""What a runner does for each kind of command and of question: the tables behind the types of extras.py.

A step without commands and questions calls nothing of this. N hidden size.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from ramet.runtime.arrays import Floats
from ramet.runtime.cache.pool import KVPool
from ramet.runtime.cache.routes import RouteTable
from ramet.runtime.cache.state_places import StateCopy
from ramet.runtime.engine.adapters import AdapterStore
from ramet.runtime.engine.extras import AdapterPlacement, Answer, HiddenRows, PromptLogprobs, SlotCopy
from ramet.runtime.engine.forward import ForwardResult
from ramet.runtime.engine.loaded import LoadedModel
from ramet.runtime.sampling.columns import Forget, PenaltyReset, PlaceLogprobs
from ramet.runtime.sampling.epilogue import Epilogue
from ramet.runtime.sampling.logprobs import LogprobKernel, logprobs_of_prompt

Commands = dict[type, Callable[[Any], None]]
Answers = Mapping[type, Callable[[ForwardResult, Any], Answer]]


def commands_of(model: LoadedModel, adapters: AdapterStore, epilogue: Epilogue) -> Commands:
    """Carry out what comes before a step."""
    return {
        SlotCopy: partial(_copy_slots, model.pool, model.routes),
        StateCopy: lambda copy: model.states.copy(copy.source, copy.target),
        AdapterPlacement: adapters.place,
        PenaltyReset: epilogue.reset_penalties,
        Forget: epilogue.forget,
    }


def answers_of(kernel: LogprobKernel) -> Answers:
    """Answer what is asked of the tokens that a step has computed."""
    return {PromptLogprobs: partial(_prompt_logprobs, kernel), HiddenRows: _hidden}


def _copy_slots(pool: KVPool, routes: RouteTable | None, copy: SlotCopy) -> None:
    source, target = torch.from_numpy(copy.source), torch.from_numpy(copy.target)
    pool.copy(source, target)
    if routes is not None:
        routes.copy(source, target)


def _prompt_logprobs(kernel: LogprobKernel, found: ForwardResult, ask: PromptLogprobs) -> PlaceLogprobs:
    return logprobs_of_prompt(kernel, found.logits, ask.first, ask.targets, ask.num_top, ask.ids)


def _hidden(found: ForwardResult, rows: HiddenRows) -> Floats:
    """[num, N], or their sum [1, N]; on the host."""
    states = found.states(torch.arange(rows.first, rows.first + rows.num)).float()
    kept: Floats = (states.sum(0, keepdim=True) if rows.summed else states).cpu().numpy()
    return kept
