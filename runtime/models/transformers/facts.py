"""What a model's attention does, found by running it once without numbers, on torch's meta device.

Decides whether the paged cache can stand in for transformers' own: every layer must call the attention interface, once,
with a causal mask or a sliding window and nothing else that changes scores. transformers' masks are asked as functions
of two positions, so that a window comes from what it would compute and not from a key of the config. Reads no weights.
T tokens, H query heads, G kv heads, D head size.
"""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers.initialization import no_init_weights
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.pytorch_utils import Conv1D

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.errors import describe
from ramet.runtime.models.transformers.classes import STRETCHED, NotServed, context_of, made_of, ropes_of

PROBE = "ramet_probe"
NUM_TOKENS = 4
FAR = 1 << 20  # a position behind every window and chunk
HARMLESS = frozenset({  # what an attention function is told that changes nothing in a step without gradients
    "position_ids", "use_cache", "cache_position", "dropout", "output_attentions", "output_router_logits", "is_causal",
    "output_" + "hidden_states", "return_dict", "logits_to_keep", "past_key_values",
})  # fmt: skip
KEEPS_STATE = (nn.Conv1d, nn.RNNBase)
Mask = Callable[[Tensor, Tensor, Tensor, Tensor], Any]  # of a batch's row, a head, a query's position and a key's


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """Of the attention of one layer, in the order of their calls."""

    path: str  # of its module
    attention: LayerAttention
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Facts:
    layers: tuple[LayerFacts, ...]
    body: str  # path of the module that makes the states which the head reads
    width: int  # of these
    vocab_size: int
    intermediate: int  # numbers of a token in its widest linear layer
    tied_head: bool
    context_length: int
    dtype: str


@dataclass(slots=True)
class FactsRecorder:
    """What the model asks for while it runs once."""

    paths: dict[int, str]  # of modules, by their id
    name: str
    masks: list[tuple[Tensor, int | None]] = field(default_factory=list)  # with their windows
    layers: list[LayerFacts] = field(default_factory=list)

    def mask(self, **asked: Any) -> Tensor:
        """The stand-in for a mask, by which it is known again where a layer brings it."""
        made = torch.zeros(1, 1, asked["q_length"], asked["kv_length"], dtype=torch.bool, device=asked["device"])
        self.masks.append((made, self._window(asked["mask_function"])))
        return made

    def _window(self, mask: Mask) -> int | None:
        try:
            return window_of(mask)
        except ValueError as why:
            raise NotServed(f"{self.name} masks its attention in a way that is not served: {why}") from None

    def attend(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **told: Any) -> Any:
        path = self.paths[id(module)]
        kind = f"{self.name}: the attention of {path}"
        unknown = {name for name, what in told.items() if what is not None} - HARMLESS
        unknown -= {"scaling", "sliding_window", "softcap", "s_aux"}
        if unknown:
            raise NotServed(f"{kind} is told {', '.join(sorted(unknown))}, which no kernel here does")
        if told.get("is_causal") is False or getattr(module, "is_causal", True) is False:
            raise NotServed(f"{kind} sees later tokens too (is_causal is false)")
        if query.shape[1] % key.shape[1]:
            raise NotServed(
                f"{kind} has {query.shape[1]} query heads, which {key.shape[1]} key/value heads do not divide"
            )
        if any(path == other.path for other in self.layers):
            raise NotServed(f"{kind} attends twice in a step")
        windows = [window for made, window in self.masks if mask is made or getattr(mask, "_base", None) is made]
        if not windows:
            raise NotServed(f"{kind} brings a mask of its own" if mask is not None else f"{kind} has no mask")
        scale, cap = told.get("scaling"), told.get("softcap")
        has_sinks = told.get("s_aux") is not None
        rule = LayerAttention(query.shape[-1] ** -0.5 if scale is None else float(scale), windows[0], cap, has_sinks)
        heads, kv_heads, key_size, value_size = query.shape[1], key.shape[1], key.shape[3], value.shape[3]
        self.layers.append(LayerFacts(path, rule, heads, kv_heads, key_size, value_size))
        return query.new_empty(1, query.shape[2], query.shape[1], value.shape[3]), None


_recorder: ContextVar[FactsRecorder] = ContextVar("recorder")

ALL_ATTENTION_FUNCTIONS.register(PROBE, lambda *args, **told: _recorder.get().attend(*args, **told))
ALL_MASK_ATTENTION_FUNCTIONS.register(PROBE, lambda **asked: _recorder.get().mask(**asked))
ALL_EXPERTS_FUNCTIONS.register(PROBE, lambda _, x, *__: torch.empty_like(x))


def window_of(mask: Mask) -> int | None:
    """Keys that a query sees, its own included; None: all before it. Raises ValueError where it is neither."""
    first = torch.tensor(0)

    def sees(query: int, key: int) -> bool:
        return bool(mask(first, first, torch.tensor(query), torch.tensor(key)))

    if sees(FAR, FAR + 1) or sees(0, 1):
        raise ValueError("it is not causal")
    if not sees(FAR, FAR) and not sees(3, 3):  # a window of no token is none: a Qwen2-MoE without one has it
        return None
    if sees(FAR, 0):
        return _checked(sees, None)
    seen, unseen = 0, FAR  # distances
    while unseen - seen > 1:
        middle = (seen + unseen) // 2
        seen, unseen = (middle, unseen) if sees(FAR, FAR - middle) else (seen, middle)
    return _checked(sees, unseen)


def _checked(sees: Callable[[int, int], bool], window: int | None) -> int | None:
    """Raises ValueError where some position does not see the last `window` tokens and no others."""
    distances = {0, 1, 2, 3, *(1 << power for power in range(2, 20))}
    distances |= set() if window is None else {window - 1, window, window + 1}
    for query in (FAR - 1, FAR + 1, FAR // 2 + 3, 9, 3):
        for distance in distances:
            if distance <= query and sees(query, query - distance) != (window is None or distance < window):
                raise ValueError(f"position {query} does not see as others do {distance} tokens before it")
    return window


@lru_cache(maxsize=8)
def facts_of(text: str, place: str = "config.json") -> Facts:
    """`text` is config.json, an object. Raises NotServed, which says what cannot be served."""
    values = json.loads(text)
    model_class, config = made_of(values, place)
    name = model_class.__name__
    model = _skeleton(model_class, plain_ropes(config), place)
    stateful = sorted(
        {f"{path} ({type(m).__name__})" for path, m in model.named_modules() if isinstance(m, KEEPS_STATE)}
    )
    if stateful:
        raise NotServed(f"{place}: {name} keeps state of its own between tokens: {', '.join(stateful[:3])}")
    recorder = FactsRecorder({id(module): path for path, module in model.named_modules()}, name)
    run = _run(model, recorder, place)
    layers = getattr(config, "num_hidden_layers", None)
    if len(recorder.layers) != layers:
        raise NotServed(
            f"{place}: {len(recorder.layers)} of {layers} layers of {name} attend through transformers' attention "
            "interface; the others keep keys, values or a state of their own"
        )
    return Facts(
        tuple(recorder.layers), *run, _widest(model), bool(getattr(config, "tie_word_embeddings", False)),
        context_of(config, place), dtype_of(values),
    )  # fmt: skip


def dtype_of(values: dict[str, Any]) -> str:
    return str(values.get("dtype") or values.get("torch_dtype") or "float32").removeprefix("torch.")


def _widest(model: Any) -> int:
    """Numbers of a token."""
    head = model.get_output_embeddings()
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | Conv1D) and m is not head]
    return max(m.nf if isinstance(m, Conv1D) else m.out_features for m in layers)


def plain_ropes(config: Any) -> Any:
    """A copy whose ropes do not look at positions: without numbers there are none."""
    copied = copy.deepcopy(config)
    for rope in ropes_of(copied):
        if rope.get("rope_type") in STRETCHED:
            rope["rope_type"] = "default"
    return copied


def _skeleton(model_class: Any, config: Any, place: str) -> Any:
    """Without memory. Raises NotServed."""
    config._attn_implementation = config._experts_implementation = PROBE
    with _others_errors(model_class, place), torch.device("meta"), no_init_weights():
        return model_class(config).eval()


def _run(model: Any, recorder: FactsRecorder, place: str) -> tuple[str, int, int]:
    """Path of the body, numbers of a token's logits, and of the states that they are made of."""
    ids = torch.zeros(1, NUM_TOKENS, dtype=torch.long, device="meta")
    called = _Called()
    hooks = [hook for path, module in model.named_modules() if path for hook in called.watch(path, module)]
    running = _recorder.set(recorder)
    try:
        with _others_errors(type(model), place), torch.no_grad():
            out = model(
                input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False,
                position_ids=torch.arange(NUM_TOKENS, device="meta")[None],
            )  # fmt: skip
    finally:
        _recorder.reset(running)
        for hook in hooks:
            hook.remove()
    return *called.bodies[0], out.logits.shape[-1]


class _Called:
    """Which modules a model's own forward calls that return more than one tensor."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, int]] = []  # with numbers of a token's states
        self._depth = 0

    def watch(self, path: str, module: nn.Module) -> tuple[Any, Any]:
        def enter(_: Any, __: Any) -> None:
            self._depth += 1

        def leave(_: Any, __: Any, out: Any) -> None:
            self._depth -= 1
            if self._depth == 0 and not isinstance(out, Tensor):
                self.bodies.append((path, out[0].shape[-1]))

        return module.register_forward_pre_hook(enter), module.register_forward_hook(leave)


@contextmanager
def _others_errors(model_class: Any, place: str) -> Iterator[None]:
    """Raises NotServed for any error of transformers' modules: one of them does what no interface knows."""
    try:
        yield
    except NotServed:
        raise
    except KeyError as error:
        why = "has attention classes of its own" if error.args == (PROBE,) else f"knows no {error}"
        raise NotServed(f"{place}: {model_class.__name__} {why}") from error
    except Exception as error:
        what = f"{type(error).__name__}: {describe(error)}".replace("\n", " ")
        raise NotServed(
            f"{place}: {model_class.__name__} does not run through transformers' interfaces: {what}"
        ) from error
