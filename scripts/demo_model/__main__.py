"""python -m scripts.demo_model train | train-vision | evaluate | evaluate-vision | sample: each takes --help."""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from scripts.demo_model.corpus.draw import Draw
from scripts.demo_model.corpus.mix import make_document


def main() -> None:
    from scripts.demo_model.pictures.train import PicturePlan
    from scripts.demo_model.train import Plan

    parser = argparse.ArgumentParser(prog="python -m scripts.demo_model", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_train(commands.add_parser("train", help="train a model and write its folder"), Plan)
    vision = commands.add_parser("train-vision", help="train a model that answers about pictures, and write its folder")
    _add_train(vision, PicturePlan)
    sample = commands.add_parser("sample", help="print documents of the corpus")
    sample.add_argument("count", type=int, nargs="?", default=20)
    sample.add_argument("--seed", default="sample")
    sample.add_argument("--held-out", action="store_true", help="documents that training never sees")
    for name, what in (("evaluate", "everything"), ("evaluate-vision", "about pictures")):
        _add_evaluate(
            commands.add_parser(name, help=f"ask a folder's model {what}, through a server; exit 1 if it fails")
        )
    args = parser.parse_args()
    try:
        run(args)
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None


def run(args: argparse.Namespace) -> None:
    match args.command:
        case "train":
            from scripts.demo_model.network import Shape
            from scripts.demo_model.train import Plan, Run

            train(args, Plan, Shape, Run)
        case "train-vision":
            from scripts.demo_model.pictures.network import PictureShape
            from scripts.demo_model.pictures.train import PicturePlan, PictureRun

            train(args, PicturePlan, PictureShape, PictureRun)
        case "evaluate":
            from scripts.demo_model.cases import TARGETS, all_cases

            judge(args, all_cases(), TARGETS)
        case "evaluate-vision":
            from scripts.demo_model.pictures.cases import PICTURE_TARGETS, picture_cases

            judge(args, picture_cases(), PICTURE_TARGETS)
        case "sample":
            draw = Draw(args.seed, args.held_out)
            for _ in range(args.count):
                document = make_document(draw)
                print(f"----- {document.family} {' '.join(document.keys)}")
                for place, part in enumerate(document.parts):
                    print(f"\033[1m{part}\033[0m" if place % 2 else part, end="")
                print()


def _add_evaluate(asking: argparse.ArgumentParser) -> None:
    asking.add_argument("folder", type=Path)
    asking.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"], help="one server each")
    asking.add_argument("--failures", type=int, default=0, help="wrong answers to print for each row")
    asking.add_argument("--log", type=Path, help="a training.log to add the table to")


def _add_train(parser: argparse.ArgumentParser, plan: Any) -> None:
    parser.add_argument("folder", type=Path, help="where the Hugging Face folder goes")
    parser.add_argument("--work", type=Path, required=True, help="where the run's state and log live; goes on from it")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, help="of torch; omitted: as many as there are cores")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile: slower, starts at once")
    for field in fields(plan):
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, type=type(field.default), default=field.default, help=f"default {field.default}")


def train(args: argparse.Namespace, plan: Any, shape: Any, run: Any) -> None:
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        options = {field.name: getattr(args, field.name) for field in fields(plan)}
        started = run(plan(**options), shape(), args.work, args.device)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    started.train(compiled=not args.no_compile)
    started.write(args.folder)
    print(f"wrote {args.folder}")


def judge(args: argparse.Namespace, cases: list[Any], targets: dict[str, float]) -> None:
    from scripts.demo_model.evaluate import evaluate

    raise SystemExit(0 if evaluate(args.folder, cases, targets, args.dtypes, args.failures, args.log) else 1)


if __name__ == "__main__":
    main()
