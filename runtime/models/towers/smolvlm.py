"""SmolVLM's tower is that of Idefics3 (Marafioti et al. 2025)."""

from ramet.runtime.models.towers.idefics3 import Idefics3Tower


class SmolVLMTower(Idefics3Tower):
    class_name = "SmolVLMModel"


TOWER = SmolVLMTower
