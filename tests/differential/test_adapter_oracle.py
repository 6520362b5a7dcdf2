"""Eight adapters of different ranks and layers and the model itself in one batch: each equals itself merged by PEFT."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from adapters import Made, base_of, make_adapter
from safetensors.torch import load_file, save_file
from samples import slow
from tiny_families import VOCABULARY, make_family

sys.path.insert(0, str(Path(__file__).resolve().parent))
from media_here import with_media_here
from oracle import TIE, Oracle
from PIL import Image
from tiny_media import make_llava
from tokenizers import Tokenizer

from ramet.ipc.media import MediaKind
from ramet.runtime.llm import LLM
from ramet.runtime.media.formats.registry import format_of

NUM_NEW, NEAR = 8, 1e-4
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
EVERY = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]
KINDS: dict[str, dict[str, Any]] = {
    "q-and-v": dict(r=4, target_modules=["q_proj", "v_proj"]),
    "every": dict(r=16, target_modules=EVERY),
    "patterns": dict(
        r=2, target_modules=EVERY, rank_pattern={"q_proj": 7, r"layers\.1\.mlp\.down_proj": 5},
        alpha_pattern={"q_proj": 3, "layers.0.self_attn.o_proj": 20},
    ),
    "rslora": dict(r=9, target_modules=ATTENTION, use_rslora=True),
    "rank-1": dict(r=1, target_modules=["up_proj"]),
    "one-layer": dict(r=3, target_modules=["k_proj", "down_proj"], layers_to_transform=[1]),
    "head": dict(r=5, target_modules=["lm_head", "embed_tokens", "o_proj"]),
    "saved": dict(r=2, target_modules=["gate_proj"], modules_to_save=["lm_head", "embed_tokens"]),
}  # fmt: skip
FUSED = {
    "fused": dict(r=6, target_modules=["qkv_proj", "gate_up_proj", "down_proj"]),
    "qkv": dict(r=3, target_modules=["qkv_proj"]),
}
OF_FAMILIES = {
    "phi3": FUSED,
    "glm": {"gate-up": dict(r=4, target_modules=["q_proj", "k_proj", "v_proj", "gate_up_proj"])},
    "gemma3": {"every": dict(r=4, target_modules=[*EVERY, "embed_tokens"])},
    "qwen2": {"every": dict(r=4, target_modules=EVERY)},
    "qwen3-moe": {"attention": dict(r=4, target_modules=ATTENTION)},
}


class Case:
    def __init__(self, folder: Path, kinds: dict[str, dict[str, Any]], where: Path, *, merges: bool = True) -> None:
        self.folder = folder
        self.made: dict[str, Made] = {
            name: make_adapter(folder, where / name, seed, merges=merges, **options)
            for seed, (name, options) in enumerate(kinds.items())
        }
        self.oracles: dict[str | None, Oracle] = {name: Oracle(made.model) for name, made in self.made.items()}
        self.oracles[None] = Oracle(base_of(folder))
        rng = np.random.default_rng(1)
        self.asked = [(name, rng.integers(0, VOCABULARY, n).tolist()) for name in self.oracles for n in (1, 23)]
        self.asked = self.asked[::2] + self.asked[1::2]
        self.expected = [self.oracles[name].greedy(prompt, NUM_NEW) for name, prompt in self.asked]

    def llm(self, **options: Any) -> LLM:
        paths = tuple(f"{name}={made.folder}" for name, made in self.made.items())
        settled = {"dtype": "float32", "check_invariants": True, "random_seed": 0, "max_total_tokens": 2048}
        return LLM(model_path=str(self.folder), lora_paths=paths, **{**settled, **options})

    def check(self, llm: LLM) -> None:
        """All of them together, and again, now over what is cached."""
        for _ in range(2):
            outputs = greedy(llm, self.asked)
            for (name, prompt), output, expected in zip(self.asked, outputs, self.expected, strict=True):
                again = lambda p, n, own=name: greedy(llm, [(own, p)], n)[0]  # noqa: E731
                self.oracles[name].check(prompt, output, expected, again)
        for oracle in self.oracles.values():
            assert oracle.ties <= 1


def greedy(llm: LLM, asked: list[tuple[str | None, list[int]]], num_new: int = NUM_NEW) -> list[list[int]]:
    params = {"temperature": 0, "max_new_tokens": num_new, "ignore_eos": True}
    replies = llm.generate([prompt for _, prompt in asked], params, lora_path=[name for name, _ in asked])
    return [reply["output_ids"] for reply in replies]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    where = tmp_path_factory.mktemp("adapters")
    yield Case(make_family(where / "base", "codellama"), KINDS, where)


def test_each_adapter_says_something_of_its_own(case: Case) -> None:
    prompt, asked = case.asked[-1][1], list(case.oracles)
    outputs = {tuple(case.oracles[name].greedy(prompt, NUM_NEW)[0]) for name in asked}
    assert len(outputs) > len(asked) - 2


@pytest.mark.parametrize(
    "options",
    [
        dict(attention_backend="reference"),
        dict(chunked_prefill_size=7, page_size=16),
        dict(num_threads=2, overlap="on"),
        dict(disable_cuda_graph=True, chunked_prefill_size=7),
        dict(max_loras_per_batch=3),
        dict(max_running_requests=4, overlap="on", num_threads=2),
    ],
)
def test_greedy_equals_merged(case: Case, options: dict[str, Any]) -> None:
    case.check(case.llm(**options))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_logprobs_equal_merged(case: Case, backend: str) -> None:
    llm = case.llm(attention_backend=backend, chunked_prefill_size=16)
    asked = case.asked[len(case.asked) // 2 :]
    params = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}
    replies = llm.generate(
        [prompt for _, prompt in asked], params, lora_path=[name for name, _ in asked], return_logprob=True,
        logprob_start_len=0,
    )  # fmt: skip
    for (name, prompt), reply in zip(asked, replies, strict=True):
        ids = prompt + reply["output_ids"]
        with torch.inference_mode():
            rows = torch.log_softmax(case.oracles[name].model(torch.tensor([ids])).logits[0].float(), dim=-1)
        want = rows[range(len(ids) - 1), ids[1:]].tolist()
        meta = reply["meta_info"]
        got = [value for value, _, _ in [*meta["input_token_logprobs"][1:], *meta["output_token_logprobs"]]]
        assert got == pytest.approx(want, abs=NEAR)


@pytest.mark.parametrize("family", OF_FAMILIES)
def test_families_whose_layers_are_fused_turned_scaled_or_routed(family: str, tmp_path: Path) -> None:
    merges = family != "gemma3"  # whose tied head would get what is merged into the embedding
    case = Case(make_family(tmp_path / "base", family), OF_FAMILIES[family], tmp_path, merges=merges)
    case.check(case.llm(chunked_prefill_size=16))


def test_a_tied_head_is_changed_without_the_embedding(tmp_path: Path) -> None:
    """As PEFT computes it beside the model's weights; merged it would change both."""
    kinds = {"head": dict(r=3, target_modules=["lm_head", "q_proj"]), "plain": dict(r=2, target_modules=["q_proj"])}
    case = Case(make_family(tmp_path / "base", "qwen2"), kinds, tmp_path, merges=False)
    case.check(case.llm())


OF_PICTURES = {  # behind a tower, which has layers of the same names
    "attention": dict(r=4, target_modules=r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)"),
    "embedding": dict(r=3, target_modules=r".*language_model.*\.(embed_tokens|down_proj)|lm_head"),
}


def test_each_adapter_sees_pictures_as_if_it_were_merged_and_shares_features_alone(tmp_path: Path) -> None:
    """All of them in one batch, again over what is cached, and the same prompt of each behind the others'."""
    from transformers import LlavaForConditionalGeneration as Llava

    folder = make_llava(tmp_path / "base")
    models: dict[str | None, Any] = {None: base_of(folder, Llava)}
    for seed, (name, options) in enumerate(OF_PICTURES.items()):
        models[name] = make_adapter(folder, tmp_path / name, seed, kind=Llava, **options).model
    media, tokenizer = format_of(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert media is not None
    noise = np.random.default_rng(0).integers(0, 256, (2, 40, 30, 3), dtype=np.uint8)
    pictures, texts = [Image.fromarray(each) for each in noise], ("<image>what is it", "this is <image>of what")
    asked = [(name, text, image) for text in texts for image in pictures for name in models]
    expected = []
    for name, text, image in asked:
        made = media.prepare(MediaKind.IMAGE, image, {})
        ids = tokenizer.encode(text.replace("<image>", "<image>" * made.expansion[0])).ids
        pixels = torch.from_numpy(made.arrays["pixel_values"])
        with torch.inference_mode():
            out = models[name].generate(
                torch.tensor([ids]), pixel_values=pixels, do_sample=False, eos_token_id=None, pad_token_id=0,
                max_new_tokens=NUM_NEW, output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
        best = [torch.topk(logits[0], 2).values.tolist() for logits in out.logits]
        expected.append((out.sequences[0, len(ids) :].tolist(), [first - second for first, second in best]))
    assert len({tuple(tokens) for tokens, _ in expected}) == len(asked)
    paths = tuple(f"{name}={tmp_path / name}" for name in OF_PICTURES)
    options = {"dtype": "float32", "check_invariants": True, "max_total_tokens": 2048, "lora_paths": paths}
    with LLM(str(folder), chunked_prefill_size=11, **options) as llm:  # type: ignore[arg-type]
        with_media_here(llm, tmp_path)
        for together in (True, True, False):
            if not together:
                llm.flush_cache()
            for part in [asked] if together else [[one] for one in asked]:
                names, prompts, images = zip(*part, strict=True)
                params = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}
                replies = llm.generate(list(prompts), params, image_data=list(images), lora_path=list(names))
                for one, reply in zip(part, replies, strict=True):
                    equals(reply["output_ids"], *expected[asked.index(one)])
                    if not together and one[1] == texts[0]:  # nobody with this adapter has asked about the picture
                        assert reply["meta_info"]["cached_tokens"] < 16, one
        assert llm.state()["tower_tokens"] == 2 * 16


def equals(output: list[int], tokens: list[int], gaps: list[float]) -> None:
    """But for what follows a tie."""
    for got, want, gap in zip(output, tokens, gaps, strict=True):
        if got != want:
            assert gap < TIE, (output, tokens)
            return


POISONED = {"codellama": EVERY, "qwen3-moe": ATTENTION, "deepseek-v2": ["o_proj"], "qwen3-next": ["o_proj"]}
ROWS = [(None, 23), ("a", 40), ("b", 17), ("a", 1)]
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("codellama", {"dtype": "float16"}), ("codellama", {"kv_cache_dtype": "int8", "page_size": 16}),
    ("codellama", {"attention_backend": "reference"}), ("qwen3-moe", {"dtype": "bfloat16", "quantization": "int8"}),
    ("deepseek-v2", {}), ("qwen3-next", {}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "options"), [STEPS[0], *(slow(each) for each in STEPS[1:])], ids=str)
def test_an_adapter_that_overflows_ends_its_own_requests_alone(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Beside it, and where its slots are used again, every number is the same to the last bit."""
    base = make_family(tmp_path / "base", family)
    for name, seed in (("a", 0), ("b", 1), ("huge", 0)):
        make_adapter(base, tmp_path / name, seed, r=4, target_modules=POISONED[family], merges=False)
    file, factor = tmp_path / "huge" / "adapter_model.safetensors", 6e3 if options.get("dtype") == "float16" else 1e30
    save_file({name: tensor * factor for name, tensor in load_file(file).items()}, file)
    rng = np.random.default_rng(1)
    asked, later = (
        [(name, rng.integers(0, VOCABULARY, n).tolist()) for name, n in rows]
        for rows in (ROWS, [(None, 50), ("b", 33)])
    )
    params = {"temperature": 0, "max_new_tokens": 1, "ignore_eos": True}
    settled = {"dtype": "float32", "check_invariants": True, "max_total_tokens": 256, **options}
    paths = tuple(f"{name}={tmp_path / name}" for name in ("a", "b", "huge"))
    told: dict[str, list[dict[str, Any]]] = {}
    with LLM(str(base), lora_paths=paths, **settled) as llm:
        for a in ("a", "huge"):
            told[a] = []
            for rows in (asked, later):
                names = [a if name == "a" else name for name, _ in rows]
                prompts = [prompt for _, prompt in rows]
                told[a] += llm.generate(prompts, params, lora_path=names, return_logprob=True, logprob_start_len=0)
                llm.flush_cache()
    for (name, _), before, after in zip([*asked, *later], told["a"], told["huge"], strict=True):
        if name == "a":
            finish = after["meta_info"]["finish_reason"]
            assert finish["type"] == "abort" and "not finite" in finish["message"]
            continue
        assert before["output_ids"] == after["output_ids"]
        for kind in ("input_token_logprobs", "output_token_logprobs"):
            assert before["meta_info"][kind] == after["meta_info"][kind]
