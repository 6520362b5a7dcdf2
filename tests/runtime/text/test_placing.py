"""Where pieces stand in a prompt: of each kind the first one at the first placeholder, whatever stands between."""

import pytest
from msgspec import structs

from ramet.ipc.media import Grid, MediaKind, MediaToken, Prepared
from ramet.runtime.errors import ClientError
from ramet.runtime.text.placing import end_of_media, expand_ids, expand_text, spans_of
from ramet.runtime.text.tokenizer import Tokenizer

IMAGE, VIDEO, AUDIO = MediaKind
TOKENS = {IMAGE: MediaToken("<i>", "I", 7), VIDEO: MediaToken("<v>", "V", 8), AUDIO: MediaToken("<a>", "I", 7)}


def piece(kind: MediaKind, *expansion: str | int, place: str = "image_data", features: bool = False) -> Prepared:
    return Prepared(kind, place.encode(), expansion, (), "", place, are_features=features)


def test_kinds_stand_in_the_order_of_the_prompt() -> None:
    first, second, film = piece(IMAGE, 2), piece(IMAGE, "[", 1, "]"), piece(VIDEO, 3)
    text, order = expand_text("<v>x<i><i>y", [first, second, film], TOKENS)
    assert text == "VVVxII[I]y" and order == [film, first, second]


def test_spans_follow_the_tokens() -> None:
    first, second, film = piece(IMAGE, 2), piece(IMAGE, "[", 1, "]", 1), piece(VIDEO, 3)
    placed = spans_of([8, 8, 8, 1, 7, 7, 2, 7, 3, 7, 4], [first, second, film], TOKENS)
    assert [(each.item, each.spans) for each in placed] == [
        (film, ((0, 3),)), (first, ((4, 2),)), (second, ((7, 1), (9, 1))),
    ]  # fmt: skip
    assert end_of_media(placed) == 10


def test_kinds_that_share_a_token_follow_one_another_as_they_stand_in_the_text() -> None:
    picture, sound = piece(IMAGE, 1), piece(AUDIO, 2)
    _, order = expand_text("<a><i>", [picture, sound], TOKENS)
    assert [each.item for each in spans_of([7, 7, 7], order, TOKENS)] == [sound, picture]


def test_features_of_a_client_may_stand_between_its_texts() -> None:
    placed = spans_of([7, 7, 1, 7, 2, 7], [piece(IMAGE, 3, features=True), piece(IMAGE, 1)], TOKENS)
    assert [each.spans for each in placed] == [((0, 2), (3, 1)), ((5, 1),)]
    with pytest.raises(ClientError, match="image_data needs 3 tokens"):
        spans_of([7, 7, 1, 7], [piece(IMAGE, 3)], TOKENS)


def test_features_that_lie_in_a_grid_stand_together() -> None:
    item = structs.replace(piece(IMAGE, 4, features=True), grids=(Grid((0,), 2, 2),))
    assert [each.spans for each in spans_of([7, 7, 7, 7], [item], TOKENS)] == [((0, 4),)]
    with pytest.raises(ClientError, match="image_data needs 4 tokens"):
        spans_of([7, 7, 1, 7, 7], [item], TOKENS)


@pytest.mark.parametrize("text", ["<i>", "<i><i><i>", "<v><i><i>"])
def test_placeholders_are_as_many_as_pieces(text: str) -> None:
    with pytest.raises(ClientError, match="but the prompt has") as refused:
        expand_text(text, [piece(IMAGE, 1), piece(IMAGE, 1)], TOKENS)
    assert "in texts of a chat not at all" in refused.value.hint


@pytest.mark.parametrize("ids", [[7], [7, 7, 7], [7, 1, 7, 8], [1]])
def test_expanded_ids_have_the_tokens_that_the_pieces_need(ids: list[int]) -> None:
    with pytest.raises(ClientError, match="image_data needs 2 tokens"):
        spans_of(ids, [piece(IMAGE, 2)], TOKENS)


def test_a_piece_whose_texts_nobody_knows_needs_a_prompt_that_has_them(byte_level: Tokenizer) -> None:
    tokens = {IMAGE: MediaToken("<i>", "I", byte_level.encode("I", False)[0])}
    tiles = Prepared(IMAGE, b"key", (1, 1), (), "", "image_data", is_expanded=True)
    ids = byte_level.encode("a<i>", False)
    with pytest.raises(ClientError, match="image_data needs its 2 tokens in the prompt"):
        expand_text("a<i>", [tiles], tokens)
    with pytest.raises(ClientError, match="image_data needs its 2 tokens in the prompt"):
        expand_ids(ids, [tiles], tokens, lambda text: byte_level.encode(text, False))
    ids = byte_level.encode("aIbI", False)
    assert expand_ids(ids, [tiles], tokens, lambda text: byte_level.encode(text, False)) == (ids, [tiles])


def test_ids_are_expanded_or_expanded_already(byte_level: Tokenizer) -> None:
    tokens = {IMAGE: MediaToken("<i>", "I", byte_level.encode("I", False)[0])}
    pieces = [piece(IMAGE, 2), piece(IMAGE, 3)]
    written = [token for text in ("a", "<i>", "b", "<i>") for token in byte_level.encode(text, False)]
    ids, order = expand_ids(written, pieces, tokens, lambda text: byte_level.encode(text, False))
    assert byte_level.decode(ids) == "aIIbIII" and order == pieces
    assert expand_ids(ids, pieces, tokens, lambda text: byte_level.encode(text, False)) == (ids, pieces)
