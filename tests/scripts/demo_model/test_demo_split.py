"""The split of the demo model's corpus: what the evaluation asks for was never drawn for training."""

import re
from functools import cache
from itertools import chain, pairwise

from scripts.demo_model.cases import all_cases
from scripts.demo_model.corpus.draw import Document, Draw, combination_key, is_held_out
from scripts.demo_model.corpus.mix import SECOND, make_long_document
from scripts.demo_model.train import Plan

STEPS = 300  # of the plan's, spread over all of it
PER_STEP = 48
ROW_OF_KNOWN_FACTS = "capitals, three phrasings"


@cache
def training_documents() -> list[Document]:
    """Documents as the bundled model's run drew them: the first of many of its steps."""
    plan = Plan()
    documents = []
    for step in range(0, plan.steps, plan.steps // STEPS):
        draw = Draw(f"{plan.seed}/{step}")
        documents += [plan.document(draw, step) for _ in range(PER_STEP)]
    draw = Draw("long")
    return documents + [make_long_document(draw, plan.long_length, SECOND) for _ in range(500)]


def test_no_training_document_names_a_held_out_combination() -> None:
    for document in training_documents():
        assert not [key for key in document.keys if is_held_out(key)], document


def test_no_held_out_sum_stands_in_any_training_text() -> None:
    """Read from the texts, not from what the generators say of themselves."""
    found = 0
    for document in training_documents():
        for a, b in re.findall(r"(?<!\d)([1-9]\d) ?(?:\+|plus|and) ?([1-9]\d)(?!\d)", document.text):
            if document.family.startswith("sequences"):
                continue  # a list of unrelated numbers asks for no sum
            found += 1
            assert not is_held_out(combination_key("sum", *sorted((a, b)))), document
    assert found > 1000


def test_no_pair_of_labels_of_the_evaluation_labels_a_training_document() -> None:
    asked = {frozenset(key.split("|")[1:]) for case in all_cases() for key in case.keys if key.startswith("labels|")}
    assert len(asked) > 250
    trained = 0
    for document in training_documents():
        if document.family.startswith("labels"):
            words = sorted({part.strip() for part in document.parts[1::2]})
            trained += len(words) > 1
            assert not any(frozenset(pair) in asked for pair in pairwise(words) if len(words) == 2), document
    assert trained > 500


def test_no_prompt_of_the_evaluation_begins_a_training_document() -> None:
    prompts = {case.prompt for case in all_cases() if case.row != ROW_OF_KNOWN_FACTS}
    for document in training_documents():
        given = ""
        for part in document.parts:
            assert given not in prompts, document
            given += part


def test_every_case_but_known_facts_asks_for_a_held_out_combination() -> None:
    for case in all_cases():
        assert case.row == ROW_OF_KNOWN_FACTS or any(map(is_held_out, case.keys)), case


def test_about_a_tenth_is_held_out() -> None:
    keys = [combination_key("sum", a, b) for a in range(10, 100) for b in range(10, 100)]
    assert 0.08 < sum(map(is_held_out, keys)) / len(keys) < 0.12


def test_the_corpus_has_every_promised_family() -> None:
    families = {document.family.split(".")[0] for document in training_documents()}
    promised = "fact quiz paragraph table choice arithmetic sequences labels passage json list chat tools react prose"
    assert not set(promised.split()) - families
    shots = {document.text.count("Label:") for document in training_documents() if document.family.startswith("labels")}
    assert shots >= set(range(9))
    assert max(len(document.text) for document in training_documents()) > 8000
    assert set(chain.from_iterable(document.text for document in training_documents())) <= set(map(chr, range(10, 127)))
