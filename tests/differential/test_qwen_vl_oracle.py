"""Qwen2-VL, 2.5-VL and 3-VL equal transformers on the same files and the same arrays of the processor: greedy, float32.

Pictures and films, several of them, mixed with texts in a batch, for any chunks, over what is cached, and retracted.
"""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent))
from media_here import with_media_here
from oracle import Oracle
from samples import slow
from tiny_media import FAMILIES, FIRST_TOKEN

from ramet.ipc.media import MediaKind
from ramet.runtime.llm import LLM
from ramet.runtime.media.formats.base import Frames, Processed
from ramet.runtime.media.formats.registry import format_of

NAMES = ("qwen2-vl", "qwen2.5-vl", "qwen3-vl")
NUM_NEW = 10
IMAGE, VIDEO = MediaKind.IMAGE, MediaKind.VIDEO
PLACEHOLDERS = {
    IMAGE: "<|vision_start|><|image_pad|><|vision_end|>",
    VIDEO: "<|vision_start|><|video_pad|><|vision_end|>",
}
ARRAYS = {IMAGE: ("pixel_values", "image_grid_thw"), VIDEO: ("pixel_values_videos", "video_grid_thw")}
TYPES = {FIRST_TOKEN + 2: 1, FIRST_TOKEN + 3: 2}
GREEDY = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}


class Piece(NamedTuple):
    kind: MediaKind
    data: bytes  # encoded without loss
    decoded: Any


class Ask(NamedTuple):
    text: str
    pieces: tuple[Piece, ...]


def picture(width: int, height: int, seed: int) -> Piece:
    image, data = pixels(width, height, seed), io.BytesIO()
    image.save(data, "PNG")
    return Piece(IMAGE, data.getvalue(), image)


def film(num: int, width: int, height: int, seed: int, seconds: float) -> Piece:
    """Frames that are each shown for so long, as an animation."""
    frames, data = [pixels(width, height, seed * 1000 + i) for i in range(num)], io.BytesIO()
    options: Any = dict(save_all=True, append_images=frames[1:], duration=int(1000 * seconds), lossless=True)
    frames[0].save(data, "WEBP", **options)
    return Piece(VIDEO, data.getvalue(), Frames(frames, [i * seconds for i in range(num)]))


def pixels(width: int, height: int, seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def ask(*parts: str | Piece) -> Ask:
    pieces = tuple(part for part in parts if not isinstance(part, str))
    return Ask("".join(part if isinstance(part, str) else PLACEHOLDERS[part.kind] for part in parts), pieces)


ONE, OTHER, LONG = picture(70, 40, 1), picture(33, 90, 2), film(24, 20, 20, 4, 0.5)
SHORT = film(5, 40, 50, 3, 1.0)
ASKS = [
    ask("A picture: ", ONE, " What does it show?"),
    ask("A picture: ", ONE, " Which colours are there?"),
    ask(ONE, " and ", OTHER, " differ in"),
    ask("No picture at all, but a text that is as long as one with a picture."),
    ask("A film: ", SHORT, " What happens?"),
    ask(LONG, ":"),  # whose times go further than what follows
    ask("First ", OTHER, ", then ", SHORT, ", and again ", OTHER, OTHER, "."),
    ask("Hi"),
]


class Case:
    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForImageTextToText, AutoTokenizer

        self.folder, found = folder, format_of(folder)
        assert found is not None
        self.media = found
        model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
        self.oracle = Oracle(model.eval())
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        pieces = [piece for each in ASKS for piece in each.pieces]
        self.seen = {id(piece): self.taken(piece) for piece in pieces}
        self.made = {id(piece): found.prepare(piece.kind, self.seen[id(piece)], {}) for piece in pieces}
        self.ids = [self.ids_of(each) for each in ASKS]
        self.expected = [self.greedy(each, ids) for each, ids in zip(ASKS, self.ids, strict=True)]

    def taken(self, piece: Piece) -> Any:
        """The picture, or the frames that are taken of the film."""
        if piece.kind is IMAGE:
            return piece.decoded
        images, times = piece.decoded
        indices = self.media.frames_of(len(times), 1 / times[1], self.media.fps, self.media.max_frames)
        return Frames([images[i] for i in indices], [times[i] for i in indices])

    def ids_of(self, each: Ask) -> list[int]:
        parts = each.text.replace("video_pad", "image_pad").split("<|image_pad|>")
        text = parts[0]
        for piece, after in zip(each.pieces, parts[1:], strict=True):
            pad = "<|image_pad|>" if piece.kind is IMAGE else "<|video_pad|>"
            made = self.made[id(piece)].expansion
            text += "".join(part if isinstance(part, str) else pad * part for part in made) + after
        ids: list[int] = self.tokenizer.encode(text)
        return ids

    @torch.inference_mode()
    def greedy(self, each: Ask, ids: list[int], num_new: int = NUM_NEW) -> tuple[list[int], list[float]]:
        given: dict[str, Any] = {"mm_token_type_ids": torch.tensor([[TYPES.get(token, 0) for token in ids]])}
        for kind, names in ARRAYS.items():
            made: list[Processed] = [self.made[id(piece)] for piece in each.pieces if piece.kind is kind]
            for name in names if made else ():
                given[name] = torch.from_numpy(np.concatenate([one.arrays[name] for one in made]))
        films = [self.seen[id(piece)] for piece in each.pieces if piece.kind is VIDEO]
        if films and "Qwen2_5" in type(self.oracle.model).__name__:
            given["second_per_grid_ts"] = [2 * film.times[1] for film in films]
        asked: Any = dict(do_sample=False, eos_token_id=None, pad_token_id=0, max_new_tokens=num_new)
        out = self.oracle.model.generate(
            torch.tensor([ids]), **given, **asked, output_logits=True, return_dict_in_generate=True
        )
        best = [torch.topk(logits[0], 2).values for logits in out.logits]
        return out.sequences[0, len(ids) :].tolist(), [float(first - second) for first, second in best]

    def llm(self, **options: Any) -> LLM:
        settled = {"dtype": "float32", "check_invariants": True, "random_seed": 0, "max_total_tokens": 2048}
        return with_media_here(LLM(model_path=str(self.folder), **{**settled, **options}), self.folder)

    def check(self, asked: Sequence[int], replies: list[dict[str, Any]]) -> None:
        """`asked` are indices into ASKS."""
        for index, reply in zip(asked, replies, strict=True):
            assert reply["meta_info"]["prompt_tokens"] == len(self.ids[index])
            tokens, gaps = self.expected[index]
            for got, want, gap in zip(reply["output_ids"], tokens, gaps, strict=True):
                if got != want:  # what follows a tie differs
                    assert gap < 1e-4, f"{ASKS[index].text}: {reply['output_ids']} for {tokens}"
                    break


def generate(llm: LLM, asked: Sequence[int], **extras: Any) -> list[dict[str, Any]]:
    """The replies of these, together."""
    each = [ASKS[index] for index in asked]
    media = {
        field: [[piece.data for piece in one.pieces if piece.kind is kind] for one in each]
        for field, kind in (("image_data", IMAGE), ("video_data", VIDEO))
    }
    replies: list[dict[str, Any]] = llm.generate([one.text for one in each], GREEDY, **media, **extras)
    return replies


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(FAMILIES[request.param](tmp_path_factory.mktemp("qwen")))


EVERY = range(len(ASKS))


def test_outputs_vary(case: Case) -> None:
    outputs = [tuple(tokens) for tokens, _ in case.expected]
    assert len(set(outputs)) == len(outputs)
    assert np.mean([len(set(output)) for output in outputs]) > NUM_NEW / 2


@pytest.mark.parametrize(
    ("backend", "page_size", "chunk"),
    [
        ("cpu", 1, 7),
        *(slow(("reference", page_size, chunk)) for page_size, chunk in ((16, 7), (1, 1))),
        *(slow(("cpu", page_size, chunk)) for page_size in (1, 16) for chunk in (1, 2, 3, 5, 11, 16, -1)),
    ],
)
def test_greedy_equals_transformers(case: Case, backend: str, page_size: int, chunk: int) -> None:
    """Together, cold and then over what is cached; then one by one, with nothing cached."""
    with case.llm(attention_backend=backend, page_size=page_size, chunked_prefill_size=chunk) as llm:
        case.check(EVERY, generate(llm, EVERY))
        case.check(EVERY, generate(llm, EVERY))
        for index in EVERY:
            llm.flush_cache()
            case.check([index], generate(llm, [index]))


def test_text_before_a_picture_and_the_picture_are_shared(case: Case) -> None:
    """What follows a picture that is cached is at the same places, and equals transformers."""
    with case.llm(page_size=1) as llm:
        case.check([0], generate(llm, [0]))
        (reply,) = generate(llm, [1])
        case.check([1], [reply])
        shared = next(i for i, (one, other) in enumerate(zip(*case.ids[:2], strict=False)) if one != other)
        assert reply["meta_info"]["cached_tokens"] == shared > len(case.made[id(ONE)].grids)


def test_an_output_behind_media_is_the_prefix_of_a_longer_prompt(case: Case) -> None:
    """Of the film whose times go further than its tokens, too: what was drawn is where more of the prompt would be."""
    with case.llm(page_size=1) as llm:
        for index in (0,) if "qwen3" in type(case.media).__module__ else (0, 5):  # that has texts in its films
            (first,) = generate(llm, [index])
            ids = case.ids[index] + first["output_ids"] + case.ids[3][:4]
            pieces = ASKS[index].pieces
            (field,) = ("image_data",) if pieces[0].kind is IMAGE else ("video_data",)
            (reply,) = llm.generate([ids], GREEDY, **{field: [[pieces[0].data]]})
            assert reply["meta_info"]["cached_tokens"] >= len(ids) - 5
            tokens, gaps = case.greedy(ASKS[index], ids)
            assert reply["output_ids"] == tokens or min(gaps) < 1e-4


def test_retracted_requests_equal_transformers(case: Case) -> None:
    """Memory for less than what they all come to."""
    asked = [*EVERY, *EVERY]
    least = max(len(ids) for ids in case.ids) + 2 * NUM_NEW
    options: Any = dict(schedule_conservativeness=0.01, chunked_prefill_size=16, disable_radix_cache=True)
    with case.llm(page_size=1, max_total_tokens=least, **options) as llm:
        case.check(asked, generate(llm, asked))
        assert llm.state()["retractions"] > 0


def arrays_of(case: Case, piece: Piece, form: str) -> dict[str, Any]:
    """What a client may have computed of it."""
    arrays = case.made[id(piece)].arrays
    if form == "processor_output":
        return {"format": form, **arrays}
    pixels, grid = (torch.from_numpy(arrays[name]) for name in ARRAYS[piece.kind])
    with torch.inference_mode():
        made = case.oracle.model.model.get_image_features(pixels, grid)
    levels = [made.pooler_output, *getattr(made, "deepstack_features", ())]
    features = torch.cat([torch.cat(list(level)) for level in levels], dim=1)
    return {"format": form, "feature": features.numpy(), ARRAYS[piece.kind][1]: arrays[ARRAYS[piece.kind][1]]}


@pytest.mark.parametrize("form", ["processor_output", "precomputed_embedding"])
def test_arrays_in_the_place_of_media_equal_transformers(case: Case, form: str) -> None:
    """Behind ids that are expanded already."""
    with case.llm(chunked_prefill_size=16) as llm:
        for index, field in ((0, "image_data"), (4, "video_data")):
            given = arrays_of(case, ASKS[index].pieces[0], form)
            if field == "video_data":  # 2.5-VL counts its seconds
                given["second_per_grid_ts"] = np.array([2.0], np.float32)
            case.check([index], llm.generate([case.ids[index]], GREEDY, **{field: [[given]]}))
