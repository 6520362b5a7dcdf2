"""`ramet bench vision`: several questions to one picture and to one film, with cache, without, and by transformers.

The workloads of section 6 of the SGLang paper that see: LLaVA-Bench (24 pictures, 60 questions, LLaVA-1.5) and
ActivityNet (questions to films, LLaVA-OneVision in the place of LLaVA-NeXT). Pictures, films, questions and weights are
made up. `cache`: an LLM with everything on; `no cache`: the same without prefix cache and without kept features;
`transformers`: its generate in this process on the same weights, with its own processor, a question at a time as the
models' authors publish it. A round shows all three the same pictures, which none has seen, so everything is cold;
variants run in turn. Throughput counts a picture for each question, as the paper does, and of films their frames. All
outputs have the same length and are drawn greedily in float32; how many are the same texts is told as well.
"""

import argparse
import io
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from ramet import function, gen, image, video
from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.programs.seeing import IMAGE, TEXT, TOWER, VIDEO, film, picture, write_llava, write_onevision
from ramet.bench.programs.words import text
from ramet.bench.rounds import told, turned
from ramet.bench.values import positive

CACHE, NO_CACHE, TRANSFORMERS = "cache", "no cache", "transformers"
FRAMES = 8
FILM_S = 4.0
AT_ONCE = 64
QUESTION = 40  # tokens


class VisionQuestion(NamedTuple):
    """One question. `seen`: a PNG or an MP4."""

    seen: bytes
    question: str


class VisionWorkload(NamedTuple):
    name: str
    write: Callable[..., None]  # a checkpoint
    side: int  # pixels of what its tower reads
    show: Callable[[str], bytes]
    num: int  # pictures or films
    num_questions: int  # to all of them
    frames: int = 1  # that one question is about
    paper: tuple[float, float] = (0.0, 0.0)  # frames a second, by the authors' implementation and by SGLang

    def asked(self, round_name: str, share: float = 1.0) -> list[VisionQuestion]:
        """The first pictures have one question more where they do not divide. A picture's stand together."""
        num, draw = max(1, round(self.num * share)), random.Random(f"{self.name} {round_name}")
        total = max(num, round(self.num_questions * share))
        shown = [self.show(f"{round_name} {i}") for i in range(num)]
        counts = [total // num + (i < total % num) for i in range(num)]
        return [VisionQuestion(shown[i], text(draw, QUESTION)) for i in range(num) for _ in range(counts[i])]


def _film(seed: str) -> bytes:
    return film(seed, FILM_S)


WORKLOADS = {
    "llava-bench": VisionWorkload("llava-bench", write_llava, 336, picture, 24, 60, paper=(0.18, 1.15)),
    "activitynet": VisionWorkload("activitynet", write_onevision, 378, _film, 4, 20, FRAMES, paper=(0.02, 0.10)),
}


@function
def see(s: Any, seen: bytes, question: str, num_new: int, frames: int) -> None:
    s += image(seen) if frames == 1 else video(seen, num_frames=frames)
    s += question + gen("answer", max_tokens=num_new)


class Ours:
    """An LLM."""

    def __init__(self, folder: Path, options: argparse.Namespace, cached: bool) -> None:
        from ramet.runtime.llm import LLM

        without: dict[str, Any] = {} if cached else {"disable_radix_cache": True, "media_cache_mb": 0.0}
        self.llm = LLM(
            model_path=str(folder), max_total_tokens=options.pool_tokens, random_seed=0, log_level="warning",
            num_threads=options.num_threads, **without,
        )  # fmt: skip

    def answers(self, asked: Sequence[VisionQuestion], num_new: int, frames: int) -> list[str]:
        arguments = [{**each._asdict(), "num_new": num_new, "frames": frames} for each in asked]
        more: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "backend": self.llm}
        states = see.run_batch(arguments, num_threads=AT_ONCE, on_error="return", **more)
        for state in states:
            if (error := state.error()) is not None:
                raise BadOption(f"a question failed: {error}")
        return [state["answer"] for state in states]

    def close(self) -> None:
        self.llm.close()


class Theirs:
    """transformers' classes: the model, its image processor, and of films the frames that our decoder takes."""

    def __init__(self, folder: Path, options: argparse.Namespace, cached: bool) -> None:
        import torch
        from tokenizers import Tokenizer
        from transformers import AutoModelForImageTextToText

        if options.num_threads:
            torch.set_num_threads(options.num_threads)
        self._model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
        self._model.eval()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._side = self._model.config.vision_config.image_size

    def answers(self, asked: Sequence[VisionQuestion], num_new: int, frames: int) -> list[str]:
        return [self._answer(each, num_new, frames) for each in asked]

    def _answer(self, asked: VisionQuestion, num_new: int, frames: int) -> str:
        import torch

        question = self._tokenizer.encode(asked.question, add_special_tokens=False).ids
        pixels, token, num = self._picture(asked.seen) if frames == 1 else self._film(asked.seen, frames)
        ids = torch.tensor([[token] * num + question])
        drawn = dict(do_sample=False, max_new_tokens=num_new, eos_token_id=None, pad_token_id=0)
        with torch.inference_mode():
            out = self._model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **pixels, **drawn)
        return self._tokenizer.decode(out[0, ids.shape[1] :].tolist(), skip_special_tokens=False)

    def _picture(self, data: bytes) -> tuple[dict[str, Any], int, int]:
        """What the model is given, the token of a picture, and how many there are of it."""
        from PIL import Image
        from transformers import CLIPImageProcessorPil

        crop = {"height": self._side, "width": self._side}
        processor = CLIPImageProcessorPil(size={"shortest_edge": self._side}, crop_size=crop)
        shown = Image.open(io.BytesIO(data)).convert("RGB")
        num = (self._side // self._model.config.vision_config.patch_size) ** 2
        return dict(processor(images=[shown], return_tensors="pt")), IMAGE, num

    def _film(self, data: bytes, frames: int) -> tuple[dict[str, Any], int, int]:
        """transformers' own processors of films need torchvision: each frame is processed as a picture."""
        from transformers import SiglipImageProcessorPil

        size = {"height": self._side, "width": self._side}
        processor = SiglipImageProcessorPil(size=size, resample=3, image_mean=[0.5] * 3, image_std=[0.5] * 3)
        pixels = processor(images=list(_frames(data, frames)), return_tensors="pt")["pixel_values"]
        across = self._side // self._model.config.vision_config.patch_size
        return {"pixel_values_videos": pixels[None]}, VIDEO, frames * (-(-across // 2)) ** 2 + 1

    def close(self) -> None:
        del self._model


def _frames(data: bytes, num: int) -> Iterator[Any]:
    """Spread evenly from the first to the last."""
    import av

    with av.open(io.BytesIO(data), "r") as container:
        whole = [frame.to_image() for frame in container.decode(video=0)]
    for i in range(num):
        yield whole[i * (len(whole) - 1) // (num - 1)]


MAKERS: dict[str, tuple[type[Ours] | type[Theirs], bool]] = {
    CACHE: (Ours, True), NO_CACHE: (Ours, False), TRANSFORMERS: (Theirs, False),
}  # fmt: skip


def measure(workload: VisionWorkload, options: argparse.Namespace) -> dict[str, Any]:
    """Medians of the rounds, and ratios inside each. Raises BadOption."""
    seconds: dict[str, list[float]] = {name: [] for name in MAKERS}
    same: list[float] = []
    questions = 0
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder, ExitStack() as stack:
        workload.write(Path(folder), workload.side, TEXT, TOWER)
        engines: dict[str, Ours | Theirs] = {}
        for name, (make, cached) in MAKERS.items():
            engines[name] = made = make(Path(folder), options, cached)
            stack.callback(made.close)
            made.answers(workload._replace(num=4, num_questions=4).asked("first"), 2, workload.frames)  # workers begin
        for number in range(options.rounds):
            asked = workload.asked(str(number), options.share)
            questions, answers = len(asked), {}
            for name in turned(list(engines), number):
                start = time.perf_counter()
                answers[name] = engines[name].answers(asked, options.num_new, workload.frames)
                seconds[name].append(time.perf_counter() - start)
            same.append(statistics.mean(a == b for a, b in zip(answers[CACHE], answers[TRANSFORMERS], strict=True)))
            spent = ", ".join(f"{name} {each[-1]:.1f} s" for name, each in seconds.items())
            print(
                f"{workload.name} round {number + 1}: {spent}; {same[-1]:.0%} of the texts are transformers'",
                flush=True,
            )
    per_s = {name: round(workload.frames * questions / statistics.median(each), 3) for name, each in seconds.items()}
    ratios = {name: told([b / a for a, b in zip(seconds[CACHE], seconds[name])]) for name in (NO_CACHE, TRANSFORMERS)}
    return {
        "questions": questions, "frames": workload.frames, "per_s": per_s, "ratios": ratios,
        "same_texts": round(statistics.mean(same), 4),
        "seconds": {name: [round(value, 3) for value in each] for name, each in seconds.items()},
    }  # fmt: skip


def table(found: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'workload':<14}{'a second':>10}" + "".join(f"{name:>14}" for name in MAKERS)]
    for name, each in found.items():
        of = "pictures" if each["frames"] == 1 else "frames"
        lines.append(f"{name:<14}{of:>10}" + "".join(f"{each['per_s'][variant]:>14.2f}" for variant in MAKERS))
        authors, sglang = WORKLOADS[name].paper
        for variant, ratio in each["ratios"].items():
            span = f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"
            paper = f"; the paper's SGLang, of the authors': {sglang / authors:.1f}" if variant == TRANSFORMERS else ""
            lines.append(f"{'':<14}{span} times what {variant} does{paper}")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    try:
        found = {name: measure(WORKLOADS[name], options) for name in options.workload or WORKLOADS}
    except BadOption as error:
        print(f"ramet bench vision: {error}", file=sys.stderr)
        return 1
    print(table(found))
    made = stamp.stamp(stamp.command_line("vision", argv))
    load = {name: getattr(options, name) for name in ("rounds", "share", "num_new")}
    report.append_line(options.output_file, {"bench": "vision", **made, **load, "workloads": found})
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench vision", description=__doc__, formatter_class=formatter)
    p.add_argument("--workload", choices=list(WORKLOADS), action="append", help="default: all of them")
    p.add_argument("--rounds", type=positive, default=3, help="default 3")
    p.add_argument("--share", type=float, default=1.0, help="of the pictures and questions, default 1")
    p.add_argument("--num-new", type=positive, default=16, help="tokens of an answer, default 16")
    p.add_argument("--num-threads", type=positive)
    p.add_argument("--pool-tokens", type=positive, default=65536)
    p.add_argument("--output-file", type=Path, default=report.results_file("vision"), help=report.RESULTS_HELP)
    return p


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
