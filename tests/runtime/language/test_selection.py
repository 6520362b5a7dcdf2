"""What a select asks for: how large it may be, and which prompts are made when."""

import pytest

from ramet.ipc.messages import ChoicesReply, pack_ids, unpack_ids
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.language import FollowUpOf, SelectBody
from ramet.runtime.language.selection import ChoiceScoring

CONTEXT = 100_000


def made(num_before: int, choices: list[list[int]], context: int = CONTEXT, method: str | None = None) -> ChoiceScoring:
    tokens = ChoicesReply(
        1, pack_ids(range(num_before)), list(map(pack_ids, choices)), num_before, (), pack_ids([0]), (2,)
    )
    body = SelectBody(
        prompt=["a"],
        choices=[str(i) for i in range(len(choices))],
        method=method,
        follow_up=FollowUpOf(program="p", state=0),
    )
    return ChoiceScoring(body, "rid", tokens, context)


def test_prompts_are_made_when_they_are_asked_for() -> None:
    found = made(50, [[100 + i] for i in range(40)])
    assert len(found.prompts) == 40
    some = found.prompts[32:64]
    assert [unpack_ids(prompt.content.ids or b"")[-1] for prompt in some] == list(range(132, 140))
    assert found.prompts[0].content.ids == pack_ids([*range(50), 100])


@pytest.mark.parametrize("method", [None, "unconditional_likelihood_normalized"])
def test_one_prompt_of_all_asks_for_the_follow_up(method: str | None) -> None:
    found = made(50, [[100 + i] for i in range(40)], method=method)
    asking = [i for i, prompt in enumerate(found.prompts) if prompt.spec.follow_up is not None]
    assert asking == [39]


def test_prompts_of_all_choices_together_are_bounded() -> None:
    with pytest.raises(ClientError, match=r"comes to .* bytes over all sequences"):
        made(90_000, [[100 + i] for i in range(1000)])


def test_an_end_must_fit_behind_a_choice() -> None:
    fits = [[100] * 90, [200]]
    made(8, fits, context=100, method="exact_sequence")
    made(9, fits, context=100)
    with pytest.raises(ClientError, match=r"choices\[0\] has 100 tokens, one of them for the end"):
        made(9, fits, context=100, method="exact_sequence")
