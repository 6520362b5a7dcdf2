"""Checks of what few requests ask for that need the vocabulary or the pattern compiler. Knows no prompt text."""

from collections.abc import Sequence

from ramet.ipc.messages import RouteLayout
from ramet.ipc.params import shown
from ramet.ipc.spec import ExpertRoutes, HiddenMode, LogprobSpec
from ramet.runtime.errors import ClientError
from ramet.runtime.text.automaton import AutomatonLeaf, PatternError
from ramet.runtime.text.pattern import MAX_FOLDED, MAX_STATES, build_automaton
from ramet.runtime.text.tokenizer import check_ids

MAX_PROMPT_SCORES = 1 << 20  # log-probabilities of one prompt in all its samples, which come within a few steps
MAX_SCORES = 1 << 22  # those of the prompt and the outputs, which come token by token
MAX_HIDDEN = 1 << 22  # numbers of one sequence's hidden states
MAX_ROUTES = 1 << 25  # numbers of experts of one prompt in all its samples, 4 bytes each


def check_bias(biases: Sequence[tuple[int, float]], vocab_size: int) -> None:
    """Raises ClientError for the first token id outside [0, vocab_size)."""
    for token, _ in biases:
        if token >= vocab_size:
            raise ClientError(
                "sampling_params.logit_bias", f"has the key {token}, must be a token id in [0, {vocab_size})"
            )


def check_logprobs(
    ask: LogprobSpec, prompt_tokens: int, new_tokens: int, samples: int, vocab_size: int, has_ids: bool
) -> None:
    """Raises ClientError where what is asked does not fit the prompt, the vocabulary, or a reply of a sane size.

    new_tokens: how many each of the samples may have.
    """
    if ask.start is not None and not has_ids:
        raise ClientError("logprob_start_len", f"is {ask.start}, must be -1: a prompt of embeddings has no token ids")
    if ask.num_top > vocab_size:
        raise ClientError("top_logprobs_num", f"is {ask.num_top}, must be in [0, {vocab_size}], the vocabulary")
    check_ids("token_ids_logprob", ask.ids, vocab_size)
    start = prompt_tokens if ask.start is None else ask.start
    if start > prompt_tokens:
        raise ClientError("logprob_start_len", f"is {start}, must be at most the prompt's {prompt_tokens} tokens")
    each, places = 1 + ask.num_top + len(ask.ids), prompt_tokens - start
    if each * places * samples > MAX_PROMPT_SCORES:
        fact = f"asks for {each} log-probabilities at each of {places} prompt tokens in each of n = {samples} samples"
        hint = "start later, or ask for fewer at each token"
        raise ClientError("logprob_start_len", f"{fact}, must be at most {MAX_PROMPT_SCORES}", hint)
    if each * (places + new_tokens) * samples > MAX_SCORES:
        fact = f"makes {each} log-probabilities for each of up to {places + new_tokens} tokens in n = {samples} samples"
        hint = "lower max_new_tokens or n, or ask for fewer at each token"
        raise ClientError("return_logprob", f"{fact}, must be at most {MAX_SCORES}", hint)


def check_hidden(which: HiddenMode, num_tokens: int, hidden_size: int) -> None:
    """Raises ClientError where there are no hidden states, or where those of `num_tokens` are too large a reply."""
    if not hidden_size:
        raise ClientError("return_hidden_states", "is set, but what runs here has no hidden states")
    if which is HiddenMode.ALL and num_tokens * hidden_size > MAX_HIDDEN:
        fact = f"asks for {num_tokens} tokens of {hidden_size} numbers, must be at most {MAX_HIDDEN} numbers"
        raise ClientError("return_hidden_states", fact, hint='lower max_new_tokens, or ask for "last"')


def check_routes(
    ask: ExpertRoutes, prompt_tokens: int, new_tokens: int, samples: int, layout: RouteLayout | None
) -> None:
    """Raises ClientError where no experts are kept, or where those of all tokens are too large a reply.

    new_tokens: how many each of the samples may have.
    """
    place = "routed_experts_prompt_start" if ask.compact else "routed_experts_start_len"
    if layout is None:
        fact = "is set, but this server does not keep which experts tokens go through"
        raise ClientError(place if ask.compact else "return_routed_experts", fact, "--enable-return-routed-experts")
    if ask.start > prompt_tokens:
        raise ClientError(place, f"is {ask.start}, must be in [0, {prompt_tokens}], the prompt's tokens")
    tokens = (prompt_tokens + new_tokens - ask.start) * samples
    if tokens * layout.numbers > MAX_ROUTES:
        fact = f"asks for the experts of up to {tokens} tokens, {layout.numbers} numbers each"
        raise ClientError(
            place, f"{fact}, must be at most {MAX_ROUTES} numbers", "start later, or lower max_new_tokens or n"
        )


def check_asks_for_none(asks_for_tokens: bool) -> None:
    """Of a model without a head for tokens. Raises ClientError where it is asked for some, or for log-probabilities."""
    if asks_for_tokens:
        fact = "has no head that predicts tokens: it generates nothing and has no log-probabilities"
        raise ClientError("model", fact, "it answers /v1/embeddings and /pooling, and /classify if it is a classifier")


def check_stop_patterns(patterns: Sequence[str]) -> None:
    """Raises ClientError for the first pattern that is not served, or that makes all of them together too large."""
    states, folded = 0, set[AutomatonLeaf]()
    for index, pattern in enumerate(patterns):
        place = f"sampling_params.stop_regex[{index}]"
        try:
            automaton = build_automaton(pattern)
        except PatternError as error:
            raise ClientError(place, f"is {shown(pattern)}, which {error}") from error
        states += automaton.size
        folded.update(leaf for leaf in automaton.leaves if leaf.is_folded)
        if len(folded) > MAX_FOLDED:
            fact = f"brings all patterns to {len(folded)} different characters and classes that ignore case"
            raise ClientError(place, f"{fact}, must be at most {MAX_FOLDED} together", hint="leave (?i) out")
        if states > MAX_STATES:
            fact = f"brings all patterns to {states} states, must be at most {MAX_STATES} together"
            raise ClientError(place, fact, hint="lower the counted repeats")
