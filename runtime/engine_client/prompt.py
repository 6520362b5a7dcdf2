"""Prompts as they come from intake, and how much of them one request may have."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ramet.ipc.content import Content
from ramet.ipc.media import Prepared
from ramet.ipc.spec import RequestSpec
from ramet.runtime.engine_client.places import FieldPlaces
from ramet.runtime.errors import ClientError
from ramet.runtime.media.source import GivenMedia

E = TypeVar("E")
MAX_NUMBERS = 1 << 22  # of one reply: they become lists and JSON while other requests wait

# of all prompts of one request, each times its samples: 128 samples of 127k token ids, or every body of 32 MiB once
MAX_PROMPT_BYTES = 1 << 26
SEQUENCES_AT_ONCE = 256  # the server sends them in 5 to 10 ms
BYTES_AT_ONCE = 1 << 16  # of prompts: a tokenizer reads them in 20 to 30 ms
COUNTED = "a token id or number counts 4 and a character, of a constraint too, 1, in each sample of its prompt"


def check_numbers(place: str, count: int, each: int) -> None:
    """Raises ClientError where `count` prompts, so many numbers of each, come to more than one reply holds."""
    if count * each > MAX_NUMBERS:
        fact = f"makes {count} times {each} numbers, must be at most {MAX_NUMBERS} together"
        raise ClientError(place, fact, "send it as several requests")


def check_bytes(place: str, total: int, hint: str) -> None:
    """`total`: bytes of all prompts with their samples, as Prompt.num_bytes counts them. Raises ClientError."""
    if total > MAX_PROMPT_BYTES:
        raise ClientError(
            place, f"comes to {total} bytes over all sequences, must be at most {MAX_PROMPT_BYTES}: {COUNTED}", hint
        )


class Prompt(NamedTuple):
    """One prompt, to be sampled spec.params.n times."""

    rid: str
    spec: RequestSpec
    content: Content = Content()
    batch_rid: str = ""  # of the whole request, where its prompts have rids of their own
    places: FieldPlaces = FieldPlaces()  # for errors
    sources: tuple[GivenMedia, ...] = ()  # media that are not prepared yet

    def with_media(self, media: tuple[Prepared, ...]) -> "Prompt":
        """The prompt with what was made of its sources."""
        return self._replace(content=replace(self.content, media=media), sources=())

    def id_of(self, sample: int) -> str:
        """The samples of one prompt have ids of their own; "" without a rid."""
        return f"{self.rid}-{sample}" if self.rid and self.spec.params.n > 1 else self.rid

    @property
    def num_bytes(self) -> int:
        """The bytes of one sample; the characters of a text count as its bytes."""
        constraint = self.spec.constraint
        return self.content.size + (len(constraint.text) if constraint else 0)


def in_pieces(entries: Sequence[E], weigh: Callable[[E], tuple[int, int]]) -> Iterator[Sequence[E]]:
    """Entries in order, as many at once as are sent before others are served.

    `weigh`: how many sequences or calls an entry is, and its bytes.
    """
    start, num, size = 0, 0, 0
    for end, (more, its_size) in enumerate(map(weigh, entries), 1):
        num, size = num + more, size + its_size
        if num >= SEQUENCES_AT_ONCE or size >= BYTES_AT_ONCE or end == len(entries):
            yield entries[start:end]
            start, num, size = end, 0, 0


class Weight(NamedTuple):
    """The size of prompts, each counted as often as it is sampled."""

    num_sequences: int
    num_bytes: int  # as Prompt.num_bytes counts them


def weight_of(prompts: Sequence[Prompt]) -> Weight:
    num = num_bytes = 0
    for prompt in prompts:
        num += prompt.spec.params.n
        num_bytes += prompt.spec.params.n * prompt.num_bytes
    return Weight(num, num_bytes)


def sum_of(weights: Iterable[Weight]) -> Weight:
    return Weight(*map(sum, zip(*weights, strict=True)))
