"""Classes, rewards and embeddings equal transformers in float32 to 1e-4, in chunks, cached or not, in any batch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from samples import slow
from tiny_families import FAMILIES, VOCABULARY, make_family
from tokenizers import Tokenizer, processors

from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM

NEAR = 1e-4
LENGTHS = [1, 7, 8, 33, 75, 40, 41]  # the last two share 30 tokens
LABELS = 3
# the same arithmetic under another layout of config.json adds no class
CLASSIFIERS = ["codellama", "qwen3", "qwen2-moe", "gemma3"]
MORE_CLASSIFIERS = ["mistral", "qwen2", "phi3", "glm", "glm4", "mixtral", "qwen3-moe", "gemma2"]
MORE_CLASSIFIERS += ["gpt-oss", "qwen3-next", "qwen3.5", "deepseek-v2", "deepseek-v3"]
BARE, MORE_BARE = ["qwen3", "glm4-moe"], ["llama", "gemma2", "mixtral"]
OPTIONS: dict[str, Any] = {
    "dtype": "float32", "check_invariants": True, "random_seed": 0, "max_total_tokens": 2048,
}  # fmt: skip


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(1)
    made = [rng.integers(5, VOCABULARY, n).tolist() for n in LENGTHS]
    made[-1][:30] = made[-2][:30]
    return made


def engine(folder: Path, **options: Any) -> LLM:
    return LLM(model_path=str(folder), **{**OPTIONS, **options})


def loaded(folder: Path, kind: str) -> Any:
    import transformers

    return getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32).eval()


@torch.inference_mode()
def logits(model: Any, ids: list[int]) -> np.ndarray:
    return model(torch.tensor([ids])).logits[0].numpy()


@torch.inference_mode()
def states(model: Any, ids: list[int]) -> np.ndarray:
    return model(torch.tensor([ids])).last_hidden_state[0].numpy()


def near(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, atol=NEAR)


@pytest.mark.parametrize("family", [*CLASSIFIERS, *map(slow, MORE_CLASSIFIERS)])
def test_a_classifier_of_every_family(tmp_path: Path, family: str):
    folder = make_family(tmp_path, family, kind="AutoModelForSequenceClassification", num_labels=LABELS)
    oracle = loaded(folder, "AutoModelForSequenceClassification")
    want = [logits(oracle, ids) for ids in prompts()]
    with engine(folder, page_size=16, chunked_prefill_size=7) as llm:
        assert llm.labels == [f"LABEL_{i}" for i in range(LABELS)]
        for _ in range(2):  # cold and together, then over what is cached
            near(llm.classify(prompts(), use_activation=False), want)
        near(llm.classify(prompts()), torch.softmax(torch.tensor(np.array(want)), 1))
        with pytest.raises(ClientError, match="no head that predicts tokens"):
            llm.generate([1, 2])


def test_every_family_has_a_classifier_here_or_transformers_has_none():
    import transformers

    types = {FAMILIES[name][0] for name in CLASSIFIERS + MORE_CLASSIFIERS}
    mapping = transformers.models.auto.modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    assert {kind for kind, _, _ in FAMILIES.values()} & mapping.keys() == types


@pytest.fixture(scope="module")
def reward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reward")
    return make_family(folder, "qwen3", kind="AutoModelForSequenceClassification", num_labels=1, pad_token_id=4)


@pytest.mark.parametrize(("page_size", "chunk"), [(1, 1), (1, -1), (16, 7)])
def test_a_reward_is_the_number_itself_and_its_probability_a_sigmoid(reward: Path, page_size: int, chunk: int):
    oracle = loaded(reward, "AutoModelForSequenceClassification")
    want = [logits(oracle, ids) for ids in prompts()]
    with engine(reward, page_size=page_size, chunked_prefill_size=chunk) as llm:
        for _ in range(2):
            near(llm.classify(prompts(), use_activation=False), want)
        near(llm.classify(prompts()), torch.sigmoid(torch.tensor(np.array(want))))


def test_padding_at_the_end_of_a_prompt_is_no_part_of_it(reward: Path):
    oracle = loaded(reward, "AutoModelForSequenceClassification")
    asked = [[9, 8, 7], [9, 8, 7, 4], [9, 4, 7, 4, 4], [4, 9]]
    with engine(reward) as llm:
        near(llm.classify(asked, use_activation=False), [logits(oracle, ids) for ids in asked])


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification", "single_label_classification"])
def test_the_problem_decides_what_makes_probabilities(tmp_path: Path, problem: str):
    more: dict[str, Any] = {"num_labels": 2, "problem_type": problem, "id2label": {0: "no", 1: "yes"}}
    folder = make_family(tmp_path, "codellama", kind="AutoModelForSequenceClassification", **more)
    raw = torch.tensor(logits(loaded(folder, "AutoModelForSequenceClassification"), [5, 6, 7]))
    want = {
        "regression": raw,
        "multi_label_classification": raw.sigmoid(),
        "single_label_classification": raw.softmax(0),
    }
    with engine(folder) as llm:
        near(llm.classify([5, 6, 7])[0], want[problem])
        assert llm.labels == ["no", "yes"]


def test_a_reward_model_of_two_layers(reward: Path, tmp_path: Path):
    """The layout of Qwen's own, whose class transformers does not have: its score is computed by hand."""
    folder = tmp_path / "rewards"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((reward / name).read_bytes())
    config = json.loads((reward / "config.json").read_text())
    config |= {"architectures": ["Qwen3ForRewardModel"]}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(reward / "model.safetensors")
    torch.manual_seed(0)
    del tensors["score.weight"]
    sizes = {"score.0.weight": (64, 64), "score.0.bias": (64,), "score.2.weight": (1, 64), "score.2.bias": (1,)}
    tensors |= {name: torch.randn(size) / 8 for name, size in sizes.items()}
    save_file(tensors, folder / "model.safetensors")
    base = loaded(reward, "AutoModelForSequenceClassification").model
    want = []
    for ids in prompts():
        inner = torch.tensor(states(base, ids)[-1]) @ tensors["score.0.weight"].T + tensors["score.0.bias"]
        want.append((inner.relu() @ tensors["score.2.weight"].T + tensors["score.2.bias"]).numpy())
    with engine(folder, chunked_prefill_size=7) as llm:
        near(llm.classify(prompts(), use_activation=False), want)


# -- decoders alone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*BARE, *map(slow, MORE_BARE)])
def test_a_decoder_without_head_embeds(tmp_path: Path, family: str):
    folder = make_family(tmp_path, family, kind="AutoModel")
    oracle = loaded(folder, "AutoModel")
    all_states = [states(oracle, ids) for ids in prompts()]
    ways = {"last": lambda x: x[-1], "mean": lambda x: x.mean(0), "cls": lambda x: x[0]}
    with engine(folder, page_size=16, chunked_prefill_size=7) as llm:
        for _ in range(2):  # cold, then warm
            for pooling, way in ways.items():
                near(llm.embed(prompts(), pooling=pooling, normalize=False), [way(each) for each in all_states])


def test_an_untied_decoder_without_head_generates_nothing_whatever_its_class_is_called(tmp_path: Path):
    folder = make_family(tmp_path, "qwen3", kind="AutoModel")
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["Qwen3ForCausalLM"]  # as Qwen3-Embedding-8B is published
    (folder / "config.json").write_text(json.dumps(config))
    want = states(loaded(folder, "AutoModel"), prompts()[3])[-1]
    with engine(folder) as llm:
        near(llm.embed(prompts()[3], pooling="last", normalize=False)[0], want)
        for asked in ({"max_new_tokens": 1}, {"max_new_tokens": 0}):
            with pytest.raises(ClientError, match=r"^model has no head"):
                llm.generate([1, 2], asked, return_logprob=True, logprob_start_len=0)
        with pytest.raises(ClientError, match=r"^model has no head"):
            llm.score([1], [[2]], [3])
        with pytest.raises(ClientError, match=r"^model is not a classifier"):
            llm.classify([1])


def test_a_tied_decoder_embeds_beside_rows_that_generate(tmp_path: Path):
    from transformers import AutoModel, AutoModelForCausalLM

    whole = make_family(tmp_path / "whole", "qwen3", tie_word_embeddings=True)
    folder = tmp_path / "bare"
    decoder = AutoModel.from_pretrained(whole, dtype=torch.float32)
    decoder.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((whole / name).read_bytes())
    causal = AutoModelForCausalLM.from_pretrained(whole, dtype=torch.float32).eval()
    want = [states(decoder.eval(), ids) for ids in prompts()]
    written = []
    for ids in prompts():
        with torch.inference_mode():
            out = causal.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False, eos_token_id=None)
        written.append(out[0, len(ids) :].tolist())

    def together(llm: LLM) -> tuple[Any, Any, Any]:
        """Steps have rows of all kinds: the calls come from three threads."""
        from concurrent.futures import ThreadPoolExecutor

        greedy = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
        with ThreadPoolExecutor(3) as pool:
            texts = pool.submit(llm.generate, prompts(), greedy)
            means = pool.submit(llm.embed, prompts(), pooling="mean", normalize=False)
            lasts = pool.submit(llm.embed, prompts(), pooling="last", normalize=False)
            return [each["output_ids"] for each in texts.result()], means.result(), lasts.result()

    with engine(folder, chunked_prefill_size=9) as llm:
        for _ in range(2):
            texts, means, lasts = together(llm)
            assert texts == written
            near(means, [each.mean(0) for each in want])
            near(lasts, [each[-1] for each in want])


# -- sentence-transformers ---------------------------------------------------------------------------------------------

DENSE, SIZE = 24, 64
QUERY = "Instruct: find it\nQuery:"


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As sentence-transformers writes one: last token, a dense layer, normalised; the tokenizer ends each text."""
    folder = make_family(tmp_path_factory.mktemp("embedder"), "qwen3", kind="AutoModel")
    kinds = ["Transformer", "Pooling", "Dense", "Normalize"]
    paths = ["", "1_Pooling", "2_Dense", "3_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for path in paths[1:]:
        (folder / path).mkdir()
    pooling = {"word_embedding_dimension": SIZE, "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({**pooling, "include_prompt": True}))
    dense = {"in_features": SIZE, "out_features": DENSE, "bias": True}
    dense["activation_function"] = "torch.nn.modules.activation.Tanh"  # type: ignore[assignment]
    (folder / "2_Dense" / "config.json").write_text(json.dumps(dense))
    torch.manual_seed(3)
    layer = {"linear.weight": torch.randn(DENSE, SIZE) / 8, "linear.bias": torch.randn(DENSE) / 8}
    save_file(layer, folder / "2_Dense" / "model.safetensors")
    prompts = {"query": QUERY, "document": ""}
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": prompts, "default_prompt_name": None})
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = "<|end_of_text|>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A $B {end}", special_tokens=[(end, tokenizer.token_to_id(end))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def sentence(embedder: Path) -> Any:
    """Text or ids -> the vector, computed as sentence-transformers does: truncated, then normalised."""
    from transformers import AutoTokenizer

    oracle, tokenizer = loaded(embedder, "AutoModel"), AutoTokenizer.from_pretrained(embedder)
    layer = load_file(embedder / "2_Dense" / "model.safetensors")

    def vector(given: Any, way: Any = lambda x: x[-1], dimensions: int | None = None) -> np.ndarray:
        ids = tokenizer(given)["input_ids"] if isinstance(given, str) else given
        made = torch.tanh(torch.tensor(way(states(oracle, ids))) @ layer["linear.weight"].T + layer["linear.bias"])
        return torch.nn.functional.normalize(made[:dimensions], dim=0).numpy()

    return vector


@pytest.fixture(scope="module", params=[(1, 5), (16, -1)], ids=["chunks", "pages"])
def embedding(request: pytest.FixtureRequest, embedder: Path) -> Iterator[LLM]:
    page_size, chunk = request.param
    with engine(embedder, page_size=page_size, chunked_prefill_size=chunk) as llm:
        yield llm


TEXTS = ["one text", "a rather longer text about the same of this", "that <|end_of_text|>", "x"]


def test_texts_end_as_the_tokenizer_ends_them_and_ids_as_they_are(embedding: LLM, sentence: Any):
    for _ in range(2):
        near(embedding.embed(TEXTS), [sentence(text) for text in TEXTS])
        near(embedding.embed(prompts()), [sentence(ids) for ids in prompts()])
    assert embedding.tokenize(TEXTS[0])[-1] == 1 and embedding.tokenize(TEXTS[0]).count(1) == 1


def test_prompts_stand_before_texts(embedding: LLM, sentence: Any):
    near(embedding.embed(TEXTS, prompt_name="query"), [sentence(QUERY + text) for text in TEXTS])
    near(embedding.embed(TEXTS, prompt_name="document"), [sentence(text) for text in TEXTS])
    with pytest.raises(ClientError, match=r"prompt_name is 'what', must be one of document, query"):
        embedding.embed(TEXTS, prompt_name="what")
    with pytest.raises(ClientError, match=r"prompt_name.*token ids get no prompt"):
        embedding.embed([1, 2], prompt_name="query")


@pytest.mark.parametrize("dimensions", [1, 10, DENSE])
def test_dimensions_are_cut_before_the_length_is_made_one(embedding: LLM, sentence: Any, dimensions: int):
    near(embedding.embed(TEXTS, dimensions=dimensions), [sentence(text, dimensions=dimensions) for text in TEXTS])


def test_more_dimensions_than_the_dense_layer_has_are_refused(embedding: LLM):
    with pytest.raises(ClientError, match=rf"dimensions is {DENSE + 1}, must be in \[1, {DENSE}\]"):
        embedding.embed(TEXTS, dimensions=DENSE + 1)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_every_pooling_goes_through_the_dense_layer(embedding: LLM, sentence: Any, pooling: str):
    way = (lambda x: x.mean(0)) if pooling == "mean" else (lambda x: x[0])
    for _ in range(2):
        near(embedding.embed(prompts(), pooling=pooling), [sentence(ids, way) for ids in prompts()])
