"""The media of a request, from what its client wrote to what its prompts are sent with.

Pieces are prepared once for all prompts that share them, and given back when the request's caller has left and the last
of its sequences has ended: until then the scheduler may read them.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from ramet.ipc.media import MediaKind, MediaTokens, Prepared
from ramet.runtime.access.owner import Owner
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.submission import Submission
from ramet.runtime.errors import ClientError
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.metrics.table import Metrics


class MediaService(Protocol):
    """What fetches, decodes and processes them."""

    async def prepare(self, sources: Sequence[GivenMedia], owner: Owner) -> tuple[Prepared, ...]:
        """Each of them, in order. Cancelled, or where one is refused (ClientError), it keeps none."""

    def release(self, prepared: Sequence[Prepared]) -> None:
        """Nobody reads them any more."""

    def count(self, metrics: Metrics) -> None:
        """What was prepared, what waits, and what is kept."""


class Preparing(NamedTuple):
    """What becomes of one request's media."""

    tokens: MediaTokens  # of the kinds that the model takes
    prepare: Callable[[Sequence[GivenMedia]], Awaitable[tuple[Prepared, ...]]]  # Raises ClientError

    async def of_prompt(self, sources: Sequence[GivenMedia]) -> tuple[Prepared, ...]:
        """All pieces of one prompt, in order. Raises ClientError."""
        return await self.prepare(counted(sources))


def counted(sources: Sequence[GivenMedia]) -> list[GivenMedia]:
    """The pieces of one prompt with their number: some models make less of a picture where there are several."""
    num = sum(source.kind is MediaKind.IMAGE for source in sources)
    return [
        replace(source, options={**source.options, "num_pictures": num})
        if num > 1 and source.kind is MediaKind.IMAGE
        else source
        for source in sources
    ]


async def _nobody(sources: Sequence[GivenMedia]) -> tuple[Prepared, ...]:
    raise AssertionError(f"{len(sources)} pieces of media were read that nobody can prepare")


NO_MEDIA = Preparing({}, _nobody)


def preparing(
    service: MediaService | None, tokens: MediaTokens, submission: Submission, most: int | None = None
) -> Preparing:
    """For one request, whose end releases what was prepared. `most`: pieces of it; None: any number."""
    if service is None:
        return NO_MEDIA

    async def prepare(sources: Sequence[GivenMedia]) -> tuple[Prepared, ...]:
        if most is not None and len(sources) > most:
            fact = f"is one of {len(sources)} pieces of this request, must be at most {most}"
            raise ClientError(sources[most].place, fact, "--max-media-per-request")
        prepared = await service.prepare(sources, submission.origin.owner)
        submission.at_end.append(partial(service.release, prepared))
        return prepared

    return Preparing(tokens, prepare)


async def with_media(prompts: Sequence[Prompt], media: Preparing) -> list[Prompt]:
    """The prompts with what was made of their sources. Raises ClientError."""
    named: dict[tuple[int, int], GivenMedia] = {}  # by the source, and the number of pictures beside it
    names: list[list[tuple[int, int]]] = []  # of each prompt's pieces
    for prompt in prompts:
        pieces = counted(prompt.sources)
        names.append(
            [(id(source), piece.options.get("num_pictures", 1)) for source, piece in zip(prompt.sources, pieces)]
        )
        named |= zip(names[-1], pieces, strict=True)
    prepared = dict(zip(named, await media.prepare(list(named.values())), strict=True))
    return [
        prompt.with_media(tuple(prepared[name] for name in own)) for prompt, own in zip(prompts, names, strict=True)
    ]
