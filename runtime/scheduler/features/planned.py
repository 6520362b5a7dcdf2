"""Which features add to a step, and for which bits of its rows.

request_feature.py says where else a new feature is named.
"""

from ramet.runtime.scheduler.batch import AddRows, Plan, PlannedByBit
from ramet.runtime.scheduler.features import (
    adapters,
    biases,
    embeds,
    filters,
    hidden,
    logprobs,
    masked_rows,
    media_rows,
    min_new_tokens,
    penalties,
    position_offsets,
    processors,
)
from ramet.runtime.scheduler.features.states import RowStates
from ramet.runtime.scheduler.row_flag import RowFlag

OF_PROMPTS: tuple[tuple[int, Plan], ...] = (  # of steps with prefills
    (RowFlag.LOGPROBS, logprobs.plan),
    (RowFlag.EMBEDS, embeds.plan),
    (RowFlag.MEDIA, media_rows.plan),
)
OF_ROWS: tuple[tuple[int, Plan], ...] = (  # of every step
    (RowFlag.HIDDEN, hidden.plan),
    (RowFlag.SHIFTED, position_offsets.plan),
    (RowFlag.ADAPTER, adapters.plan),
)
OF_DRAWS: tuple[tuple[int, AddRows], ...] = (  # in this order: log-probabilities look at what is healed
    (RowFlag.PENALTIES, penalties.add_rows),
    (RowFlag.BIAS, biases.add_rows),
    (RowFlag.FILTERED, filters.add_rows),
    (RowFlag.PROCESSOR, processors.add_rows),
    (RowFlag.MIN_NEW, min_new_tokens.add_rows),
    (RowFlag.MASKED, masked_rows.add_rows),
    (RowFlag.HEALING, masked_rows.add_healed),
    (RowFlag.LOGPROBS, logprobs.add_rows),
)


def planned_by_bit(states: RowStates | None) -> PlannedByBit:
    """`states`: of a model whose layers have them."""
    of_states = () if states is None else ((RowFlag.STATES, states.plan),)
    return PlannedByBit(OF_PROMPTS, (*OF_ROWS, *of_states), OF_DRAWS)
