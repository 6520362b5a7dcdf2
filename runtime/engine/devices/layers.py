"""What layers attend to, in words for the log and for `ramet doctor`. Decides nothing."""

from collections.abc import Sequence

from ramet.runtime.attention.base import LayerAttention


def describe(layers: Sequence[LayerAttention]) -> str:
    """Which layers there are: "layers 0-4 with window 8 and soft cap 50; layer 5 plain"."""
    alike: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        marks = [f"window {layer.window}"] if layer.window is not None else []
        marks += [f"soft cap {layer.softcap:g}"] if layer.softcap is not None else []
        marks += ["sinks"] if layer.sinks else []
        marks += [f"keys of layer {layer.keys_of}"] if layer.keys_of is not None else []
        alike.setdefault("with " + " and ".join(marks) if marks else "plain", []).append(number)
    return "; ".join(f"layer{'s' * (len(numbers) > 1)} {spans(numbers)} {marks}" for marks, numbers in alike.items())


def spans(numbers: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> "0-2, 5"."""
    ends = [i for i, number in enumerate(numbers) if i + 1 == len(numbers) or numbers[i + 1] != number + 1]
    starts = [0, *(end + 1 for end in ends[:-1])]
    runs = [(numbers[a], numbers[b]) for a, b in zip(starts, ends, strict=True)]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
