"""The features of one scheduler, by name for those who report of them."""

from dataclasses import dataclass

from ramet.runtime.scheduler.features.adapters import AdapterSlots
from ramet.runtime.scheduler.features.constraints import Constraints
from ramet.runtime.scheduler.features.follow_ups import FollowUps
from ramet.runtime.scheduler.features.late_tokens import LateTokens
from ramet.runtime.scheduler.features.media import Towers
from ramet.runtime.scheduler.features.parts import Parts
from ramet.runtime.scheduler.features.penalties import PenaltySlots
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases


@dataclass(frozen=True, slots=True)
class SchedulerFeatures:
    leases: PrefixLeases
    follow_ups: FollowUps
    constraints: Constraints
    late: LateTokens
    parts: Parts
    penalties: PenaltySlots
    adapters: AdapterSlots
    towers: Towers | None  # None: the model takes texts alone
