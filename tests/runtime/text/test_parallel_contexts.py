"""Which groups of contexts a prompt may have, and what cannot be asked beside them."""

from typing import Any

import pytest

from ramet.ipc.content import Content, Contexts
from ramet.ipc.messages import Generate, Limits, Rejected, pack_ids, unpack_ids
from ramet.ipc.spec import Truncation
from ramet.runtime.text.encoder import Encoder
from ramet.runtime.text.parallel_contexts import MAX_CONTEXTS
from ramet.runtime.text.tokenizer import Tokenizer
from tests.fakes.specs import make_spec

NUM_IDS = 30


@pytest.fixture(scope="session")
def encoder(byte_level: Tokenizer) -> Encoder:
    return Encoder(byte_level, Limits(4096, 8192, 430, 8, hidden_size=2))


def ask(encoder: Encoder, contexts: Contexts, num_ids: int = NUM_IDS, **asked: Any) -> Generate | Rejected:
    return encoder.admit(Generate([1], make_spec(**asked), Content(ids=pack_ids([7] * num_ids), contexts=contexts)))


@pytest.mark.parametrize(
    "contexts", [(), ((0, 1),), ((0, 10, 19),), ((5, 2, 3), (10, 1, 1)), ((5, 2, 3), (20, 4, 5)), ((28, 1),)]
)
def test_groups_that_come_in_order_are_admitted_as_they_are(encoder: Encoder, contexts: Contexts):
    admitted = ask(encoder, contexts)
    assert isinstance(admitted, Generate) and admitted.content.contexts == contexts


@pytest.mark.parametrize(
    ("contexts", "place", "said"),
    [
        (((-1, 5),), "contexts[0]", "token -1"),
        (((5,),), "contexts[0]", "at least 1 length"),
        (((),), "contexts[0]", "at least 1 length"),
        (((5, 3, 0),), "contexts[0]", "without tokens"),
        (((5, 3, -2),), "contexts[0]", "without tokens"),
        (((5, 3, 4), (11, 2)), "contexts[1]", "at or after 12"),
        (((5, 10, 15),), "contexts[0]", "ends at token 30 of 30"),
        (((5, 3), (8, 30)), "contexts[1]", "ends at token 38 of 30"),
    ],
)
def test_what_is_no_group_is_refused_by_its_place(encoder: Encoder, contexts: Contexts, place: str, said: str):
    refused = ask(encoder, contexts)
    assert isinstance(refused, Rejected) and refused.error.place == place and said in refused.error.fact


def test_the_number_of_contexts_is_bounded(encoder: Encoder):
    most = ((0, *[1] * MAX_CONTEXTS),)
    assert isinstance(ask(encoder, most, num_ids=2000), Generate)
    refused = ask(encoder, (*most, (MAX_CONTEXTS, 1)), num_ids=2000)
    assert isinstance(refused, Rejected) and f"are {MAX_CONTEXTS + 1}" in refused.error.fact


def test_a_prompt_with_contexts_is_not_cut(encoder: Encoder):
    refused = ask(encoder, ((0, 3, 4),), truncate=Truncation(5))
    assert isinstance(refused, Rejected) and refused.error.place == "truncate_prompt_tokens"


def test_embeddings_have_no_contexts(encoder: Encoder):
    request = Generate([1], make_spec(), Content(embeds=bytes(4 * 2 * NUM_IDS), contexts=((0, 3, 4),)))
    refused = encoder.admit(request)
    assert isinstance(refused, Rejected) and refused.error.place == "input_embeds"


def test_healing_takes_back_only_what_is_behind_the_last_group_and_leaves_one_token(
    encoder: Encoder, byte_level: Tokenizer
):
    table = byte_level.token_bytes_table(430)
    inner = next(
        i for i in range(430) if i in table.equal(text_of(byte_level, i)) and table.goes_on(text_of(byte_level, i))
    )
    ids = [7, *[inner] * 6]
    for start, length in ((1, 3), (1, 4), (1, 5)):
        request = Generate([1], make_spec(token_healing=True), Content(ids=pack_ids(ids), contexts=((start, length),)))
        admitted = encoder.admit(request)
        assert isinstance(admitted, Generate)
        assert unpack_ids(admitted.content.ids)[: start + length + 1] == ids[: start + length + 1]
        whole = b"".join(text_of(byte_level, token) for token in unpack_ids(admitted.content.ids)[1:]) + admitted.tail
        assert whole == text_of(byte_level, inner) * 6
    free = encoder.admit(Generate([1], make_spec(token_healing=True), Content(ids=pack_ids(ids))))
    assert isinstance(free, Generate) and free.tail, "without contexts its end is healed"


def text_of(tokenizer: Tokenizer, token: int) -> bytes:
    return tokenizer.token_bytes(token) or b""
