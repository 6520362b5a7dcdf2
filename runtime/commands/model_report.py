"""`ramet doctor --model-path`: what a model is, what serves it, which memory it takes, and what would be refused.

Decides what is told of a model before a weight of it is read: config.json, the headers of its files and its tokenizer's
names say all of it. Asks the code that a start asks, so that both refuse the same. Knows no other part of a machine
than its memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ramet.runtime.commands.findings import Finding
from ramet.runtime.config import Args, located
from ramet.runtime.engine.batch import PART_ROWS
from ramet.runtime.engine.devices.base import Device
from ramet.runtime.engine.devices.choice import choose_device
from ramet.runtime.engine.devices.layers import describe, spans
from ramet.runtime.engine.memory import SLOT_BYTES, Needs, default_share, plan_memory, shown_bytes
from ramet.runtime.engine.startup import check_options, needs_of
from ramet.runtime.errors import ConfigError
from ramet.runtime.lora.reading import read_adapter
from ramet.runtime.lora.targets import targets_of
from ramet.runtime.models.registry import FAMILIES, read_config
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.towers.registry import has_tower
from ramet.runtime.models.transformers.implementation import implementation_of
from ramet.runtime.text.chat_template import ChatTemplate
from ramet.runtime.text.template_files import read_templates
from ramet.runtime.text.tokenizer import Tokenizer
from ramet.runtime.weights.containers import opened
from ramet.runtime.weights.loadable import check_headers

USUAL_CONTEXTS = 4096, 32768
LESS_MEMORY = "--context-length, --kv-cache-dtype int8 or --quantization take less"


def examine_model(args: Args, contexts: Sequence[int]) -> Iterator[Finding]:
    """`contexts`: lengths at which its memory is told, beside the longest that would be served."""
    try:
        args = located(args)
        values = read_config(args.model_folder, args.model.json_model_override_args)
        found = implementation_of(values, str(args.model_folder / "config.json"), args.model.model_impl)
        device = choose_device(args.execute.device)
        if found.shape is None:
            raise ConfigError(found.why)
    except ConfigError as error:
        yield Finding("missing", "model", str(error), "see docs/models.md for what is served")
        return
    shape = found.shape
    if found.name == "native":
        file = f"models/{FAMILIES[shape.architecture]}.py"
        yield Finding("ok", "model", f"{shape.composite or shape.architecture}, natively: {file}")
    else:
        yield Finding("note", "model", f"{shape.architecture}, through transformers, slower: {found.why}")
    if not shape.generates:
        yield Finding("note", "output", "no head that predicts tokens: see docs/embeddings.md for what it answers")
    yield Finding("ok", "layers", _layers(shape))
    yield Finding("ok", "attention", describe([layer.attention for layer in shape.layers]))
    yield from _tokenizer(args)
    dtype = getattr(torch, shape.dtype if args.model.dtype == "auto" else args.model.dtype)
    if args.model.load_format != "dummy":
        yield _files(args, shape, dtype)
    yield from _memory(args, shape, dtype, device, contexts)
    yield from _adapters(args, shape, dtype)
    yield from _refusals(shape)


def _layers(shape: ModelShape) -> str:
    parts = [f"{shape.num_layers}, {shape.heads} query heads, {shape.kv_heads} of keys"]
    if (of := shape.experts) is not None:
        where = f"layer{'s' * (len(shape.sparse) > 1)} {spans(shape.sparse)}"
        parts.append(f"{of.num} experts in {where}, {of.rule.per_token} for each token")
    parts.append(f"vocabulary of {shape.vocab_size}")
    parts.append(f"rope {', '.join(dict.fromkeys(layer.rope.kind for layer in shape.layers))}")
    return ", ".join([*parts, f"context of {shape.context_length}"])


def _tokenizer(args: Args) -> Iterator[Finding]:
    path = args.tokenizer_folder / "tokenizer.json"
    if not path.is_file():
        yield Finding("missing", "tokenizer", f"there is no {path}", "name a folder that has one with --tokenizer-path")
        return
    try:
        tokenizer = Tokenizer.from_folder(args.tokenizer_folder, args.model_folder)
    except ConfigError as error:
        yield Finding("missing", "tokenizer", str(error), "or name another folder with --tokenizer-path")
        return
    yield from (Finding("note", "tokenizer files", note) for note in tokenizer.notes)
    if not tokenizer.eos_ids:
        yield Finding("note", "end of an output", "no file names a token for it: its length or a stop ends one")
    try:
        templates = read_templates(args.tokenizer_folder, args.model.chat_template)
        ChatTemplate(templates).check()
    except ConfigError as error:
        yield Finding("missing", "chat template", str(error), "name another with --chat-template")
        return
    found = "with a chat template" if templates.by_name else "without a chat template: chats need --chat-template"
    yield Finding("ok" if templates.by_name else "note", "tokenizer", f"{path}, {found}")


def _files(args: Args, shape: ModelShape, dtype: torch.dtype) -> Finding:
    """Whether every tensor is there in its shape, as headers say. Numbers are looked at when they are loaded."""
    try:
        checkpoint = opened(args.model_folder)
        check_headers(args.model_folder, shape, dtype)
        files = checkpoint.files
    except ConfigError as error:
        hint = "" if "ramet convert" in str(error) else "download them again, or correct config.json"
        return Finding("missing", "files", str(error), hint)
    size = shown_bytes(sum(path.stat().st_size for path in files))
    of = f"{size} in {len(files)} file{'s' * (len(files) > 1)}"
    kept = "" if shape.quantization is None else f", as {shape.quantization.method} has them"
    return Finding("ok", "files", f"{of}, every tensor is there{kept}")


def _memory(
    args: Args, shape: ModelShape, dtype: torch.dtype, device: Device, contexts: Sequence[int]
) -> Iterator[Finding]:
    try:
        check_options(args, shape, device)
        needs = needs_of(args, shape, dtype, device)
    except ConfigError as error:
        yield Finding("missing", "options", str(error))
        return
    in_checkpoint = None if shape.quantization is None else shape.quantization.method
    form = in_checkpoint or args.model.quantization or str(dtype).removeprefix("torch.")
    beside = shown_bytes(needs.activations + needs.penalties)
    yield Finding("ok", "weights", f"{shown_bytes(needs.weights)} as {form}, {beside} beside them for steps")
    yield Finding("ok", "keys and values", f"{shown_bytes(needs.bytes_per_token)} for each token")
    available = device.available_bytes()
    share = args.cache.mem_fraction_static or default_share(needs.weights, available, device.shares_memory)
    asked = sorted({*(contexts or USUAL_CONTEXTS), needs.context_length})
    for length in asked:
        if length <= shape.context_length:
            yield _at(needs, length, available, share, is_longest=length == needs.context_length)
        elif length in contexts:
            yield Finding("note", f"at {length} tokens", f"refused: the model's context is {shape.context_length}")


def _at(needs: Needs, length: int, available: int, share: float, *, is_longest: bool) -> Finding:
    """What sequences of that length take. The longest that is asked for has to fit, or the start ends."""
    what, cached = f"at {length} tokens", length * needs.bytes_per_token
    table = (needs.max_running + PART_ROWS + 1) * length * SLOT_BYTES
    whole = needs.weights + needs.activations + needs.penalties + table + cached
    found = f"{shown_bytes(cached)} for one sequence, {shown_bytes(whole)} in all"
    try:
        plan = plan_memory(replace(needs, context_length=length), available, share)
    except ConfigError as error:
        return Finding("missing" if is_longest else "note", what, f"{found}: {error}", LESS_MEMORY)
    if plan.max_total_tokens < length:
        return Finding("note", what, f"{found}: the pool here holds {plan.max_total_tokens} tokens", LESS_MEMORY)
    return Finding("ok", what, f"{found}; {plan.max_total_tokens // length} such sequences fit here")


def _adapters(args: Args, shape: ModelShape, dtype: torch.dtype) -> Iterator[Finding]:
    """By their own files; rows that PEFT has copied from the model are compared when one is loaded."""
    for named in args.named_adapters:
        try:
            found = read_adapter(Path(named.path), targets_of(shape), dtype, args.adapters.max_lora_rank)
        except ConfigError as error:
            yield Finding("missing", f"adapter {named.name}", str(error), "see docs/adapters.md for what is served")
            continue
        size = shown_bytes(found.num_bytes)
        yield Finding("ok", f"adapter {named.name}", f"{len(found.changes)} layers, rank {found.rank}, {size}")


def _refusals(shape: ModelShape) -> Iterator[Finding]:
    """What requests cannot ask of it, and what is not read of its files."""
    if any(layer.attention.window is not None for layer in shape.layers):
        yield Finding("note", "contexts", "parallel contexts are refused: some layers have a sliding window")
    elif (boundary := shape.longrope_limit(shape.context_length)) is not None:
        why = f"keys are others beyond {boundary} tokens, and a sequence that outgrows them is computed anew"
        yield Finding("note", "contexts", f"parallel contexts are refused: {why}")
    if shape.experts is None:
        why = "those of transformers' modules are not kept" if shape.of_transformers else "there are none"
        yield Finding("note", "experts", f"{why}: --enable-return-routed-experts is refused")
    if shape.composite and not has_tower(shape):
        yield Finding("note", "pictures", "are refused: the vision tower is not read")
