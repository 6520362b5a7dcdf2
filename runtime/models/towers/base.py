"""What reads pictures, films and sound before the text model: transformers' modules, without their text model.

Decides how a tower is built and loaded: of the model's own class, whose weights are those of the checkpoint that do not
belong to the text model. A family's file says which arrays its tower reads, several pieces at once. Loads transformers.
n tokens of a piece, N hidden size of the text model.
"""

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from ramet.ipc.media import MediaKind
from ramet.runtime.models.transformers.loading import check_part, load_part, random_causal

Arrays = Mapping[str, Tensor]  # of one piece, by the names of the class's inputs


class Tower(nn.Module):
    """`whole` is an instance of the class that transformers has for the model, whose text model is not there."""

    text_model = "language_model"  # what that class calls it

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.whole = whole

    @property
    def config(self) -> Any:
        return self.whole.config

    @property
    def dtype(self) -> torch.dtype:
        return next(self.whole.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.whole.parameters()).device

    @abstractmethod
    def features(self, kind: MediaKind, pieces: Sequence[Arrays]) -> list[Tensor]:
        """[n, N] of each piece, or [n, N * levels] where layers of the text model get more of it."""

    @property
    def width(self) -> int:
        """Numbers of a token's features."""
        return int(self.config.get_text_config().hidden_size)

    def moved(self, arrays: Arrays, name: str) -> Tensor:
        """To the tower's device, numbers to its dtype."""
        array = arrays[name]
        return array.to(self.device, self.dtype if array.is_floating_point() else None)


def config_of(folder: Path, overrides: str) -> Any:
    """The whole model's, of a text model without layers and words: it is built, and left out."""
    config = transformers.AutoConfig.from_pretrained(
        folder, local_files_only=True, **(json.loads(overrides) if overrides else {})
    )
    text = config.get_text_config()
    text.num_hidden_layers = 0
    text.vocab_size, text.pad_token_id = 1, None
    if getattr(text, "layer_types", None):
        text.layer_types = []
    return config


def _class_of(config: Any) -> Any:
    """The class of the model without its head, which has a tower: Gemma3Model of Gemma3ForConditionalGeneration."""
    return getattr(transformers, config.architectures[0].removesuffix("ForConditionalGeneration") + "Model")


def load_tower(
    tower_class: type[Tower],
    folder: Path,
    overrides: str,
    dtype: torch.dtype,
    device: torch.device,
    tensors: Iterable[tuple[str, Tensor]] | int,
) -> Tower:
    """`tensors` of the checkpoint that are not the text model's, or the seed of random ones. Raises ConfigError."""
    config = config_of(folder, overrides)
    model_class = _class_of(config)
    if isinstance(tensors, int):
        whole = random_causal(model_class, config, "sdpa", dtype, tensors)
    else:
        whole = load_part(model_class, config, "sdpa", tensors, dtype, without=tower_class.text_model)
    delattr(whole, tower_class.text_model)
    return tower_class(whole.to(device).eval())


def check_tower(
    tower_class: type[Tower], folder: Path, overrides: str, dtype: torch.dtype, tensors: Iterable[tuple[str, Tensor]]
) -> None:
    """Whether `load_tower` would take the names and shapes of `tensors`, on the meta device. Raises ConfigError."""
    config = config_of(folder, overrides)
    check_part(_class_of(config), config, "sdpa", tensors, dtype, without=tower_class.text_model)
