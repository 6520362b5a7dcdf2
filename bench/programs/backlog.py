"""`ramet bench backlog`: what a bound on waiting costs a policy, over a backlog of many seconds. No model, no clock.

400 prompts in 20 groups arrive at once, in an order that is no group's; a group shares 1,000 tokens. The KV pool holds
a few groups, so who goes in arrival order computes a group's prefix again and again. A formula says how long a step
takes, and simulated time is advanced by it: the figures are the same on every machine.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.ipc.channel import MemoryChannel
from ramet.ipc.content import Content
from ramet.ipc.message import Uid
from ramet.ipc.messages import Generate, ToDetokenizer, ToScheduler, ToServer, Wake, pack_ids
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.config import make_args
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.scripted import ScriptedRunner
from ramet.runtime.scheduler.process.compose import SchedulerChannels, compose

GROUPS, MEMBERS, SHARED, OWN, OUTPUT = 20, 20, 1000, 5, 32
NEVER_S = 86_400.0  # the most that the option takes, far beyond what is played
STEP_S, PREFILL_TOKEN_S = 0.02, 0.0005  # of a step, and of each prompt token that it computes


@dataclass(frozen=True)
class BacklogOutcome:
    """`computed_tokens` of prompts; the waits are from arrival to the first token."""

    computed_tokens: int
    total_s: float
    longest_wait_s: float
    newcomer_wait_s: float  # of a request of high priority that comes when the backlog is half done


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class TimedRunner(ScriptedRunner):
    """Advances the clock by what a step takes."""

    def __init__(self, clock: Clock, *, pool: int, rows: int) -> None:
        super().__init__(512, 2048, pool, rows)
        self._clock, self.computed_tokens = clock, 0

    def launch(self, batch: Batch) -> Any:
        prompt_tokens = int(batch.num_new[batch.num_decode :].sum())
        self.computed_tokens += prompt_tokens
        self._clock.now_s += STEP_S + PREFILL_TOKEN_S * prompt_tokens
        return super().launch(batch)


def prompts(seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    heads = [[draw.randrange(512) for _ in range(SHARED)] for _ in range(GROUPS)]
    made = [head + [draw.randrange(512) for _ in range(OWN)] for head in heads for _ in range(MEMBERS)]
    draw.shuffle(made)
    return made


def play(policy: str, max_wait_s: float, *, pool: int = 6000, rows: int = 4, spread_s: float = 0.0) -> BacklogOutcome:
    """The backlog under one policy, and half-way one newcomer with a higher priority."""
    clock = Clock()
    runner = TimedRunner(clock, pool=pool, rows=rows)
    inbox: MemoryChannel[Any] = MemoryChannel(ToScheduler)
    steps: MemoryChannel[Any] = MemoryChannel(ToDetokenizer)
    args = make_args(schedule_policy=policy, max_wait_s=max_wait_s, random_seed=0)
    channels = SchedulerChannels(inbox, steps, MemoryChannel(ToServer), wake=lambda: inbox.send(Wake()))
    scheduler = compose(args, runner, channels, None, frozenset(), clock=clock).scheduler
    arrived_s: dict[int, float] = {}
    waits_s: dict[int, float] = {}

    def arrive(uid: int, ids: list[int], priority: int = 0) -> None:
        spec = RequestSpec(SamplingParams(max_new_tokens=OUTPUT, temperature=0.0), priority=priority)
        arrived_s[uid] = clock()
        inbox.send(Generate([Uid(uid)], spec, Content(ids=pack_ids(ids)), arrival_s=clock()))

    backlog = prompts()
    newcomer = len(backlog) + 1
    coming = list(enumerate(backlog, 1))
    while coming or not scheduler.idle:
        while coming and clock() >= spread_s * (coming[0][0] - 1) / len(backlog):
            arrive(*coming.pop(0))
        scheduler.receive(block=False)
        if scheduler.idle:
            clock.now_s += STEP_S
            continue
        if newcomer not in arrived_s and len(waits_s) >= len(backlog) // 2:
            arrive(newcomer, list(range(SHARED)), priority=100)
            scheduler.receive(block=False)
        scheduler.turn()
        for step in steps.drain():
            for uid in step.uids:
                waits_s.setdefault(uid, clock() - arrived_s[uid])
    newcomer_wait_s = waits_s.pop(newcomer)
    return BacklogOutcome(runner.computed_tokens, clock(), max(waits_s.values()), newcomer_wait_s)


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench backlog", description="What a bound on waiting costs a policy.")
    p.add_argument("--max-wait-s", type=float, default=make_args().schedule.max_wait_s)
    p.add_argument("--output-file", type=Path, default=report.results_file("backlog"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    outcomes = {
        "fcfs": play("fcfs", NEVER_S),
        "lpm, no bound": play("lpm", NEVER_S),
        "lpm": play("lpm", options.max_wait_s),
    }
    for name, each in outcomes.items():
        print(
            f"{name:<14} {each.computed_tokens:7d} tokens computed, {each.total_s:6.1f} s in all, "
            f"longest wait {each.longest_wait_s:6.1f} s, newcomer {each.newcomer_wait_s:5.1f} s"
        )
    made = stamp.stamp(stamp.command_line("backlog", argv))
    record = {"bench": "backlog", **made, "outcomes": {name: asdict(each) for name, each in outcomes.items()}}
    report.append_line(options.output_file, json.loads(json.dumps(record)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
