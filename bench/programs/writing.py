"""Tips from a skeleton, and an article that is judged on several sides. Section 6.2.4 of the SGLang paper."""

from typing import Any

from ramet import function, gen
from ramet.bench.programs.traces import Article, Topic


@function
def expand(s: Any, shots: str, tip: str, output: int) -> None:
    s += shots + tip + gen("paragraph", max_tokens=output)


@function
def tips(s: Any, topic: Topic, serial: bool) -> None:
    s += topic.head + topic.topic
    for i, output in enumerate(topic.tip_outputs):
        s += gen(f"tip {i}", max_tokens=output)
    expanded = []
    for i, output in enumerate(topic.expansion_outputs):
        expanded.append(expand(shots=topic.shots, tip=s[f"tip {i}"], output=output))
        if serial:
            expanded[-1].sync()
    for each in expanded:
        s += each["paragraph"]


@function
def judge(s: Any, article: Article, serial: bool) -> None:
    s += article.text
    forks = s.fork(len(article.dimensions))
    for fork, dimension, output in zip(forks, article.dimensions, article.outputs, strict=True):
        fork += dimension + gen("judgement", max_tokens=output)
        if serial:
            fork.sync()
    forks.join()
    for judgement in s["judgement"]:
        s += judgement
    s += article.grade + gen("grade", max_tokens=article.grade_output)
