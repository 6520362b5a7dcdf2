"""Models that take media equal transformers on the same files and the same processor's arrays: float32 greedy tokens.

Prompts with one piece, several, or none are together in a batch; cut at every place; cold, and over what is cached.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from samples import slow
from tiny_media import FAMILIES
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parent))
from oracle import TIE

from ramet.ipc.media import MediaKind
from ramet.runtime.llm import LLM
from ramet.runtime.media.formats.base import Frames, Processed, Sound
from ramet.runtime.media.formats.registry import format_of
from ramet.runtime.models.registry import read_config

NUM_NEW = 8
TILED = ("llava-next", "llava-onevision")  # whose tiles of several pictures are padded to as many
Piece = tuple[MediaKind, Any]
IMAGE, VIDEO, AUDIO = MediaKind


class Asked(NamedTuple):
    """A text with the placeholders of its pieces, in order."""

    text: str
    pieces: tuple[Piece, ...] = ()


def noise(*shape: int, seed: int) -> Any:
    return np.random.RandomState(seed).randint(0, 256, (*shape, 3), dtype=np.uint8)


def picture(seed: int, width: int, height: int) -> Piece:
    return IMAGE, Image.fromarray(noise(height, width, seed=seed))


FIRST, SECOND, LARGE = picture(0, 40, 30), picture(1, 33, 70), picture(2, 64, 64)
FILM, TALL = (VIDEO, noise(3, 30, 40, seed=3)), (VIDEO, noise(3, 40, 30, seed=4))
SOUND, LONG = ((AUDIO, np.random.RandomState(n).randn(n).astype(np.float32) / 10) for n in (9_000, 32_000))


def prompts_of(kind: MediaKind, placeholder: str) -> list[Asked]:
    one, other, third = {IMAGE: (FIRST, SECOND, LARGE), VIDEO: (FILM, TALL, FILM), AUDIO: (SOUND, LONG, SOUND)}[kind]
    return [
        Asked("no picture is here"),
        Asked(f"{placeholder}what is this", (one,)),
        Asked(f"{placeholder}what is that and the other", (one,)),
        Asked(f"of these {placeholder} and {placeholder} which is", (one, other)),
        Asked(f"the end is {placeholder}", (third,)),
        Asked("nor is one here, but more of the text"),
    ]


class Case:
    def __init__(self, family: str, kind: MediaKind, folder: Path) -> None:
        self.family, self.kind, self.folder = family, kind, FAMILIES[family](folder)
        media = format_of(self.folder)
        assert media is not None
        self.media, self.token = media, media.tokens[kind]
        self.tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        whole = getattr(transformers, read_config(self.folder)["architectures"][0])
        self.whole: Any = whole.from_pretrained(self.folder, dtype=torch.float32).eval()
        self.asked = prompts_of(kind, self.token.placeholder)
        self.ids, self.expected = zip(*map(self._expected, self.asked), strict=True)

    def _expected(self, asked: Asked) -> tuple[list[int], tuple[list[int], list[float]]]:
        options = {"num_pictures": len(asked.pieces)} if self.media.counts_pictures else {}
        made = [self.media.prepare(kind, decoded(kind, piece), options) for kind, piece in asked.pieces]
        before, *behind = asked.text.split(self.token.placeholder)
        text = before + "".join(written(m, self.token.text) + b for m, b in zip(made, behind, strict=True))
        ids = self.tokenizer.encode(text).ids
        return ids, self._greedy(ids, self._arrays(made))

    def _arrays(self, made: list[Processed]) -> dict[str, torch.Tensor]:
        """As one call of the processor has those of several pieces."""
        names = made[0].arrays if made else ()
        arrays = {name: [torch.from_numpy(each.arrays[name]) for each in made] for name in names}
        if self.family in TILED and self.kind is IMAGE and made:
            most = max(each.shape[1] for each in arrays["pixel_values"])
            arrays["pixel_values"] = [
                torch.nn.functional.pad(each, (*[0] * 6, 0, most - each.shape[1])) for each in arrays["pixel_values"]
            ]
        dim = 1 if self.family in ("idefics3", "smolvlm") else 0
        found = {name: torch.cat(each, dim=dim) for name, each in arrays.items()}
        if self.family == "llava-onevision" and self.kind is IMAGE and made:
            found["batch_num_images"] = torch.tensor([len(made)])
        return found

    @torch.inference_mode()
    def _greedy(self, ids: list[int], arrays: dict[str, torch.Tensor]) -> tuple[list[int], list[float]]:
        """Tokens, and the gap between the two best logits at each."""
        prompt = torch.tensor([ids])
        if self.family == "gemma3":
            arrays["token_type_ids"] = (prompt == self.token.id).long()
        out = self.whole.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, eos_token_id=None, pad_token_id=0,
            max_new_tokens=NUM_NEW, output_logits=True, return_dict_in_generate=True, **arrays,
        )  # fmt: skip
        best = [torch.topk(logits[0], 2).values for logits in out.logits]
        return out.sequences[0, len(ids) :].tolist(), [float(first - second) for first, second in best]

    def llm(self, **options: Any) -> LLM:
        settled = {"dtype": "float32", "check_invariants": True, "random_seed": 0, "max_total_tokens": 4096}
        return LLM(model_path=str(self.folder), **{**settled, **options})

    def check(self, llm: LLM, which: slice = slice(None)) -> None:
        asked, field = self.asked[which], f"{self.kind.value}_data"
        replies = llm.generate(
            [each.text for each in asked],
            {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True},
            **{field: [[piece for _, piece in each.pieces] for each in asked]},
        )
        for reply, ids, expected in zip(replies, self.ids[which], self.expected[which], strict=True):
            assert reply["meta_info"]["prompt_tokens"] == len(ids)
            for got, want, gap in zip(reply["output_ids"], *expected, strict=True):
                assert got == want or gap < TIE, (reply["output_ids"], expected)
                if got != want:
                    break


def decoded(kind: MediaKind, piece: Any) -> Any:
    if kind is VIDEO:
        return Frames([Image.fromarray(frame) for frame in piece], [i / 2 for i in range(len(piece))])
    return Sound(piece, 16_000) if kind is AUDIO else piece


def written(made: Processed, token: str) -> str:
    return "".join(part if isinstance(part, str) else token * part for part in made.expansion)


CASES = [
    ("llava", IMAGE),
    ("llava-next", IMAGE),
    ("llava-onevision", IMAGE),
    ("llava-onevision", VIDEO),
    ("idefics3", IMAGE),
    ("smolvlm", IMAGE),
    ("internvl", IMAGE),
    ("internvl", VIDEO),
    ("gemma3", IMAGE),
    ("qwen2-audio", AUDIO),
]
QUICK = ("llava-onevision", IMAGE), ("gemma3", IMAGE)


@pytest.fixture(scope="module", params=[case if case in QUICK else slow((case,)) for case in CASES], ids=str)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(*request.param, tmp_path_factory.mktemp("media"))


def test_outputs_depend_on_what_is_seen(case: Case) -> None:
    outputs = [tuple(tokens) for tokens, _ in case.expected]
    assert len(set(outputs)) == len(outputs)


@pytest.mark.parametrize(
    ("backend", "page_size", "chunk"),
    [("cpu", 1, 7), slow(("reference", 16, -1)), slow(("cpu", 16, 1)), slow(("gather", 1, 20))],
)
def test_greedy_output_equals_transformers(case: Case, backend: str, page_size: int, chunk: int) -> None:
    """Cold and together, then again, now over what is cached; each tower computes each piece once."""
    llm = case.llm(attention_backend=backend, page_size=page_size, chunked_prefill_size=chunk)
    case.check(llm)
    case.check(llm)
    for number in range(len(case.asked)):
        case.check(llm, slice(number, number + 1))


def test_retracted_requests_go_on_as_if_they_had_not_been(case: Case) -> None:
    shared = len(case.ids[1]) - 4  # of the second and third
    room = sum(map(len, case.ids)) - shared + NUM_NEW
    llm = case.llm(max_total_tokens=room, schedule_conservativeness=0.01)
    case.check(llm)
    assert llm.state()["retractions"] > 0
