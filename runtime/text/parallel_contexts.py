"""Whether the parallel contexts of a prompt are groups of its tokens, and what cannot be asked beside them."""

from ramet.ipc.messages import Generate
from ramet.runtime.errors import ClientError

MAX_CONTEXTS = 1024  # of one prompt: each is a sequence of its own while it is computed


def check_contexts(request: Generate, num_ids: int) -> None:
    """Raises ClientError. `num_ids`: tokens of the prompt."""
    if request.content.embeds is not None:
        raise ClientError("input_embeds", "has parallel contexts, which only a prompt of tokens may have")
    if request.spec.truncate is not None:
        raise ClientError("truncate_prompt_tokens", "is set, but a prompt with parallel contexts is not cut")
    if request.spec.prefix_lease_s is not None:
        raise ClientError("prefix_lease_s", "is set, but a prompt with parallel contexts is not held")
    if (num := sum(len(group) - 1 for group in request.content.contexts)) > MAX_CONTEXTS:
        raise ClientError("contexts", f"are {num}, must be at most {MAX_CONTEXTS} in one prompt")
    before = 0
    for place, group in enumerate(request.content.contexts):
        field = f"contexts[{place}]"
        if len(group) < 2:
            raise ClientError(field, f"is {list(group)}, must be the index of a token and at least 1 length")
        start, *lengths = group
        if start < before:
            raise ClientError(field, f"begins at token {start}, must be at or after {before}, where the last one ends")
        if min(lengths) < 1:
            raise ClientError(field, "has a context without tokens, must have at least 1 in each")
        before = start + sum(lengths)
        if before >= num_ids:
            fact = f"ends at token {before} of {num_ids}, must be followed by at least 1 token"
            raise ClientError(field, fact, "the output begins after a token that sees all contexts")


def end_of_contexts(request: Generate) -> int:
    """The index of the first token behind the last group; 0: there is none."""
    return sum(request.content.contexts[-1]) if request.content.contexts else 0
