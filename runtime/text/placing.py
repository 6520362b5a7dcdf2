"""Where the media of a prompt stand among its tokens: each placeholder becomes what its piece expands to.

A text is expanded before it is tokenised, as the models' processors do it, so that what stands beside a placeholder
joins with it as it did in training. Knows no queue and no array.
"""

import re
from collections.abc import Mapping, Sequence

from ramet.ipc.media import MediaKind, MediaTokens, PlacedMedia, Prepared
from ramet.runtime.errors import ClientError
from ramet.runtime.text.tokenizer import Tokenizer


def expand_text(text: str, media: Sequence[Prepared], tokens: MediaTokens) -> str:
    """With what each piece expands to in the place of its placeholder. Raises ClientError."""
    kinds = {token.placeholder: kind for kind, token in tokens.items()}
    pattern = re.compile("|".join(map(re.escape, sorted(kinds, key=len, reverse=True))))
    found = [kinds[each.group()] for each in pattern.finditer(text)]
    _check_order(found, media, tokens)
    left = iter(media)
    return pattern.sub(lambda _: _spelled(next(left), tokens), text)


def expand_ids(ids: Sequence[int], media: Sequence[Prepared], tokens: MediaTokens, tokenizer: Tokenizer) -> list[int]:
    """The same of ids, which may be expanded already. Raises ClientError."""
    features = {token.id for token in tokens.values()}
    if sum(token in features for token in ids) == sum(item.num_tokens for item in media) and not any(
        item.num_tokens == 1 and len(item.expansion) > 1 for item in media
    ):
        return list(ids)
    spelled = {kind: tokenizer.encode(token.placeholder, False) for kind, token in tokens.items()}
    out: list[int] = []
    found: list[MediaKind] = []
    at = 0
    while at < len(ids):
        kind = next((k for k, own in spelled.items() if list(ids[at : at + len(own)]) == own), None)
        if kind is None:
            out.append(ids[at])
            at += 1
            continue
        if len(found) < len(media):
            out += tokenizer.encode(_spelled(media[len(found)], tokens), False)
        found.append(kind)
        at += len(spelled[kind])
    _check_order(found, media, tokens)
    return out


def spans_of(ids: Sequence[int], media: Sequence[Prepared], tokens: MediaTokens) -> tuple[PlacedMedia, ...]:
    """ids of an expanded prompt. Raises ClientError where they hold others of its tokens."""
    features = {token.id: kind for kind, token in tokens.items()}
    runs = _runs(ids, features)
    placed, run = [], 0
    for item in media:
        spans = []
        for num in (part for part in item.expansion if isinstance(part, int)):
            if run >= len(runs) or runs[run][1] < num or features[ids[runs[run][0]]] is not item.kind:
                raise _miscounted(ids, media, features)
            first, length = runs[run]
            spans.append((first, num))
            if length == num:
                run += 1
            else:  # the next one follows without anything between them
                runs[run] = first + num, length - num
        placed.append(PlacedMedia(item, tuple(spans)))
    if run < len(runs):
        raise _miscounted(ids, media, features)
    return tuple(placed)


def end_of_media(placed: Sequence[PlacedMedia]) -> int:
    """Tokens up to the last one that has features."""
    return max((first + num for media in placed for first, num in media.spans), default=0)


def _runs(ids: Sequence[int], features: Mapping[int, MediaKind]) -> list[tuple[int, int]]:
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
    text = tokens[item.kind].text
    return "".join(part if isinstance(part, str) else text * part for part in item.expansion)


def _check_order(found: Sequence[MediaKind], media: Sequence[Prepared], tokens: MediaTokens) -> None:
    given = [item.kind for item in media]
    for kind in dict.fromkeys((*given, *found)):
        placeholder, num, places = tokens[kind].placeholder, given.count(kind), found.count(kind)
        if num != places:
            place = next((item.place for item in media if item.kind is kind), "text")
            fact = f"makes {num} of kind {kind.value}, but the prompt has {places} times {placeholder}"
            raise ClientError(place, fact, f"write {placeholder} where each of them stands")
    if list(found) != given:
        raise ClientError(media[0].place, "stands in another order than the placeholders of the prompt")


def _miscounted(ids: Sequence[int], media: Sequence[Prepared], features: Mapping[int, MediaKind]) -> ClientError:
    has, needs = sum(token in features for token in ids), sum(item.num_tokens for item in media)
    fact = f"needs {needs} tokens in the prompt, which has {has} of that kind"
    return ClientError(media[0].place if media else "text", fact, "leave out the tokens that stand for media")
