"""Prompts that come as embeddings in the place of ids."""

from dataclasses import dataclass

from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.engine.extras import Embeds
from ramet.runtime.scheduler.request import FeatureState
from ramet.runtime.scheduler.step import StepBuilder


@dataclass(frozen=True, slots=True)
class InputEmbeds(FeatureState):
    values: Floats  # [prompt tokens, hidden size]: what stands for the prompt's ids, which are zeros

    def prompt(self, ids: Ints) -> Ints:
        return ids[:0]


def plan(step: StepBuilder) -> None:
    for index, first, running in step.prompts():
        own, start = running.request.own.get(InputEmbeds), running.scheduled
        if own is not None and start < len(own.values):
            step.inputs.append(Embeds(first, own.values[start : step.ends[index]]))
