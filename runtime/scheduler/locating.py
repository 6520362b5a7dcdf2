"""What /v1/requests says of one sequence: where it is, and while it waits, why. Decides nothing."""

from collections.abc import Sequence

from ramet.ipc.message import Uid
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.pausing import HELD


def where(uid: Uid, core: Core, features: Sequence[TurnFeature]) -> dict[str, object] | None:
    """None: nobody has it."""
    request, paused = core.waiting.get(uid), core.pausing.why
    if request is not None:
        reason = HELD if core.waiting.is_held(uid) and not paused else core.why.of(uid)
        return {"state": "waiting", "reason": reason, "retractions": request.num_retractions}
    for feature in features:
        if feature.apart and (reason := feature.why_apart(uid)):
            return {"state": "waiting", "reason": reason, "retractions": 0}
    found = core.running.get(uid)
    if found is None:
        return None
    known = {"computed_tokens": found.applied, "output_tokens": found.num_output}
    why = {"reason": paused} if paused else {}
    return {"state": "running", **why, **known, "retractions": found.request.num_retractions}
