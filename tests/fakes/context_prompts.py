"""Not a fake: prompts with parallel contexts. What each token sees and where it stands, and how `LLM` is asked."""

from typing import Any

import numpy as np
from msgspec.structs import replace

from ramet.ipc.content import Contexts
from ramet.runtime.intake.programs import read_prompts
from ramet.runtime.llm import LLM, _made, whole_reply


def layout(num_ids: int, contexts: Contexts) -> tuple[np.ndarray, np.ndarray]:
    """The position of each token, and which tokens it sees. [L], [L, L] bool"""
    sees = np.tril(np.ones((num_ids, num_ids), dtype=bool))
    positions = np.zeros(num_ids, dtype=np.int64)
    at, position = 0, 0
    for start, *lengths in contexts:
        positions[at:start] = np.arange(position, position + start - at)
        at, position = start, position + start - at
        for length in lengths:
            positions[at : at + length] = np.arange(position, position + length)
            sees[at : at + length, start:at] = False
            at += length
        position += max(lengths)
    positions[at:] = np.arange(position, position + num_ids - at)
    return positions, sees


def without_known_logprob(contexts: Contexts) -> set[int]:
    """Tokens right after a group, and in a group right after another: no token has seen all that they follow."""
    bare, end = set(), 0
    for start, *lengths in contexts:
        stop = start + sum(lengths)
        if len(lengths) > 1:
            bare.add(stop)
            if start == end:
                bare |= {start + sum(lengths[:i]) for i in range(len(lengths))}
            end = stop
    return bare


def generate(
    llm: LLM, prompts: list[tuple[list[int], Contexts]], sampling_params: dict[str, Any], **extras: Any
) -> list[dict[str, Any]]:
    """As LLM.generate, of (ids, contexts)."""
    asked = read_prompts([ids for ids, _ in prompts], sampling_params, extras, llm._defaults)
    contexts = [own for _, own in prompts]
    asked = [
        each._replace(content=replace(each.content, contexts=own)) for each, own in zip(asked, contexts, strict=True)
    ]
    return [_made(whole_reply(output)) for output in llm._loop.run(llm._finished(asked))]
