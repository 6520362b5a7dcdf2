"""The tokenizer of a GGUF file as tokenizer.json, tokenizer_config.json and generation_config.json have it.

Decides which kinds are read: byte-level BPE with its merges ("gpt2"), and SentencePiece ("llama"), whose merges are
those pairs of pieces that make a piece, the likeliest piece first.
"""

import math
from typing import Any

from ramet.runtime.gguf.metadata import Metadata

Json = dict[str, Any]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of tokens
SPACE = "▁"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER, _ENDING = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK3 = (  # one behind the other: numbers, Chinese and Japanese, and the rest
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SMOLLM = (r"\p{N}", GPT2)  # each digit alone
SPLITS: dict[str, str | tuple[str, ...] | None] = {  # tokenizer.ggml.pre -> where words end; None: as GPT-2
    "default": None, "gpt-2": None, "llama-bpe": LLAMA3, "llama3": LLAMA3, "llama-v3": LLAMA3, "dbrx": LLAMA3,
    "smaug-bpe": LLAMA3, "qwen2": QWEN2, "deepseek-r1-qwen": QWEN2, "tekken": TEKKEN, "smollm": SMOLLM,
    "gpt-4o": GPT4O, "deepseek-v3": DEEPSEEK3,
}  # fmt: skip
WHOLE_WORDS_FIRST = ("llama-bpe", "llama3", "llama-v3", "tekken")  # a word that is a token needs no merges
BEGINS = WHOLE_WORDS_FIRST  # with the token of a text's beginning, unless the file says otherwise
ENDS = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>")  # of an output
NAMED = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def tokenizer_files(metadata: Metadata) -> dict[str, Json]:
    """File name -> what it holds. Raises ConfigError for a tokenizer that ramet does not read."""
    tokens, types = metadata.texts("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    types = [NORMAL] * len(tokens) if types is None else types
    if not isinstance(types, list) or len(types) != len(tokens):
        raise metadata.error(
            "tokenizer.ggml.token_type", f"must be a list of {len(tokens)} numbers, as there are tokens"
        )
    if len(set(tokens)) != len(tokens):
        raise metadata.error("tokenizer.ggml.tokens", "must not have a text twice")
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise metadata.error("tokenizer.ggml.model", "must be gpt2 or llama; name another with --tokenizer-path")
    if kind == "llama":
        tokens = _with_marks(tokens, types)
    ids = {name: _id(metadata, key, len(tokens)) for name, key in NAMED.items()}
    pre = metadata.get("tokenizer.ggml.pre") or "default"
    begins = _flag(metadata, "add_bos_token", kind == "llama" or pre in BEGINS) and ids["bos_token"] is not None
    ends = _flag(metadata, "add_eos_token", False) and ids["eos_token"] is not None
    make = _byte_level if kind == "gpt2" else _pieces
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(i, tokens[i], types[i]) for i in range(len(tokens)) if types[i] in ADDED],
        **make(metadata, tokens, types),
    }
    around = [i for i in (ids["bos_token"] if begins else None, ids["eos_token"] if ends else None)]
    _surround(tokenizer, [None if i is None else tokens[i] for i in around], around)
    named = {name: tokens[i] for name, i in ids.items() if i is not None}
    template = metadata.get("tokenizer.chat_template")
    settings = {**named, "add_bos_token": begins, "add_eos_token": ends, "clean_up_tokenization_spaces": False}
    if isinstance(template, str):
        settings["chat_template"] = template
    ending = [
        i for i in (ids["eos_token"], *(_id(metadata, key, len(tokens)) for key in ("eot", "eom"))) if i is not None
    ]
    ending += [i for i, text in enumerate(tokens) if text in ENDS and types[i] in (CONTROL, USER_DEFINED)]
    return {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {**settings, "tokenizer_class": "PreTrainedTokenizerFast"},
        "generation_config.json": {"eos_token_id": sorted(set(ending)), "bos_token_id": ids["bos_token"]},
    }


ADDED = (UNKNOWN, CONTROL, USER_DEFINED)


def _id(metadata: Metadata, name: str, num: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    value = metadata.get(key)
    if value is not None and not (isinstance(value, int) and 0 <= value < num):
        raise metadata.error(key, f"must be from 0 to {num - 1}")
    return value


def _flag(metadata: Metadata, name: str, default: bool) -> bool:
    value = metadata.get(f"tokenizer.ggml.{name}")
    return default if value is None else bool(value)


def _added(i: int, text: str, kind: int) -> Json:
    same = {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {**same, "special": kind != USER_DEFINED}


def _surround(tokenizer: Json, texts: list[str | None], ids: list[int | None]) -> None:
    """WRITES the post-processor, for a text that begins or ends with a token of its own."""
    before, after = ([{"SpecialToken": {"id": text, "type_id": 0}}] if text is not None else [] for text in texts)
    if not before and not after:
        return
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    template = {
        "type": "TemplateProcessing",
        "single": [*before, first, *after],
        "pair": [*before, first, *after, *before, second, *after],
        "special_tokens": {
            text: {"id": text, "ids": [i], "tokens": [text]}
            for text, i in zip(texts, ids, strict=True)
            if text is not None
        },
    }
    has = tokenizer["post_processor"]
    tokenizer["post_processor"] = template if has is None else {"type": "Sequence", "processors": [has, template]}


def _byte_level(metadata: Metadata, tokens: list[str], types: list[int]) -> Json:
    pre = metadata.get("tokenizer.ggml.pre") or "default"
    if pre not in SPLITS:
        raise metadata.error("tokenizer.ggml.pre", f"must be one of {', '.join(SPLITS)}; or use --tokenizer-path")
    split, merges = SPLITS[pre], [merge.split(" ", 1) for merge in metadata.texts("tokenizer.ggml.merges")]
    vocabulary = {text: i for i, text in enumerate(tokens)}
    if any(len(merge) != 2 or not {*merge, "".join(merge)} <= vocabulary.keys() for merge in merges):
        raise metadata.error("tokenizer.ggml.merges", "must be pairs of tokens that make a token")
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": split is None}
    words = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False}
        for each in ((split,) if isinstance(split, str) else split or ())
    ]
    return {
        "normalizer": {"type": "NFC"} if split == QWEN2 else None,
        "pre_tokenizer": level if split is None else {"type": "Sequence", "pretokenizers": [*words, level]},
        "post_processor": None,
        "decoder": {**level, "use_regex": True},
        "model": _bpe(vocabulary, merges, ignore_merges=pre in WHOLE_WORDS_FIRST),
    }


def _bpe(vocabulary: dict[str, int], merges: list[list[str]], **options: Any) -> Json:
    usual = dict(dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                 byte_fallback=False, ignore_merges=False)  # fmt: skip
    return {"type": "BPE", **usual, **options, "vocab": vocabulary, "merges": merges}


def _with_marks(tokens: list[str], types: list[int]) -> list[str]:
    """Runs of spaces as the vocabulary spells them: llama.cpp's converter writes spaces in tokens of the user."""
    known = set(tokens)
    marked = [
        text.replace(" ", SPACE) if kind == USER_DEFINED else text for text, kind in zip(tokens, types, strict=True)
    ]
    return [
        new if new.strip(SPACE) == "" and new not in known else old for old, new in zip(tokens, marked, strict=True)
    ]


def _pieces(metadata: Metadata, tokens: list[str], types: list[int]) -> Json:
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise metadata.error("tokenizer.ggml.scores", f"must be a list of {len(tokens)} numbers, as there are tokens")
    begins = _flag(metadata, "add_space_prefix", True)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prefix = [{"type": "Prepend", "prepend": SPACE}] if begins else []
    stripped = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if begins else []
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    unknown = next((tokens[i] for i, kind in enumerate(types) if kind == UNKNOWN), None)
    vocabulary = {text: i for i, text in enumerate(tokens)}
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*prefix, spaces]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *stripped]},
        "model": _bpe(vocabulary, _merges(tokens, types, scores), unk_token=unknown, fuse_unk=True, byte_fallback=True),
    }


def _merges(tokens: list[str], types: list[int], scores: list[float]) -> list[list[str]]:
    places = {
        text: i for i, (text, kind) in enumerate(zip(tokens, types, strict=True)) if kind in (NORMAL, USER_DEFINED)
    }
    found = []
    for text, i in places.items():
        score = scores[i] if not math.isnan(scores[i]) else -math.inf
        if types[i] == USER_DEFINED:  # the file's score is not its own: it comes before all others, as in llama.cpp
            score = math.inf
        for at in range(1, len(text)):
            left, right = places.get(text[:at]), places.get(text[at:])
            if left is not None and right is not None:
                found.append((-score, i, left, right))
    return [[tokens[left], tokens[right]] for _, _, left, right in sorted(found)]
