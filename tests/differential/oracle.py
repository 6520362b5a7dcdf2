"""transformers as the oracle: greedy tokens, and how sure it was of each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

TIE = 1e-4  # a mismatch counts as a tie only where the oracle's own two best logits are closer than this


@dataclass
class Oracle:
    model: Any
    positions: int = 0
    ties: int = 0

    @classmethod
    def load(cls, folder: Path, **options: Any) -> "Oracle":
        """`options` are transformers'."""
        from transformers import AutoModelForCausalLM

        return cls(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval())

    @torch.inference_mode()
    def greedy(self, prompt: list[int], num_new: int) -> tuple[list[int], list[float]]:
        """`num_new` tokens, eos or not, and the gap between the two best logits at each."""
        if self._begins_anew:
            return self._generated(prompt, num_new)
        ids, past, tokens, gaps = torch.tensor([prompt]), None, [], []
        for _ in range(num_new):
            out = self.model(ids, past_key_values=past, use_cache=True)
            past = out.past_key_values
            best = torch.topk(out.logits[0, -1], 2)
            tokens.append(int(best.indices[0]))
            gaps.append(float(best.values[0] - best.values[1]))
            ids = torch.tensor([[tokens[-1]]])
        return tokens, gaps

    @property
    def _begins_anew(self) -> bool:
        """Its `generate` drops the cache of a sequence that outgrows the trained length."""
        rope = getattr(self.model.config, "rope_parameters", None) or {}
        return rope.get("rope_type") == "longrope"

    def _generated(self, prompt: list[int], num_new: int) -> tuple[list[int], list[float]]:
        asked: Any = dict(do_sample=False, eos_token_id=None, pad_token_id=0, max_new_tokens=num_new)
        out = self.model.generate(torch.tensor([prompt]), **asked, output_logits=True, return_dict_in_generate=True)
        best = [torch.topk(logits[0], 2).values for logits in out.logits]
        return out.sequences[0, len(prompt) :].tolist(), [float(first - second) for first, second in best]

    def check(self, prompt: list[int], output: list[int], expected: tuple[list[int], list[float]], again: Any) -> None:
        """`output` equals `expected`, but for ties, past which `again(prompt, num_new)` goes on after the oracle's."""
        tokens, gaps = expected
        assert len(output) == len(tokens)
        self.positions += len(tokens)
        for i, (got, want) in enumerate(zip(output, tokens, strict=True)):
            if got == want:
                continue
            assert gaps[i] < TIE, f"token {i} is {got}, the oracle says {want} by {gaps[i]:.2e}"
            self.ties += 1
            self.positions -= len(tokens) - i - 1
            rest = tokens[i + 1 :], gaps[i + 1 :]
            forced = [*prompt, *tokens[: i + 1]]
            return self.check(forced, again(forced, len(rest[0])), rest, again) if rest[0] else None
        return None
