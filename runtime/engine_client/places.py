"""Where a client wrote what the engine refuses. The engine names fields as /generate has them."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from ramet.ipc.errors import ClientError, ErrorRecord

PARAMS = "sampling_params"
PROMPTS = ("text", "input_ids", "input_embeds")
# OpenAI's names; sampling parameters are fields of the body itself
OF_OPENAI = MappingProxyType(
    {
        PARAMS: "",
        "return_logprob": "logprobs",
        "logprob_start_len": "logprobs",
        "top_logprobs_num": "top_logprobs",
    }
)


class FieldPlaces(Struct, frozen=True):
    """How the client of one prompt wrote it. A list of prompts has one for each."""

    prompt: str = "prompt"  # the prompt's field
    entry: str = ""  # where the prompt stands in a list of prompts, as "[2]"
    # the client's field by the engine's; also by a place inside the constraint, which begins with "#"
    fields: Mapping[str, str] = OF_OPENAI

    @property
    def all_prompts(self) -> str:
        """The field without the index of this prompt."""
        return self.prompt.removesuffix(self.entry)

    def as_written(self, error: ErrorRecord) -> ClientError:
        """A refusal of the prompt, with the client's name of its field.

        Where the client wrote one value for all prompts, the fact says which prompt it does not suit.
        """
        inside, _, fact = error.fact.partition(": ")
        if inside.startswith("#") and inside in self.fields:
            return ClientError(self.fields[inside], fact, error.hint, error.status, error.code)
        end = re.match("[a-z_]*", error.place).end()  # type: ignore[union-attr]  # it matches every text
        name, rest = error.place[:end], error.place[end:]
        if name in PROMPTS and not rest.startswith("."):  # `text.format` is no prompt
            return ClientError.of(error).at(self.prompt + rest)
        written, fact = self.fields.get(name, name), error.fact
        if name and name != PARAMS and self.entry and self.entry not in written:
            fact += f"; the prompt is {self.prompt}"
        return ClientError((written + rest).removeprefix("."), fact, error.hint, error.status, error.code)
