"""Models that see pictures give on a CUDA device what transformers gives on the same checkpoint and the same arrays.

Prompts with one piece, several and none together, cold and over what is cached, whatever runs the steps.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "differential"))
import test_media_oracle as pictures
import test_qwen_vl_oracle as turning
from tiny_media import FAMILIES

from ramet.ipc.media import MediaKind

pytestmark = pytest.mark.gpu
WAYS: dict[str, dict[str, Any]] = {
    "usual": {},
    "without graphs": {"disable_cuda_graph": True},
    "with graphs of prompts": {"cuda_graph_max_tokens": 256},
    "without overlap": {"overlap": "off"},
    "in small chunks": {"chunked_prefill_size": 7, "page_size": 16},
    "by the reference": {"attention_backend": "reference"},
}
ON_CARD: dict[str, Any] = {"device": "cuda", "log_level": "error"}


@pytest.fixture(scope="module", params=["llava", "gemma3"])
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> pictures.Case:
    return pictures.Case(request.param, MediaKind.IMAGE, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module", params=["qwen2-vl", "qwen3-vl"])
def qwen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> turning.Case:
    return turning.Case(FAMILIES[request.param](tmp_path_factory.mktemp(request.param)))


@pytest.mark.parametrize("way", WAYS)
def test_greedy_equals_the_oracle_behind_pictures(seeing: pictures.Case, way: str) -> None:
    """Of Gemma 3 tokens of a picture see each other."""
    with seeing.llm(**ON_CARD, **WAYS[way]) as llm:
        for _ in range(2):  # the second time with a warm cache
            seeing.check(llm)


@pytest.mark.parametrize("way", WAYS)
def test_greedy_equals_the_oracle_where_tokens_turn_by_time_height_and_width(qwen: turning.Case, way: str) -> None:
    """Pictures and films, of Qwen3-VL with features for several layers."""
    with qwen.llm(**ON_CARD, **WAYS[way]) as llm:
        for _ in range(2):
            qwen.check(turning.EVERY, turning.generate(llm, turning.EVERY))
