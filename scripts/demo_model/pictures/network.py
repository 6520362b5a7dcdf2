"""LLaVA-1.5 in small for training: CLIP's tower, a projector and the demo model's Llama.

Decides the shape of the model of pictures and the arithmetic of its training. The tower is taught by what each patch
shows, which needs no question: shape, colour, and where the thing's middle is. The three layers that say so stay out
of the checkpoint; all else is taught by answers. Knows no scene, no question and no optimizer.
B rows, one picture each, S pixels a side, P patches, T tokens a row, D hidden size of the text model, W of the tower.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration
from transformers.models.clip.modeling_clip import CLIPVisionModel
from transformers.models.llava.modeling_llava import LlavaMultiModalProjector

from scripts.demo_model.network import Network, Shape

MIDDLE_LOSS = 4.0  # beside those of shapes and colours
MIN_STRENGTH = 1e-2  # of a direction that is not noise: a variance


@dataclass(frozen=True)
class Tower:
    """Sizes of CLIP's tower; the defaults are the bundled model's."""

    image: int = 64
    patch: int = 8
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    intermediate: int = 384

    @property
    def side(self) -> int:
        """Patches in a line."""
        return self.image // self.patch

    @property
    def patches(self) -> int:
        return self.side**2

    def config(self) -> CLIPVisionConfig:
        return CLIPVisionConfig(
            image_size=self.image,
            patch_size=self.patch,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.intermediate,
            projection_dim=self.hidden,
        )


@dataclass(frozen=True)
class PictureShape:
    text: Shape = field(
        default_factory=lambda: Shape(
            vocab=576, hidden=128, layers=4, heads=4, kv_heads=4, intermediate=352, context=1024
        )
    )
    tower: Tower = field(default_factory=Tower)

    def config(self, image_token: int, **token_ids: Any) -> LlavaConfig:
        text = self.text.config(**token_ids)
        text["tie_word_embeddings"] = False  # as published; the file has them twice
        return LlavaConfig(
            text_config=text,
            vision_config=self.tower.config().to_dict(),
            image_token_index=image_token,
            image_seq_length=self.tower.patches,
            vision_feature_layer=-1,
            vision_feature_select_strategy="default",
            tie_word_embeddings=False,
            architectures=["LlavaForConditionalGeneration"],
            **token_ids,
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def places(tower: Tower) -> Tensor:
    """[P, W]: waves over each patch's column and line, so that neighbours are alike from the first step on."""
    frequencies = torch.pi * 2.0 ** -torch.linspace(0, 3, tower.hidden // 4)
    angles = torch.outer(torch.arange(tower.side).float(), frequencies)
    waves = torch.cat((angles.sin(), angles.cos()), dim=1)  # [side, W/2]
    lines, columns = waves[:, None].expand(-1, tower.side, -1), waves[None].expand(tower.side, -1, -1)
    return torch.cat((lines, columns), dim=2).flatten(0, 1)


class Patches(NamedTuple):
    """What each patch shows: shape and colour from 1, 0: background. [B, P] int64; middles [B, P, 2], from 0 to 1"""

    shapes: Tensor
    colours: Tensor
    middles: Tensor


class PictureNetwork(nn.Module):
    """`forward` gives the loss. Weights are drawn from torch's global seed."""

    def __init__(self, shape: PictureShape, image_token: int, num_shapes: int, num_colours: int) -> None:
        super().__init__()
        self.shape, self.image_token = shape, image_token
        config = shape.config(image_token)
        config.vision_config._attn_implementation = "sdpa"
        self.tower = CLIPVisionModel(config.vision_config)
        self.projector = LlavaMultiModalProjector(config)
        self.text = Network(shape.text)
        width = shape.tower.hidden
        self.shape_head, self.colour_head = nn.Linear(width, num_shapes + 1), nn.Linear(width, num_colours + 1)
        self.middle_head = nn.Linear(width, 2)
        self._draw_weights()

    def _draw_weights(self) -> None:
        """CLIP's own are meant for wide and deep towers."""
        layers = self.shape.tower.layers
        for name, parameter in self.named_parameters():
            if name.startswith(("tower.", "projector.")) and parameter.dim() > 1:
                last = name.endswith(("out_proj.weight", "fc2.weight"))
                deviation = 0.02 if "embedding" in name else 0.05 / (2 * layers) ** 0.5 if last else 0.05
                nn.init.normal_(parameter, std=deviation)
        with torch.no_grad():
            self.tower.embeddings.position_embedding.weight[1:] = 0.15 * places(self.shape.tower)
            for layer in self.tower.encoder.layers:  # a patch looks at those that are like it: near, and of its colour
                layer.self_attn.k_proj.weight.copy_(layer.self_attn.q_proj.weight)

    @torch.no_grad()
    def whiten(self, pixels: Tensor) -> None:
        """Begin with what distinguishes patches of such pictures, each direction as strong as the others.

        Of random filters, nearly all see the mean colour alone, and edges take thousands of steps to come through.
        pixels [B, 3, S, S] from -1 to 1
        """
        size, width = self.shape.tower.patch, self.shape.tower.hidden
        cut = F.unfold(pixels, size, stride=size).transpose(1, 2).flatten(0, 1)  # [B * P, 3 * size * size]
        strengths, directions = torch.linalg.eigh(cut.T @ cut / len(cut))
        filters = (directions / (strengths + MIN_STRENGTH).sqrt())[:, -width:].T
        embedding = self.tower.embeddings
        embedding.patch_embedding.weight.copy_(0.5 * filters.reshape(embedding.patch_embedding.weight.shape))

    def matrices(self) -> list[nn.Parameter]:
        """Those for Muon."""
        layers = [*self.tower.named_parameters(), *self.projector.named_parameters(), *self.text.named_parameters()]
        return [parameter for name, parameter in layers if parameter.dim() == 2 and "embed" not in name]

    def patches(self, pixels: Tensor) -> Tensor:
        """pixels [B, 3, S, S] from -1 to 1 -> [B, P, W]"""
        return self.tower(pixels).last_hidden_state[:, 1:]

    def hidden(self, seen: Tensor, tokens: Tensor, positions: Tensor, documents: Tensor) -> Tensor:
        """seen [B, P, W], tokens, positions, documents [B, T] -> [B, T, D]"""
        text = self.text
        x = text.embed_tokens(tokens)
        x = x.masked_scatter((tokens == self.image_token)[:, :, None], self.projector(seen).to(x.dtype))
        cos, sin = text.cos[positions][:, None], text.sin[positions][:, None]  # [B, 1, T, E]
        for layer in text.layers:
            x = layer(x, cos, sin, documents)
        return text.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.text.embed_tokens.weight)

    def forward(
        self,
        seen: Tensor,
        tokens: Tensor,
        positions: Tensor,
        documents: Tensor,
        targets: Tensor,
        weights: Tensor,
    ) -> Tensor:
        """Mean cross-entropy in nats of the answers, weights [B, T] float32."""
        logits = self.logits(self.hidden(seen, tokens, positions, documents)).flatten(0, 1)
        losses = F.cross_entropy(logits.float(), targets.flatten(), reduction="none")
        return (losses * weights.flatten()).sum() / weights.sum()

    def patch_loss(self, seen: Tensor, shown: Patches) -> Tensor:
        there = (shown.shapes > 0)[:, :, None]
        share = torch.where(
            there, 0.5 / there.sum(), 0.5 / (~there).sum()
        ).flatten()  # things count as much as the rest
        shapes, colours = (
            (F.cross_entropy(head(seen).flatten(0, 1).float(), wanted.flatten(), reduction="none") * share).sum()
            for head, wanted in ((self.shape_head, shown.shapes), (self.colour_head, shown.colours))
        )
        off = F.smooth_l1_loss(self.middle_head(seen).float(), shown.middles, reduction="none", beta=0.1)
        return 2 * shapes + colours + MIDDLE_LOSS * (off * there).sum() / there.sum()

    def checkpoint(self, **token_ids: Any) -> LlavaForConditionalGeneration:
        """The model as transformers has it, bfloat16."""
        model = LlavaForConditionalGeneration(self.shape.config(self.image_token, **token_ids))
        weights = {f"model.vision_tower.{name}": value for name, value in self.tower.state_dict().items()}
        weights |= {f"model.multi_modal_projector.{name}": value for name, value in self.projector.state_dict().items()}
        weights |= {f"model.language_model.{name}": value for name, value in self.text.state_dict().items()}
        weights["lm_head.weight"] = self.text.embed_tokens.weight
        model.load_state_dict(weights)
        return model.to(torch.bfloat16)
