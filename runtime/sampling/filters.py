"""Sampling parameters that leave tokens out of the rows that ask for them: one file and one entry of FILTERS each.

A new one needs a field of ipc/params.py that is marked `filters=True`, its arithmetic here, the fields of the requests
that carry it (runtime/intake/specs.py), and a test against an oracle. Everything between carries filters by name.

Decides where they apply: after every mask, before the draw, which then measures top_k, top_p and min_p among the tokens
that stay. Log-probabilities are those before. A step in which no row asks for one calls nothing of this.
F rows that ask for one filter, V vocabulary.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from ramet.runtime.sampling.columns import FilterRows, SamplingColumns
from ramet.runtime.sampling.typical_p import typical

# log-probabilities [F, V] float32 at the rows' temperatures, values [F] float32 -> [F, V] bool: the tokens that stay
Filter = Callable[[Tensor, Tensor], Tensor]
FILTERS: dict[str, Filter] = {"typical_p": typical}  # in the order in which they apply


def filtered_draw(
    logits: Tensor,
    columns: SamplingColumns,
    draw: Callable[[], tuple[Tensor, Tensor]],
    filters: Mapping[str, Filter] = FILTERS,
) -> tuple[Tensor, Tensor]:
    """What `draw` gives from the tokens that stay. logits [Q, V] float32 are WRITTEN, and as before afterwards."""
    by_name = {each.name: each for each in columns.filters}
    rows = _index(np.unique(np.concatenate([each.rows for each in columns.filters])), logits)
    before = logits[rows]
    for name, stays in filters.items():
        if name in by_name:
            _leave_out(logits, columns, by_name[name], stays)
    drawn = draw()
    logits[rows] = before
    return drawn


def _leave_out(logits: Tensor, columns: SamplingColumns, asked: FilterRows, stays: Filter) -> None:
    """WRITES logits [Q, V]. A row that is broken stays as it is, so that it is still known to be broken."""
    rows, values = _index(asked.rows, logits), torch.from_numpy(asked.values).to(logits.device)
    temperature = torch.from_numpy(columns.draw_params.temperature[asked.rows]).to(logits.device)
    own = logits[rows]
    broken = ~torch.isfinite(own.max(dim=-1, keepdim=True).values)
    kept = stays(torch.log_softmax(own / temperature[:, None], dim=-1), values)
    logits[rows] = torch.where(kept | broken, own, -torch.inf)


def _index(rows: "np.ndarray[tuple[int], np.dtype[np.int32]]", logits: Tensor) -> Tensor:
    return torch.from_numpy(rows).to(logits.device).long()
