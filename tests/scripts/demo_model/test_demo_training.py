"""The training script, small: the loss falls, a run that was cut off goes on exactly, the folder is a Llama's."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scripts.demo_model.__main__ import main
from scripts.demo_model.batches import encode, make_batch, pack
from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.mix import make_document
from scripts.demo_model.measure import exact_matches
from scripts.demo_model.network import Network, Shape
from scripts.demo_model.train import Plan, Run
from scripts.demo_model.vocabulary import END_OF_TEXT, PAD, train_tokenizer

SMALL = Shape(vocab=1024, hidden=64, layers=2, heads=2, kv_heads=1, intermediate=96, context=512)
FEW = Plan(
    first_steps=7, second_steps=3, rows=2, length=192, long_rows=1, long_length=512, long_every=2, warm_up=2,
    tokenizer_documents=800, measure_documents=8, measure_every=100, save_every=4, log_every=2,
)  # fmt: skip


class CutOff(Exception):
    pass


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(model folder, work folder) of the command itself, in the bundled model's shape: some seconds where products of
    bfloat16 are fast, and three minutes elsewhere, for torch's Muon has no other type.
    """
    base = tmp_path_factory.mktemp("demo")
    options = dict(
        first_steps=15, second_steps=3, rows=2, length=128, warm_up=4, long_rows=1, long_length=256, log_every=3
    )
    options |= dict(tokenizer_documents=2000, measure_documents=3, measure_every=18, save_every=9)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "scripts.demo_model", "train", base / "model", "--work", base / "work"]
    subprocess.run([*command, "--no-compile", *flags], check=True)
    return base / "model", base / "work"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_loss_falls_and_the_log_says_so(smoke: tuple[Path, Path]) -> None:
    log = (smoke[1] / "training.log").read_text()
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", log)]
    assert len(losses) == 6 and losses[-1] < losses[0] - 1.5
    assert "machine:" in log and "held out:" in log and "plan: Plan(seed=1" in log


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_transformers_reads_the_folder_and_computes_the_same(smoke: tuple[Path, Path]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, work = smoke
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = Network(Shape())
    network.load_state_dict(torch.load(work / "state.pt", weights_only=True)["network"])
    # the folder holds bfloat16: compare with the same rounding
    network.load_state_dict({name: value.bfloat16().float() for name, value in network.state_dict().items()})
    ids = torch.tensor([tokenizer("The capital of France is Paris. 37 + 58 =")["input_ids"]])
    with torch.no_grad():
        ours = network.hidden(ids, None) @ network.embed_tokens.weight.T
        torch.testing.assert_close(ours, model(ids).logits, atol=2e-4, rtol=2e-4)
    assert tokenizer.decode(ids[0]) == "The capital of France is Paris. 37 + 58 ="
    turn = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert turn == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_folder_is_complete_and_small(smoke: tuple[Path, Path]) -> None:
    folder, _ = smoke
    names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert sum(path.stat().st_size for path in folder.iterdir()) < 24_000_000
    config = json.loads((folder / "config.json").read_text())
    assert config["max_position_embeddings"] >= 4096 and config["torch_dtype"] == "bfloat16"


def test_a_run_that_was_cut_off_goes_on_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Run(FEW, SMALL, tmp_path / "whole", "cpu")
    whole.train(compiled=False)
    cut = Run(FEW, SMALL, tmp_path / "cut", "cpu")
    one_step = cut._one_step

    def fail_at_six(forward):  # type: ignore[no-untyped-def]
        if cut.step == 6:
            raise CutOff
        return one_step(forward)

    monkeypatch.setattr(cut, "_one_step", fail_at_six)
    with pytest.raises(CutOff):
        cut.train(compiled=False)
    again = Run(FEW, SMALL, tmp_path / "cut", "cpu")
    assert again.step == 4  # the last save
    again.train(compiled=False)
    assert (again.step, again.tokens) == (whole.step, whole.tokens)
    for name, value in whole.network.state_dict().items():
        torch.testing.assert_close(again.network.state_dict()[name], value, atol=1e-6, rtol=1e-5, msg=name)


def test_a_work_folder_of_another_plan_is_refused(tmp_path: Path) -> None:
    Run(FEW, SMALL, tmp_path, "cpu").save()
    with pytest.raises(ValueError, match="another run: seed is 1 there, 2 asked; give"):
        Run(replace(FEW, seed=2), SMALL, tmp_path, "cpu")


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("decay", 0.0, "must be > 0"),
        ("decay", 1.5, "must be at most 1"),
        ("rows", 0, "must be > 0"),
        ("second_steps", -1, "must be >= 0"),
        ("long_length", 513, "must be at most the context, 512"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_name(tmp_path: Path, field: str, value: float, why: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value}, {why}"):
        Run(replace(FEW, **{field: value}), SMALL, tmp_path, "cpu")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "m", "--work", "w", "--decay=0"], "decay is 0.0, must be > 0"),
        (["train", "m", "--work", "w", "--tokenizer-documents=5"], "the texts gave"),
        (["evaluate", "nowhere"], "folder is nowhere, must hold a model"),
    ],
)
def test_a_bad_command_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["demo_model", *arguments])
    with pytest.raises(SystemExit, match=says) as ended:  # Python prints its text and ends with 1
        main()
    assert "\n" not in str(ended.value)


@pytest.fixture(scope="module")
def tokenizer():  # type: ignore[no-untyped-def]
    draw = Draw("tokenizer")
    return train_tokenizer([make_document(draw).text for _ in range(800)], 1024)


def test_every_digit_is_its_own_token_and_every_byte_comes_back(tokenizer) -> None:  # type: ignore[no-untyped-def]
    assert tokenizer.encode("4096").tokens == ["4", "0", "9", "6"]
    text = "Naïve 東京 😀\n\t {}" + "".join(map(chr, range(256)))
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.encode("<tool_call>\n").tokens[0] == "<tool_call>"
    assert tokenizer.decode(tokenizer.encode("a<|im_end|><think>").ids) == "a<think>"


def test_packing_cuts_nothing_and_weighs_the_produced_parts(tokenizer) -> None:  # type: ignore[no-untyped-def]
    documents = [
        Document("a", ("The capital of France is", " Paris."), emphasis=3.0),
        Document("b", ("", "x " * 400)),
        Document("c", ("1 + 1 =", " 2")),
    ]
    first, too_long, last = encode(tokenizer, documents)
    batch = pack([first, too_long, last], rows=1, length=64)
    assert batch.documents.max() == 2  # the long one is left out, whole
    tokens, targets, weights = (field[0].tolist() for field in (batch.tokens, batch.targets, batch.weights))
    length = len(first.ids)
    assert tokens[:length] == first.ids and first.ids[-1] == END_OF_TEXT
    assert targets[: length - 1] == first.ids[1:] and weights[length - 1] == 0  # nothing follows a document
    assert weights[first.answer - 1] == pytest.approx(3.0) and weights[0] == pytest.approx(0.1)
    assert tokens[length : length + len(last.ids)] == last.ids
    assert set(tokens[length + len(last.ids) :]) == {PAD} and sum(weights[length + len(last.ids) :]) == 0


def test_documents_of_a_row_do_not_see_each_other(tokenizer) -> None:  # type: ignore[no-untyped-def]
    """The loss of two packed documents is that of each alone."""
    torch.manual_seed(0)
    network = Network(SMALL)
    one, other = encode(tokenizer, [make_document(Draw(seed)) for seed in (1, 2)])

    def loss(members: list) -> tuple[float, float]:
        batch = pack(members, 1, 512)
        weight = float(batch.weights.sum())
        mean = network(batch.tokens, batch.targets, batch.weights, batch.documents).item()
        return mean * weight, weight

    (alone, weight), (beside, other_weight) = loss([one]), loss([other])
    together, both = loss([one, other])
    assert both == pytest.approx(weight + other_weight) and together == pytest.approx(alone + beside, rel=1e-5)


def test_a_step_always_sees_the_same_batch(tokenizer) -> None:  # type: ignore[no-untyped-def]
    first, again, next_one = (make_batch(tokenizer, make_document, 1, step, 2, 256) for step in (5, 5, 6))
    assert torch.equal(first.tokens, again.tokens) and not torch.equal(first.tokens, next_one.tokens)
    assert (first.documents > 0).float().mean() > 0.9


def test_exact_matches_counts_the_answers_that_greedy_decoding_would_give(tokenizer) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    network = Network(SMALL)
    known, unknown = Document("known", ("one two", " three")), Document("unknown", ("nine ten", " eleven"))
    batch = pack(encode(tokenizer, [known]), 1, 64)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for _ in range(40):
        network(batch.tokens, batch.targets, batch.weights, batch.documents).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert exact_matches(network, tokenizer, [known, unknown, known], 64) == {"known": (2, 2), "unknown": (0, 1)}
