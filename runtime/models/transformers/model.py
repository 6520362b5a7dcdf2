"""A model whose modules are transformers', with the paged cache in the place of its own.

Decides how a step of many rows goes through modules made for one: all tokens are one row, each with its own position,
and only attention knows which belong together. Logits are made by the class's own forward, with its scales, caps and
biases, from states that it is given. Knows no weights. T new tokens, N states of a token, Q drawing rows, V vocabulary.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from ramet.runtime.attention.base import AttentionBackend, ForwardInputs, StepBackend
from ramet.runtime.layers.ops import Ops
from ramet.runtime.models.causal import CausalModel
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.transformers.apart import AloneAnswers, check_apart
from ramet.runtime.models.transformers.facts import Facts
from ramet.runtime.models.transformers.interface import ANSWERS, LAYER, Answers, Stepping
from ramet.runtime.models.transformers.linears import replace_modules


class DecoderBody(nn.Module):
    """In the place of the module that makes states: it returns some that were made before."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole
        self.given: Tensor | None = None  # [1, Q, N]
        self._kind: Any = None  # of what `whole` returns

    def __getattr__(self, name: str) -> Any:
        """What a class reads of its body besides."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("whole"), name)

    def states(self, **inputs: Tensor | bool) -> Tensor:
        """[T, N] behind the final norm"""
        out = self.whole(**inputs)
        self._kind = type(out)
        made: Tensor = out[0][0]
        return made

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._kind(last_hidden_state=self.given)


class TransformersModel(CausalModel):
    """`causal` is the class's instance, weights and all."""

    replayable = False  # it computes with torch's ops

    def __init__(self, causal: Any, facts: Facts, shape: ModelShape, ops: Ops) -> None:
        super().__init__()
        self.shape = shape
        self._body = DecoderBody(causal.get_submodule(facts.body))
        causal.set_submodule(facts.body, self._body)
        replace_modules(causal, ops)
        self.layers = causal
        self._stepping = Stepping(ops.store_kv)
        self._attending = [causal.get_submodule(_inside(layer.path, facts.body)) for layer in facts.layers]
        for number, module in enumerate(self._attending):
            setattr(module, LAYER, number)
        self._answer_with(self._stepping)

    def _answer_with(self, answers: Answers) -> None:
        for module in self._attending:
            setattr(module, ANSWERS, answers)

    @torch.inference_mode()
    def check(self) -> None:
        """That steps may hold several rows; see apart.py. Raises NotServed."""

        def states(ids: Tensor, positions: Tensor) -> Tensor:
            return self._body.states(input_ids=ids[None], position_ids=positions[None], use_cache=False)

        self._answer_with(AloneAnswers())
        try:
            device = next(self.parameters()).device
            check_apart(states, self.shape.context_length, self.shape.vocab_size, device, self.shape.architecture)
        finally:
            self._answer_with(self._stepping)

    @property
    def output(self) -> nn.Module:
        head: nn.Module = self.layers.get_output_embeddings()  # type: ignore[operator]
        return head

    def place_rope(self, num_positions: int, device: torch.device) -> None:
        """transformers' modules turn by positions as they come."""

    def hidden_states(
        self, inputs: ForwardInputs, attention: StepBackend, drawn_rows: ForwardInputs | None = None
    ) -> tuple[Tensor, Tensor]:
        """Behind the final norm already, the same tensor twice; every layer computes all tokens."""
        self._stepping.begin(inputs, cast(AttentionBackend, attention))
        positions = inputs.positions if inputs.rope_positions is None else inputs.rope_positions
        states = self._body.states(**self._tokens(inputs), position_ids=positions[None], use_cache=False)
        if drawn_rows is not None:
            states = states.index_select(0, inputs.last_tokens)
        return states, states

    def _tokens(self, inputs: ForwardInputs) -> dict[str, Tensor]:
        if not inputs.embeds:
            return {"input_ids": inputs.token_ids[None]}
        embedded = self.layers.get_input_embeddings()(inputs.token_ids)  # type: ignore[operator]
        for first, values in inputs.embeds:
            embedded[first : first + len(values)] = values
        return {"inputs_embeds": embedded[None]}

    def final_states(self, x: Tensor, residual: Tensor, at: Tensor) -> Tensor:
        return x.index_select(0, at)

    def decode(self, inputs: ForwardInputs, attention: StepBackend, narrow: bool = False) -> Tensor:
        states, _ = self.hidden_states(inputs, attention)
        return self.logits(states)

    def logits(self, states: Tensor, adapters: Tensor | None = None) -> Tensor:
        assert adapters is None, "adapters change layers of ours alone"
        self._body.given = states[None]
        try:
            ids = torch.zeros(1, len(states), dtype=torch.long, device=states.device)
            out: Tensor = self.layers(input_ids=ids, use_cache=False).logits
        finally:
            self._body.given = None
        return out[0].float().contiguous()


def _inside(path: str, body: str) -> str:
    """Where a module is once its model's body is inside a `DecoderBody`."""
    return f"{body}.whole{path.removeprefix(body)}" if path.startswith(f"{body}.") else path
