"""Logit processors: code of ours or of the server's owner that may change a request's logits, chosen by name.

Decides which names exist and what they are given. No code ever travels: a request names a processor (`to_str()` gives
the name) and sends its parameters in `sampling_params.custom_params`. Names come from the built-ins below, from the
entry point group `ramet.logit_processors`, and from the module of --logit-processor-module, whose subclasses register
themselves. Section 5 of the native API.

    class Shout(LogitProcessor):
        def __call__(self, logits, custom_param_list):
            for row, params in zip(logits, custom_param_list):
                row[params["token"]] += 5
            return logits

A row's parameters hold "__req__", a RequestView: what it has read and written so far.
"""

import importlib
import importlib.util
import re
from bisect import bisect_right
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ramet.ipc.params import shown
from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.sampling.columns import REQUEST, RequestView

GROUP = "ramet.logit_processors"
MAX_IDS = 1 << 16  # of one parameter
MAX_STEPS = 1024
_PLAIN = re.compile("0|[1-9][0-9]{0,9}")  # a token id as a key of an object


class LogitProcessor:
    """Subclass it, then ask for it by `to_str()`. A subclass is registered under its class name in snake case."""

    registry: ClassVar[dict[str, type["LogitProcessor"]]] = {}
    name: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.name = cls.__dict__.get("name") or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        known = cls.registry.setdefault(cls.name, cls)
        if known.__qualname__ != cls.__qualname__ or known.__module__ != cls.__module__:
            raise ConfigError(f"two logit processors are named {cls.name}: {known} and {cls}")
        cls.registry[cls.name] = cls

    @classmethod
    def to_str(cls) -> str:
        """What a client sends as `custom_logit_processor`."""
        return cls.name

    def check(self, params: dict[str, Any], vocab_size: int) -> None:
        """Called once per request, before it is queued. Raises ValueError with what is wrong and what is valid."""

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]]) -> Tensor:
        """logits [n, V] float32 of the rows that ask for it, to be written or replaced; the parameters of each row."""
        raise NotImplementedError


def load(module: str) -> None:
    """Register what the entry points and the module (a dotted name or a file; empty: none) define."""
    for point in entry_points(group=GROUP):
        found = point.load()
        if not (isinstance(found, type) and issubclass(found, LogitProcessor)):
            raise ConfigError(f"entry point {point.name} of {GROUP} is {found!r}, must be a LogitProcessor")
    if not module:
        return
    try:
        _import_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {describe(error)}"
        raise ConfigError(f"--logit-processor-module is {module}, which cannot be imported: {why}") from error


def _import_file(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, path
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def make_all() -> dict[str, LogitProcessor]:
    """One of each kind. Raises ConfigError for one that cannot be made."""
    made = {}
    for name, kind in LogitProcessor.registry.items():
        try:
            made[name] = kind()
        except Exception as error:
            raise ConfigError(f"logit processor {name} cannot be made without arguments: {describe(error)}") from error
    return made


# -- built-ins --------------------------------------------------------------------------------------------------------


class ForceTokens(LogitProcessor):
    """{"token_ids": [5, 6]}: the output starts with exactly these."""

    def check(self, params: dict[str, Any], vocab_size: int) -> None:
        _ids(params, "token_ids", vocab_size)

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]]) -> Tensor:
        for row, params in zip(logits, custom_param_list, strict=True):
            at = len(params[REQUEST].output_ids)
            if at < len(params["token_ids"]):
                _keep_only(row, row.new_tensor([params["token_ids"][at]], dtype=torch.int64))
        return logits


class BanTokens(LogitProcessor):
    """{"token_ids": [5, 6]}: these are never drawn."""

    def check(self, params: dict[str, Any], vocab_size: int) -> None:
        if len(set(_ids(params, "token_ids", vocab_size))) == vocab_size:
            raise ValueError("token_ids names the whole vocabulary, must leave at least one token")

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]]) -> Tensor:
        for row, params in zip(logits, custom_param_list, strict=True):
            row[_kept(params[REQUEST], "banned", params["token_ids"], row)] = -torch.inf
        return logits


class AllowTokens(LogitProcessor):
    """{"token_ids": [5, 6]}: nothing else is ever drawn."""

    def check(self, params: dict[str, Any], vocab_size: int) -> None:
        if not _ids(params, "token_ids", vocab_size):
            raise ValueError("token_ids is [], must hold at least one token id")

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]]) -> Tensor:
        for row, params in zip(logits, custom_param_list, strict=True):
            _keep_only(row, _kept(params[REQUEST], "allowed", params["token_ids"], row))
        return logits


class NoRepeatNgram(LogitProcessor):
    """{"ngram_size": 3}: no run of so many tokens comes twice in the output."""

    def check(self, params: dict[str, Any], vocab_size: int) -> None:
        _integer(params, "ngram_size", 1, 64)

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]]) -> Tensor:
        for row, params in zip(logits, custom_param_list, strict=True):
            row[_followers(params[REQUEST], params["ngram_size"])] = -torch.inf
        return logits


class TemperatureByPosition(LogitProcessor):
    """{"temperatures": [[0, 1.5], [20, 0.7]]}: from that output token on, logits are divided by that number, and by
    the request's temperature as well."""

    def check(self, params: dict[str, Any], vocab_size: int) -> None:
        words = "[position, temperature], position an integer >= 0, temperature in [0.01, 100]"
        steps = _list(params, "temperatures", f"a list of at most {MAX_STEPS} {words}", MAX_STEPS)
        if not steps:
            raise ValueError("temperatures is [], must hold at least one [position, temperature]")
        wrong = next((i for i, step in enumerate(steps) if not _is_step(step)), None)
        if wrong is not None:
            raise ValueError(f"temperatures[{wrong}] is {shown(steps[wrong])}, must be {words}")
        if [at for at, _ in steps] != sorted({at for at, _ in steps}):
            raise ValueError("temperatures must be sorted by position, without doubles")

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]]) -> Tensor:
        for row, params in zip(logits, custom_param_list, strict=True):
            steps = params["temperatures"]
            reached = bisect_right(steps, len(params[REQUEST].output_ids), key=lambda step: step[0])
            if reached:
                row /= steps[reached - 1][1]
        return logits


class SequenceAutomaton(LogitProcessor):
    """{"transitions": [{"5": 1, "6": 0}, {}]}: in state i only the tokens of transitions[i] are drawn, each leading to
    another state; in a state without transitions everything is. State 0 comes first."""

    def check(self, params: dict[str, Any], vocab_size: int) -> None:
        states = params.get("transitions")
        if not isinstance(states, list) or not states or not all(isinstance(state, dict) for state in states):
            raise ValueError("transitions must be a list of objects from token id to state")
        if sum(map(len, states)) > MAX_IDS:
            raise ValueError(f"transitions has {sum(map(len, states))} entries in all, must have at most {MAX_IDS}")
        for i, state in enumerate(states):
            for token, target in state.items():
                if not _PLAIN.fullmatch(token) or int(token) >= vocab_size:
                    raise ValueError(f"transitions[{i}] has the key {token!r:.40}, must be an id in [0, {vocab_size})")
                if type(target) is not int or not 0 <= target < len(states):
                    raise ValueError(f"transitions[{i}] leads to {target!r:.40}, must be in [0, {len(states)})")

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]]) -> Tensor:
        for row, params in zip(logits, custom_param_list, strict=True):
            at = _walk(params["transitions"], params[REQUEST])
            if state := params["transitions"][at]:
                _keep_only(row, _kept(params[REQUEST], f"state {at}", state, row))
        return logits


def _walk(states: list[dict[str, int]], request: RequestView) -> int:
    """The state after the whole output; goes on from where it was in the step before."""
    num_read, at = request.memory.get("reached", (0, 0))
    for token in request.output_ids[num_read:].tolist():
        if not states[at]:
            break
        at = states[at][str(token)]
    request.memory["reached"] = len(request.output_ids), at
    return at


def _kept(request: RequestView, name: str, ids: Iterable[int | str], row: Tensor) -> Tensor:
    """The ids as an index of the row, made once for a request."""
    if name not in request.memory:
        request.memory[name] = row.new_tensor(sorted({int(token) for token in ids}), dtype=torch.int64)
    index: Tensor = request.memory[name]
    return index


def _keep_only(row: Tensor, ids: Tensor) -> None:
    kept = row[ids].clone()
    row.fill_(-torch.inf)
    row[ids] = kept


def _followers(request: RequestView, size: int) -> list[int]:
    """Tokens that have followed the output's last size - 1 tokens before; goes on from the step before."""
    tokens, before = request.output_ids, size - 1
    following = request.memory.setdefault("following", {})
    for at in range(max(request.memory.get("num_read", 0), before), len(tokens)):
        following.setdefault(tuple(tokens[at - before : at].tolist()), []).append(int(tokens[at]))
    request.memory["num_read"] = len(tokens)
    if len(tokens) < before:
        return []
    found: list[int] = following.get(tuple(tokens[len(tokens) - before :].tolist()), [])
    return found


def _is_step(step: Any) -> bool:
    if not isinstance(step, list) or len(step) != 2:
        return False
    at, temperature = step
    return type(at) is int and at >= 0 and type(temperature) in (int, float) and 0.01 <= temperature <= 100


def _ids(params: dict[str, Any], name: str, vocab_size: int) -> list[int]:
    ids = _list(params, name, f"a list of at most {MAX_IDS} token ids in [0, {vocab_size})", MAX_IDS)
    wrong = next((i for i, token in enumerate(ids) if not _is_id(token, vocab_size)), None)
    if wrong is not None:
        raise ValueError(f"{name}[{wrong}] is {shown(ids[wrong])}, must be a token id in [0, {vocab_size})")
    return ids


def _list(params: dict[str, Any], name: str, words: str, most: int) -> list[Any]:
    """`words`: what it must be."""
    if name not in params:
        raise ValueError(f"{name} is missing, must be {words}")
    given = params[name]
    if not isinstance(given, list):
        raise ValueError(f"{name} is {shown(given)}, must be {words}")
    if len(given) > most:
        raise ValueError(f"{name} has {len(given)} entries, must be {words}")
    return given


def _is_id(token: Any, vocab_size: int) -> bool:
    return type(token) is int and 0 <= token < vocab_size


def _integer(params: dict[str, Any], name: str, low: int, high: int) -> None:
    value = params.get(name)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is {value!r:.40}, must be an integer in [{low}, {high}]")
