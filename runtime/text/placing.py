"""Where the media of a prompt stand among its tokens: each placeholder becomes what its piece expands to.

A text is expanded before it is tokenised, as the models' processors do it, so that what stands beside a placeholder
joins with it as it did in training. Knows no queue and no array.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Sequence

from ramet.ipc.media import MediaKind, MediaTokens, PlacedMedia, Prepared
from ramet.runtime.errors import ClientError

Encode = Callable[[str], list[int]]  # a text to ids, without special tokens before it


def expand_text(text: str, media: Sequence[Prepared], tokens: MediaTokens) -> tuple[str, list[Prepared]]:
    """With what each piece expands to in the place of its placeholder, and the pieces as they stand there: of each kind
    the first one at the first placeholder. Raises ClientError.
    """
    kinds = {token.placeholder: kind for kind, token in tokens.items()}
    pattern = re.compile("|".join(map(re.escape, sorted(kinds, key=len, reverse=True))))
    order = _ordered([kinds[each.group()] for each in pattern.finditer(text)], media, tokens)
    left = iter(order)
    return pattern.sub(lambda _: _spelled(next(left), tokens), text), order


def expand_ids(
    ids: Sequence[int], media: Sequence[Prepared], tokens: MediaTokens, encode: Encode
) -> tuple[list[int], list[Prepared]]:
    """The same of ids, which may be expanded already. Raises ClientError."""
    features = {token.id for token in tokens.values()}
    if sum(token in features for token in ids) == sum(item.num_tokens for item in media) and not any(
        item.num_tokens == 1 and len(item.expansion) > 1 for item in media
    ):
        return list(ids), list(media)
    spelled = {kind: encode(token.placeholder) for kind, token in tokens.items()}
    found: list[tuple[int, MediaKind]] = []  # where each placeholder begins
    at = 0
    while at < len(ids):
        kind = next((k for k, own in spelled.items() if list(ids[at : at + len(own)]) == own), None)
        if kind is not None:
            found.append((at, kind))
        at += 1 if kind is None else len(spelled[kind])
    order = _ordered([kind for _, kind in found], media, tokens)
    out: list[int] = []
    end = 0
    for (at, kind), item in zip(found, order, strict=True):
        out += [*ids[end:at], *encode(_spelled(item, tokens))]
        end = at + len(spelled[kind])
    return [*out, *ids[end:]], order


def spans_of(ids: Sequence[int], media: Sequence[Prepared], tokens: MediaTokens) -> tuple[PlacedMedia, ...]:
    """Of an expanded prompt, the pieces in the order of their tokens. Kinds that share a token follow one another as
    in `media`. Raises ClientError where ids have others of these tokens.
    """
    features = {token.id for token in tokens.values()}
    runs, left = deque(_runs(ids, features)), list(media)
    placed = []
    while runs:
        token = ids[runs[0][0]]
        item = next((each for each in left if tokens[each.kind].id == token), None)
        if item is None:
            raise _miscounted(ids, media, features)
        left.remove(item)
        spans: list[tuple[int, int]] = []
        for num in (part for part in item.expansion if isinstance(part, int)):
            spans += _taken(runs, num, several=item.are_features and not item.grids)
        if sum(num for _, num in spans) != item.num_tokens or any(ids[first] != token for first, _ in spans):
            raise _miscounted(ids, media, features)
        placed.append(PlacedMedia(item, tuple(spans)))
    if left:
        raise _miscounted(ids, media, features)
    return tuple(placed)


def _taken(runs: deque[tuple[int, int]], num: int, several: bool) -> list[tuple[int, int]]:
    """Spans of so many tokens from the front of the runs, fewer where there are no more. `several`: a client has put
    texts between them, where no grid says how they lie.
    """
    spans = []
    while num and runs and (several or runs[0][1] >= num):
        first, length = runs.popleft()
        size = min(num, length)
        spans.append((first, size))
        num -= size
        if size < length:  # the next one follows without anything between them
            runs.appendleft((first + size, length - size))
    return spans


def end_of_media(placed: Sequence[PlacedMedia]) -> int:
    """Tokens up to the last one that has features."""
    return max((first + num for media in placed for first, num in media.spans), default=0)


def _runs(ids: Sequence[int], features: Collection[int]) -> list[tuple[int, int]]:
    """(first, length) of every run of the same token that has features."""
    runs: list[tuple[int, int]] = []
    for at, token in enumerate(ids):
        if token not in features:
            continue
        if runs and sum(runs[-1]) == at and ids[at - 1] == token:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((at, 1))
    return runs


def _spelled(item: Prepared, tokens: MediaTokens) -> str:
    """Raises ClientError for a piece whose tokens the prompt should have."""
    if item.is_expanded:
        fact = f"needs its {item.num_tokens} tokens in the prompt, between texts that its arrays do not say"
        raise ClientError(item.place, fact, "send the input_ids that the model's processor made")
    text = tokens[item.kind].text
    return "".join(part if isinstance(part, str) else text * part for part in item.expansion)


def _ordered(found: Sequence[MediaKind], media: Sequence[Prepared], tokens: MediaTokens) -> list[Prepared]:
    """For each placeholder its piece. Raises ClientError where they are not as many."""
    given = [item.kind for item in media]
    for kind in dict.fromkeys((*given, *found)):
        placeholder, num, places = tokens[kind].placeholder, given.count(kind), found.count(kind)
        if num != places:
            place = next((item.place for item in media if item.kind is kind), "text")
            fact = f"makes {num} of kind {kind.value}, but the prompt has {places} times {placeholder}"
            hint = f"write {placeholder} once where each of them stands, and in texts of a chat not at all"
            raise ClientError(place, fact, hint)
    left = {kind: iter([item for item in media if item.kind is kind]) for kind in given}
    return [next(left[kind]) for kind in found]


def _miscounted(ids: Sequence[int], media: Sequence[Prepared], features: Collection[int]) -> ClientError:
    has, needs = sum(token in features for token in ids), sum(item.num_tokens for item in media)
    fact = f"needs {needs} tokens in the prompt, which has {has} of that kind"
    return ClientError(media[0].place if media else "text", fact, "leave out the tokens that stand for media")
