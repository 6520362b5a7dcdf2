"""Prompts that come as embeddings in the place of ids."""

from ramet.runtime.engine.extras import Embeds
from ramet.runtime.scheduler.step import StepBuilder


def plan(step: StepBuilder) -> None:
    for _, first, prefill in step.prompts():
        embeds, start = prefill.running.request.embeds, prefill.running.scheduled
        if embeds is not None and start < len(embeds):
            step.inputs.append(Embeds(first, embeds[start : prefill.end]))
