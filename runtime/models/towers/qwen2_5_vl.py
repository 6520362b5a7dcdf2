"""Qwen2.5-VL's tower: Qwen2-VL's, most of whose layers attend inside windows (Bai et al. 2025)."""

from ramet.runtime.models.towers.qwen2_vl import Qwen2VLTower


class Qwen2_5_VLTower(Qwen2VLTower):
    class_name = "Qwen2_5_VLModel"


TOWER = Qwen2_5_VLTower
