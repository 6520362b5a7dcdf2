"""What a forward pass on a CPU may call of torch while its native calls are recorded: views alone.

A torch op that computes would not be run again by a replay, so recording refuses it.
"""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from ramet.runtime.engine.devices.base import NotReplayable

VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "alias", "as_strided", "detach", "empty", "expand", "permute", "reshape", "select", "slice", "split", "squeeze",
        "t", "transpose", "unbind", "unsqueeze", "view", "_reshape_alias", "_unsafe_view",
    )
)  # fmt: skip


class _Refusing:
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name not in VIEWS:
            raise NotReplayable(f"the model's forward pass calls {name}, which is not one of our kernels")
        return func(*args, **(kwargs or {}))


class ViewsOnly(_Refusing, TorchDispatchMode):
    """Inherits its method: torch wraps one that a mode has itself, and the first call then imports torch's compiler,
    which takes more than a second and 60 MB.
    """
