"""The errors that the engine's client raises: ServerErrors (5xx), and refusals by the tokenizer and the scheduler."""

import re

from ramet.ipc.messages import Finish, PeerDied, Rejected
from ramet.runtime.engine_client.submission import Prompt
from ramet.runtime.errors import ClientError, RametError, ServerError

OPENAI_NAMES = {"return_logprob": "logprobs", "logprob_start_len": "logprobs", "top_logprobs_num": "top_logprobs"}


def queue_full() -> ServerError:
    return ServerError("The request queue is full.", 503)


def draining() -> ServerError:
    return ServerError("The server is shutting down and takes no new requests.", 503)


def drain_over() -> ServerError:
    return ServerError("The server is shutting down, and the request did not end in time (--drain-timeout-s).", 503)


def out_of_time(timeout_s: float) -> ServerError:
    return ServerError(f"The request did not finish within {timeout_s:g} s (--request-timeout-s).", 504)


def peer_died(message: PeerDied) -> ServerError:
    return ServerError(f"The {message.name} process ended with code {message.code}; this server is ending too.")


def internal() -> ServerError:
    return ServerError("The server failed on this request; its log says why.")


def rejected(message: Rejected, prompt: Prompt) -> ClientError:
    """The tokenizer's refusal, its place written as this client wrote it."""
    place = message.error.place
    for theirs in ("text", "input_ids", "input_embeds"):
        if re.match(rf"{theirs}(\[|$)", place):
            place = prompt.place + place.removeprefix(theirs)
            break
    if prompt.params_place == "":  # OpenAI's names
        place = OPENAI_NAMES.get(place, place)
    if place.startswith("sampling_params."):
        place = (prompt.params_place + place.removeprefix("sampling_params")).removeprefix(".")
    return ClientError.of(message.error).at(place)


def aborted(finish: Finish) -> RametError:
    """The error of a sequence that the engine, not its client, aborted."""
    if 400 <= finish.status < 500:
        return ClientError("", finish.message, status=finish.status)
    return ServerError(finish.message, finish.status)
