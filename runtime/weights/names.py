"""Where each tensor of a checkpoint goes, worked out from a family's map for the parameters that a model has."""

from collections.abc import Iterable
from dataclasses import dataclass

from ramet.runtime.models.weight_map import Pairs, WeightMap, WeightParts


@dataclass(frozen=True, slots=True)
class NamePart:
    """Rows [start, start + rows) of our parameter `name` are the whole of one tensor of the checkpoint."""

    name: str
    start: int
    rows: int
    pairs: Pairs | WeightParts | None = None  # in whose order they are there


def checkpoint_parts(parameters: Iterable[tuple[str, int]], weights: WeightMap) -> dict[str, NamePart]:
    """Checkpoint tensor -> where it goes, for our parameters, each a name ("layers.3.mlp.down.weight") and its rows."""
    parts: dict[str, NamePart] = {}
    for name, num_rows in parameters:
        parts |= _parts_of(name, num_rows, weights)
    return parts


def _parts_of(name: str, num_rows: int, weights: WeightMap) -> dict[str, NamePart]:
    module, _, kind = name.rpartition(".")
    if module in weights.top:
        return {f"{weights.top[module]}.{kind}": NamePart(name, 0, num_rows)}
    _, number, block = module.split(".", 2)
    outside, _, expert = block.rpartition(".")
    if expert.isdigit():
        block = f"{outside}.*"
    if block in weights.derived:
        return {}
    at, sources = f"model.layers.{number}", weights.of_layer(int(number))[block]

    def named(source: str) -> str:
        return ".".join(part for part in (at, source.replace("*", expert), kind) if part)

    if isinstance(sources, str):
        return {named(sources): NamePart(name, 0, num_rows)}
    parts, start = {}, 0
    for rows in sources:
        parts[named(rows.source)] = NamePart(name, start, rows.count, rows.pairs)
        start += rows.count
    assert start == num_rows, f"{name} has {num_rows} rows, its parts have {start}"
    return parts


def is_ignored(name: str, weights: WeightMap) -> bool:
    """Tensors that some checkpoints carry and that no parameter needs, as scales of keys and values that are cached."""
    return name.endswith(("rotary_emb.inv_freq", ".k_scale", ".v_scale")) or name.startswith(weights.ignored)
