"""Replies of the endpoints that make numbers of whole texts, in SGLang's and vLLM's shapes."""

from typing import Literal

from msgspec import UNSET, UnsetType

from ramet.runtime.intake.reply import MetaInfo, Reply
from ramet.runtime.server.openai.replies import Usage


class Classified(Reply, frozen=True):
    """The likeliest label, and the numbers of all."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassifyReply(Reply, frozen=True, kw_only=True, tag_field="object", tag="list"):
    id: str
    created: int
    model: str
    data: list[Classified]
    usage: Usage


class PooledState(Reply, frozen=True, kw_only=True):
    index: int
    object: Literal["pooling"] = "pooling"
    data: list[float] | str


class PoolingReply(Reply, frozen=True, kw_only=True):
    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[PooledState]
    usage: Usage


class Encoded(Reply, frozen=True, tag_field="object", tag="embedding"):
    """SGLang's: an embedding, or the classifier's own numbers under the same name. `object` is beside its keys."""

    embedding: list[float]
    meta_info: MetaInfo


class LabelScores(Reply, frozen=True, kw_only=True, tag_field="object", tag="scoring"):
    """SGLang's: of each item the scores of the label tokens."""

    model: str
    scores: list[list[float]]
    usage: Usage


class PairScore(Reply, frozen=True, kw_only=True):
    index: int
    object: Literal["score"] = "score"
    score: float


class PairScores(Reply, frozen=True, kw_only=True, tag_field="object", tag="list"):
    """vLLM's: of each pair of texts one score."""

    id: str
    created: int
    model: str
    data: list[PairScore]
    usage: Usage


class RankedText(Reply, frozen=True):
    text: str


class Ranked(Reply, frozen=True):
    index: int
    relevance_score: float
    document: RankedText | UnsetType = UNSET


class RerankReply(Reply, frozen=True, kw_only=True):
    id: str
    object: Literal["rerank"] = "rerank"
    model: str
    results: list[Ranked]
    usage: Usage
