"""Gemma 3's tower: SigLIP's patches, of which squares become one token (Gemma Team 2025)."""

from ramet.runtime.models.towers.internvl import InternVLTower


class Gemma3Tower(InternVLTower):
    class_name = "Gemma3Model"


TOWER = Gemma3Tower
