"""What a finished or growing sequence looks like to a client: the reply of /generate. Decides names, not transport.

`meta_info` is the HTTP server's and the in-process LLM's, so that both answer alike; `GrowingReply` is the LLM's own.
"""

import time
from typing import Any

from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.intake.reading import Reader, joined, read_parts

WEIGHT_VERSION = "default"


def finish_reason(finish: Finish | None) -> dict[str, Any] | None:
    """null while it grows."""
    if finish is None:
        return None
    match finish.kind:
        case FinishKind.STOP:
            return {"type": "stop", "matched": finish.matched}
        case FinishKind.LENGTH:
            return {"type": "length", "length": finish.length}
        case _:
            kind = "BadRequestError" if 400 <= finish.status < 500 else "AbortError"
            return {"type": "abort", "message": finish.message, "status_code": finish.status or None, "err_type": kind}


def meta_info(
    rid: str, finish: Finish | None, *, prompt_tokens: int, completion_tokens: int, cached_tokens: int, latency_s: float
) -> dict[str, Any]:
    """`e2e_latency` (seconds) and the number of retractions are known at the end only."""
    info: dict[str, Any] = {
        "id": rid,
        "finish_reason": finish_reason(finish),
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "cached_tokens": cached_tokens,
        "num_retractions": finish.num_retractions if finish is not None else 0,
        "weight_version": WEIGHT_VERSION,
    }
    if finish is not None:
        info["e2e_latency"] = latency_s
    return info


class GrowingReply:
    """What was read of one sequence so far."""

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence
        self._text, self._ids = "", list[int]()

    def read(self) -> dict[str, Any]:
        """Take what came, where the sequence grows; everything so far: {"text", "output_ids", "meta_info"}."""
        sequence = self._sequence
        texts, ids = sequence.take()
        self._text += "".join(texts) + sequence.tail
        self._ids += ids
        return {"text": self._text, "output_ids": list(self._ids), "meta_info": meta_of(sequence)}


def chat_reply(sequence: Sequence, reader: Reader) -> dict[str, Any]:
    """Of one that has ended: its message as OpenAI's chat completions have it, and `meta_info` as of /generate."""
    finish = sequence.finish
    assert finish is not None, f"{sequence.uid} has not ended"
    said = joined(read_parts(sequence.take()[0], sequence.tail, reader), reader)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": said.text if said.text or not said.calls else None,
        "reasoning": said.thought or None,
    }
    if said.calls:
        calls = [(call.id, {"name": call.name, "arguments": call.arguments}) for call in said.calls]
        message["tool_calls"] = [{"id": name, "type": "function", "function": called} for name, called in calls]
    meta = {**meta_of(sequence), "reasoning_tokens": reader.reasoning_tokens}
    return {"message": message, "finish_reason": reader.reason(finish), "meta_info": meta}


def meta_of(sequence: Sequence) -> dict[str, Any]:
    """`meta_info` of all that was taken of it, named by its uid."""
    meta = meta_info(
        f"{sequence.uid}",
        sequence.finish,
        prompt_tokens=sequence.num_prompt,
        completion_tokens=sequence.num_taken,
        cached_tokens=sequence.num_cached,
        latency_s=time.monotonic() - sequence.submission.arrival_s,
    )
    if sequence.scores is not None:
        meta |= sequence.scores.meta()
    if sequence.hidden is not None and sequence.finish is not None:
        meta["hidden_states"] = sequence.hidden.meta()
    return meta
