"""Models that take media equal transformers on the same files and the same processor's arrays: float32 greedy tokens.

Prompts with one piece, several, or none are together in a batch; cut at every place; cold, and over what is cached.
"""

import sys
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from media_here import with_media_here
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
from ramet.runtime.models.towers.registry import TOWERS

NUM_NEW = 8
NEAR = 1e-3
TILED = ("llava-next", "llava-onevision")  # whose tiles of several pictures are padded to as many
IN_ROWS = ("idefics3", "smolvlm")  # whose tiles have texts between them
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
        self.architecture = read_config(self.folder)["architectures"][0]
        whole = getattr(transformers, self.architecture)
        self.whole: Any = whole.from_pretrained(self.folder, dtype=torch.float32).eval()
        self.asked = prompts_of(kind, self.token.placeholder)
        self.made = [self._made(asked) for asked in self.asked]
        self.ids = [self._ids(asked, made) for asked, made in zip(self.asked, self.made, strict=True)]

    @cached_property
    def expected(self) -> list[tuple[list[int], list[float]]]:
        return [self._greedy(ids, self._arrays(made)) for ids, made in zip(self.ids, self.made, strict=True)]

    def _made(self, asked: Asked) -> list[Processed]:
        options = {"num_pictures": len(asked.pieces)}
        return [self.media.prepare(kind, decoded(kind, piece), options) for kind, piece in asked.pieces]

    def _ids(self, asked: Asked, made: list[Processed]) -> list[int]:
        before, *behind = asked.text.split(self.token.placeholder)
        text = before + "".join(written(m, self.token.text) + b for m, b in zip(made, behind, strict=True))
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    def _arrays(self, made: list[Processed]) -> dict[str, torch.Tensor]:
        """As one call of the processor has those of several pieces."""
        names = made[0].arrays if made else ()
        arrays = {name: [torch.from_numpy(each.arrays[name]) for each in made] for name in names}
        if self.family in TILED and self.kind is IMAGE and made:
            most = max(each.shape[1] for each in arrays["pixel_values"])
            arrays["pixel_values"] = [
                torch.nn.functional.pad(each, (*[0] * 6, 0, most - each.shape[1])) for each in arrays["pixel_values"]
            ]
        dim = 1 if self.family in IN_ROWS else 0
        found = {name: torch.cat(each, dim=dim) for name, each in arrays.items()}
        if self.family == "llava-onevision" and self.kind is IMAGE and made:
            found["batch_num_images"] = torch.tensor([len(made)])
        return found

    @torch.inference_mode()
    def _greedy(self, ids: list[int], arrays: dict[str, torch.Tensor]) -> tuple[list[int], list[float]]:
        """Tokens, and the gap between the two best logits at each."""
        prompt = torch.tensor([ids])
        out = self.whole.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, eos_token_id=None, pad_token_id=0,
            max_new_tokens=NUM_NEW, output_logits=True, return_dict_in_generate=True, **self._typed(prompt), **arrays,
        )  # fmt: skip
        best = [torch.topk(logits[0], 2).values for logits in out.logits]
        return out.sequences[0, len(ids) :].tolist(), [float(first - second) for first, second in best]

    def _typed(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Which tokens see each other, of the model that asks for it."""
        return {"token_type_ids": (ids == self.token.id).long()} if self.family == "gemma3" else {}

    @torch.inference_mode()
    def numbers(self, number: int, output: list[int]) -> tuple[Any, Any]:
        """Of a prompt with what came of it, log-probabilities [T, V] and states after the final norm [T, N]."""
        ids, arrays = torch.tensor([[*self.ids[number], *output]]), self._arrays(self.made[number])
        out = self.whole(ids, output_hidden_states=True, **self._typed(ids), **arrays)
        return torch.log_softmax(out.logits[0], dim=-1).numpy(), out.hidden_states[-1][0].numpy()

    def llm(self, **options: Any) -> LLM:
        settled = {"dtype": "float32", "check_invariants": True, "random_seed": 0, "max_total_tokens": 4096}
        return with_media_here(LLM(model_path=str(self.folder), **{**settled, **options}), self.folder)

    def check(self, llm: LLM, which: slice = slice(None)) -> None:
        replies = self.asks(llm, which)
        for reply, ids, expected in zip(replies, self.ids[which], self.expected[which], strict=True):
            assert reply["meta_info"]["prompt_tokens"] == len(ids)
            for got, want, gap in zip(reply["output_ids"], *expected, strict=True):
                assert got == want or gap < TIE, (reply["output_ids"], expected)
                if got != want:
                    break

    def asks(self, llm: LLM, which: slice = slice(None), **more: Any) -> list[dict[str, Any]]:
        asked = self.asked[which]
        pieces = [[piece for _, piece in each.pieces] for each in asked]
        return self.replies(llm, [each.text for each in asked], pieces, **more)

    def replies(self, llm: LLM, prompts: list[Any], media: list[list[Any]], **more: Any) -> list[dict[str, Any]]:
        params = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}
        replies: list[dict[str, Any]] = llm.generate(prompts, params, **{f"{self.kind.value}_data": media}, **more)
        return replies

    def given(self, form: str, says_rows: bool) -> list[list[dict[str, Any]]]:
        """What a client may have computed of each prompt's pieces. `says_rows`: of tiles the rows and columns, too."""
        found = []
        for asked, made in zip(self.asked, self.made, strict=True):
            pieces = zip(asked.pieces, made, strict=True)
            found.append([self._given(form, piece, each, says_rows) for (_, piece), each in pieces])
        return found

    @torch.inference_mode()
    def _given(self, form: str, piece: Any, made: Processed, says_rows: bool) -> dict[str, Any]:
        arrays: dict[str, Any] = dict(made.arrays)
        if form == "precomputed_embedding":
            tower = import_module(f"ramet.runtime.models.towers.{TOWERS[self.architecture]}").TOWER(self.whole.model)
            (features,) = tower.features(self.kind, [{n: torch.from_numpy(array) for n, array in arrays.items()}])
            arrays = {"feature": features.numpy()}
        if self.family in IN_ROWS and says_rows:
            own: Any = self.media
            seen = own.image_processor(images=[[piece]], return_tensors="np", return_row_col_info=True)
            arrays |= {name: np.array(seen[name]) for name in ("rows", "cols")}
        return {"format": form, **arrays}


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


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_arrays_stand_for_what_they_were_made_of(family: str, kind: MediaKind, tmp_path: Path) -> None:
    """As what the processor makes, and as features, at a placeholder and behind ids that have its tokens already."""
    case = Case(family, kind, tmp_path)
    texts = [each.text for each in case.asked]
    with with_media_here(case.llm(chunked_prefill_size=16), tmp_path) as llm:
        want = case.asks(llm)
        for form in ("processor_output", "precomputed_embedding"):
            for prompts, says_rows in ((texts, True), (case.ids, False)):
                got = case.replies(llm, list(prompts), case.given(form, says_rows))
                assert [each["output_ids"] for each in got] == [each["output_ids"] for each in want]
    assert len({tuple(each["output_ids"]) for each in want}) == len(want)


def test_outputs_depend_on_what_is_seen(case: Case) -> None:
    outputs = [tuple(tokens) for tokens, _ in case.expected]
    assert len(set(outputs)) == len(outputs)


@pytest.mark.parametrize(
    ("backend", "page_size", "chunk"),
    [("cpu", 1, 7), slow(("reference", 16, -1)), slow(("cpu", 16, 1)), slow(("gather", 1, 20))],
)
def test_greedy_output_equals_transformers(case: Case, backend: str, page_size: int, chunk: int) -> None:
    """Cold and together, then again, now over what is cached; each tower computes each piece once."""
    with case.llm(attention_backend=backend, page_size=page_size, chunked_prefill_size=chunk) as llm:
        case.check(llm)
        case.check(llm)
        for number in range(len(case.asked)):
            case.check(llm, slice(number, number + 1))


def test_numbers_of_every_token_equal_transformers(case: Case) -> None:
    """Log-probabilities and states, also of the tokens that stand for media; in chunks, and over what is cached."""
    made: dict[int, tuple[Any, Any]] = {}
    with case.llm(chunked_prefill_size=7) as llm:
        for asked in ({"return_logprob": True, "logprob_start_len": 0}, {"return_hidden_states": True}) * 2:
            for number, reply in enumerate(case.asks(llm, **asked)):
                output, meta = reply["output_ids"], reply["meta_info"]
                if case.token.id in output:  # which transformers takes for one of the prompt's
                    output = output[: output.index(case.token.id)]
                if number not in made:
                    made[number] = case.numbers(number, output)
                (logprobs, states), ids = made[number], [*case.ids[number], *output]
                if "return_logprob" in asked:
                    told = [*meta["input_token_logprobs"], *meta["output_token_logprobs"]][: len(ids)]
                    assert [token for _, token, _ in told] == ids
                    expected = logprobs[range(len(ids) - 1), ids[1:]]
                    np.testing.assert_allclose([value for value, _, _ in told[1:]], expected, atol=NEAR)
                else:
                    matrix, *rows = meta["hidden_states"]
                    told = np.array([*matrix, *rows])[: len(ids) - 1]
                    np.testing.assert_allclose(told, states[: len(ids) - 1], atol=NEAR, rtol=NEAR)


def test_retracted_requests_go_on_as_if_they_had_not_been(case: Case) -> None:
    shared = len(case.ids[1]) - 4  # of the second and third
    room = sum(map(len, case.ids)) - shared + NUM_NEW
    with case.llm(max_total_tokens=room, schedule_conservativeness=0.01) as llm:
        case.check(llm)
        assert llm.state()["retractions"] > 0
