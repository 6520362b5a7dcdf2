"""The scheduler process: loads the model, then runs the loop for ever. Decides nothing of its own."""

import gc
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
from msgspec import structs

from ramet.ipc import paths
from ramet.ipc.channel import Receiver, Sender
from ramet.ipc.messages import Limits, ToScheduler, Wake
from ramet.ipc.paths import SocketFolder
from ramet.runtime.config import MAX_CONTEXT, Args
from ramet.runtime.engine.batch import LoadedRunner
from ramet.runtime.engine.scripted import ScriptedRunner
from ramet.runtime.errors import ConfigError, card_advice, describe
from ramet.runtime.grammar.aside import Parsers
from ramet.runtime.grammar.backends import check_installed
from ramet.runtime.grammar.base import Vocabulary
from ramet.runtime.grammar.compile import CompilePool, GrammarSource
from ramet.runtime.grammar.compiler import CompileLimits, Compiler
from ramet.runtime.grammar.jump import Retokenizer
from ramet.runtime.machine import collect_rarely
from ramet.runtime.options.placement import bind_others, placement_of
from ramet.runtime.scheduler.loop import Scheduler
from ramet.runtime.scheduler.process.compose import SchedulerChannels, compose
from ramet.runtime.scheduler.process.garbage import collecting
from ramet.runtime.scheduler.process.profiling import Profiler
from ramet.runtime.scheduler.process.slowing import SlowSteps
from ramet.runtime.scheduler.process.step_events import StepEvents, step_ring
from ramet.runtime.scheduler.process.watchdog import Watchdog
from ramet.runtime.text.tokenizer import Tokenizer

log = logging.getLogger("ramet")
# How often a CPU thread that waits for another looks before it sleeps. The default (hundreds of thousands) burns the
# core that the other needs as soon as anything else runs: docs/log.md has the figures.
Phases = list[tuple[str, float]]


def run(args: Args, sockets: SocketFolder, ready: Callable[..., None]) -> None:
    """Serve until the process is ended. `ready(phases, limits=...)` gets the start-up phases in seconds, and Limits."""
    collect_rarely()
    phases: Phases = []
    ring = step_ring(sockets.ring(paths.SCHEDULER))
    inbox: Receiver[ToScheduler] = Receiver(sockets.address(paths.SCHEDULER), ToScheduler)
    detokenizer = Sender(sockets.address(paths.DETOKENIZER))
    server = Sender(sockets.address(paths.SERVER))
    started = time.perf_counter()
    with ThreadPoolExecutor(1, "tokenizer") as thread:
        reading = thread.submit(Tokenizer.from_folder, args.tokenizer_folder, args.model_folder)
        if args.execute.runner != "scripted":
            import torch  # noqa: F401  takes longest
        tokenizer = reading.result()
    gc.enable()  # what loading leaves behind is large
    phases.append(("torch and tokenizer", time.perf_counter() - started))
    runner = make_runner(args, tokenizer, lambda name, seconds: phases.append((name, seconds)))
    wakers = [Sender(sockets.address(paths.SCHEDULER)) for _ in range(2)]  # one for each thread that uses one
    compiled, read = (partial(waker.send, Wake()) for waker in wakers)
    grammars = make_grammars(args, tokenizer, runner.facts.vocab_size, compiled)
    channels = SchedulerChannels(inbox, detokenizer, server, wake=read)
    composed = compose(args, runner, channels, tokenizer, tokenizer.eos_ids, grammars=grammars)
    scheduler, reporter, listeners = composed.scheduler, composed.reporter, composed.steps.listeners
    ends = (
        f"{token} ({tokenizer.decode([token], skip_special_tokens=False)!r})" for token in sorted(tokenizer.eos_ids)
    )
    tokenizer.log_notes()
    log.info("an output ends with %s", ", ".join(ends) or "no token of its own: its length or a stop ends it")
    resolved = resolved_by(runner, scheduler).items()
    log.info("runs with %s", ", ".join(f"{name} {_shown(value)}" for name, value in resolved))
    ready(phases, limits=limits_of(runner, scheduler))
    watchdog = Watchdog(args.execute.watchdog_timeout, ring)
    scheduler.control.excused = watchdog.excused
    listeners.append(StepEvents(ring, reporter).add)
    SlowSteps(scheduler.control, listeners)
    Profiler(args, scheduler.control, reporter, listeners, sockets.address(paths.SCHEDULER))
    try:
        scheduler.run(collecting(watchdog.beat))
    except Exception as error:
        if advice := card_advice(error):
            log.error("the card failed: %s (%s)", describe(error), advice)
        raise


def make_grammars(args: Args, tokenizer: Tokenizer, vocab_size: int, ready: Callable[[], None]) -> GrammarSource | None:
    """Where constraints are compiled. Raises ConfigError where --grammar-backend is not installed."""
    if args.grammar.grammar_backend == "none":
        return None
    check_installed(args.grammar.grammar_backend)
    retokenizes = args.grammar.jump_forward == "retokenize"
    if retokenizes and not Retokenizer(tokenizer).possible:
        raise ConfigError(
            "--jump-forward is retokenize, but this tokenizer does not spell single tokens: what they add to a text "
            "depends on their neighbours; use ff or off"
        )
    eos_ids = frozenset(token for token in tokenizer.eos_ids if token < vocab_size)
    vocabulary = Vocabulary(tokenizer, args.tokenizer_folder, vocab_size, eos_ids)
    limits = CompileLimits(
        timeout_s=args.grammar.grammar_timeout_s,
        memory_mb=args.grammar.grammar_memory_mb,
        cache_bytes=int(args.grammar.grammar_cache_mb * (1 << 20)),
        held_bytes=int(args.grammar.grammar_held_mb * (1 << 20)),
        share=args.share_per_key,
    )
    parsers = Parsers(vocabulary, args.grammar.grammar_output_s, args.grammar.grammar_step_items)
    compiler = Compiler(vocabulary, limits, wants_fsm=retokenizes, parsers=parsers)
    return CompilePool(compiler, ready, begin=partial(bind_others, placement_of(args.execute.cpu_affinity)))


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def resolved_by(runner: LoadedRunner, scheduler: Scheduler) -> dict[str, object]:
    """Options by name, as they are used: what "auto" and unset ones came to."""
    overlap = "on" if scheduler.overlapped else "off"
    return {**runner.resolved, "overlap": overlap, "chunked_prefill_size": scheduler.planner.chunk}


def limits_of(runner: LoadedRunner, scheduler: Scheduler) -> Limits:
    resolved = msgspec.json.encode(resolved_by(runner, scheduler))
    return Limits(**structs.asdict(runner.facts), resolved=resolved)


def make_runner(args: Args, tokenizer: Tokenizer, report: Callable[[str, float], None]) -> LoadedRunner:
    """The runner that --runner names. What needs torch is imported here and nowhere before."""
    if args.execute.runner == "scripted":
        context = args.model.context_length or 4096
        total = args.cache.max_total_tokens or min(context * 64, MAX_CONTEXT)
        step_s, token_s = args.execute.scripted_step_ms / 1e3, args.execute.scripted_token_us / 1e6
        return ScriptedRunner(
            tokenizer.vocab_size, min(context, total), total, args.max_running, step_s=step_s, token_s=token_s
        )
    started = time.perf_counter()
    from ramet.runtime.engine.runner import ModelRunner

    report("import runner", time.perf_counter() - started)
    return ModelRunner(args, report)
