"""Which memory the host can address: a CPU's tensors are numpy arrays too, those of a GPU are not. Decides nothing."""

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor


def is_host(device: torch.device) -> bool:
    return device.type == "cpu"


def host_view(tensor: Tensor) -> npt.NDArray[Any] | None:
    """The memory of a tensor as a numpy array; None where the host cannot address it."""
    return tensor.numpy() if tensor.is_cpu else None
