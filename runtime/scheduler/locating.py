"""What /v1/requests says of one sequence: where it is, and while it waits, why. Decides nothing."""

from ramet.ipc.message import Uid
from ramet.runtime.scheduler.features.constraints import Constraints
from ramet.runtime.scheduler.pausing import HELD
from ramet.runtime.scheduler.queue import WaitingQueue
from ramet.runtime.scheduler.running import RunningSet


def where(
    uid: Uid, waiting: WaitingQueue, constraints: Constraints, running: RunningSet, *, queued: str, paused: str
) -> dict[str, object] | None:
    """`queued`: why it waits if it is in the queue. `paused`: why no step is computed. None: nobody has it."""
    request = waiting.get(uid)
    if request is not None:
        reason = HELD if waiting.is_held(uid) and not paused else queued
        return {"state": "waiting", "reason": reason, "retractions": request.num_retractions}
    if reason := constraints.waiting(uid):
        return {"state": "waiting", "reason": reason, "retractions": 0}
    found = running.get(uid)
    if found is None:
        return None
    known = {"computed_tokens": found.applied, "output_tokens": found.num_output}
    why = {"reason": paused} if paused else {}
    return {"state": "running", **why, **known, "retractions": found.request.num_retractions}
