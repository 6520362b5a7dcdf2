"""Adapters are loaded, replaced and unloaded while requests run: each request has one that its name had meanwhile.

Prompts share long prefixes, and every one is asked of every adapter, so that a cached key of another adapter, or of one
that had the name before, would show in an output.
"""

import gc
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from adapters import make_adapter
from tiny_families import make_family

from ramet.kernels.stacked_adapters import LowRank
from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM

NUM_CONTENTS, NAMES, ROUNDS = 4, ("x", "y", "z"), 14
PARAMS = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
HEAD = [7, 30, 200, 11, 150, 42, 9, 310, 77, 250, 3, 19, 90, 120, 33, 60]
PROMPTS = [[*HEAD, i, 100 + i] for i in range(4)]
Told = dict[tuple[int | None, int], list[int]]  # (content, prompt) -> output


class World:
    def __init__(self, where: Path) -> None:
        self.base = make_family(where / "base", "codellama")
        targets = ["q_proj", "v_proj", "down_proj"]
        self.folders = [
            make_adapter(self.base, where / str(i), i, r=2 + i, target_modules=targets).folder
            for i in range(NUM_CONTENTS)
        ]
        self.told: Told = {}
        for content in (None, *range(NUM_CONTENTS)):
            paths = () if content is None else (f"only={self.folders[content]}",)
            with self.llm(lora_paths=paths, disable_radix_cache=True) as llm:
                name = None if content is None else "only"
                replies = llm.generate(PROMPTS, PARAMS, lora_path=name)
                self.told |= {(content, i): reply["output_ids"] for i, reply in enumerate(replies)}

    def llm(self, **options: Any) -> LLM:
        settled = dict(dtype="float32", check_invariants=True, random_seed=0, max_total_tokens=512)
        return LLM(model_path=str(self.base), **{**settled, **options})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield World(tmp_path_factory.mktemp("churn"))


def test_every_content_says_something_of_its_own(world: World) -> None:
    for i in range(len(PROMPTS)):
        assert len({tuple(world.told[content, i]) for content in (None, *range(NUM_CONTENTS))}) == NUM_CONTENTS + 1


def ask(llm: LLM, name: str | None, prompt: int) -> list[int] | str:
    try:
        (reply,) = llm.generate([PROMPTS[prompt]], PARAMS, lora_path=name)
    except ClientError as error:
        return str(error)
    assert reply["meta_info"]["finish_reason"]["type"] == "length", reply["meta_info"]
    output: list[int] = reply["output_ids"]
    return output


def change(llm: LLM, world: World, draw: random.Random, had: dict[str, int]) -> str:
    """WRITES had, the content of each name. Returns the name whose content is another one now."""
    name = draw.choice(NAMES)
    if name in had and draw.random() < 0.3:
        llm.unload_lora_adapter(name)
        del had[name]
    else:
        content = draw.randrange(NUM_CONTENTS)
        llm.load_lora_adapter(name, str(world.folders[content]), load_inplace=name in had)
        had[name] = content
    return name


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (0, dict(overlap="on", num_threads=2)),
        (1, dict(overlap="off", max_loras_per_batch=1, page_size=16)),
        (2, dict(overlap="on", num_threads=2, max_loras_per_batch=2, max_total_tokens=96)),
    ],
)
def test_no_request_is_lost_and_none_has_another_adapter(world: World, seed: int, options: dict[str, Any]) -> None:
    draw, had = random.Random(seed), dict[str, int]()
    num_refused = num_answered = 0
    with world.llm(**options) as llm, ThreadPoolExecutor(8) as pool:
        for _ in range(ROUNDS):
            before = dict(had)
            asked = [(draw.choice((None, *NAMES)), draw.randrange(len(PROMPTS))) for _ in range(8)]
            running = [pool.submit(ask, llm, name, prompt) for name, prompt in asked]
            changed = change(llm, world, draw, had)
            for (name, prompt), answer in zip(asked, running, strict=True):
                output = answer.result(timeout=120)
                may_have = {each.get(name) for each in ((before, had) if name == changed else (had,))} if name else {-1}
                if isinstance(output, str):
                    assert None in may_have and repr(name) in output, (output, may_have)
                    num_refused += 1
                else:
                    contents = {None} if name is None else may_have - {None}
                    assert output in [world.told[content, prompt] for content in contents], (name, contents)
                    num_answered += 1
        assert num_answered > 2 * ROUNDS and num_refused > 0
        for name in list(had):
            llm.unload_lora_adapter(name)
        gc.collect()
        assert not [each for each in gc.get_objects() if type(each) is LowRank]  # nothing of them is left
        llm.flush_cache()
        assert llm.state()["used_tokens"] == 0
