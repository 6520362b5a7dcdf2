"""Small tokenizers of the three kinds, built from a few lines, and model folders that hold them."""

import json
from pathlib import Path

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Source

CORPUS = [
    "the quick brown fox jumps over the lazy dog, and the end of the story is near.",
    "naïve café, größer über Straße; 東京は日本の首都です。 привет мир, 👍🏽 👩‍👩‍👧 ok",
    "User: what is 12 + 30? Assistant: 42. STOP here. Question: none.",
] * 4


def byte_level_source() -> Source:
    source = Source(models.BPE())
    source.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    source.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=alphabet, special_tokens=["<|end|>", "<|user|>"], show_progress=False
    )
    source.train_from_iterator(CORPUS, trainer)
    source.add_tokens([AddedToken("<tool>", normalized=False)])
    return source


def pieces_source() -> Source:
    """SentencePiece-style: "▁" for a space, one token for each byte."""
    words = ["▁", *"foxthe.STPé京", "▁東", "fo", "fox", "▁fox", "th", "the", "▁the", "▁▁"]
    merges = [("f", "o"), ("fo", "x"), ("▁", "fox"), ("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "▁")]
    entries = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    vocabulary = {entry: i for i, entry in enumerate(entries)}
    source = Source(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    source.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    source.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    source.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    source.add_special_tokens(["<unk>", "<s>", "</s>"])
    return source


def gemma_source() -> Source:
    """As pieces_source, without a space before a text, and with runs of spaces among its added tokens."""
    runs = ["▁" * length for length in range(2, 7)]
    words = ["▁", *"foxthe.STPé京", "▁東", "fo", "fox", "▁fox", "th", "the", "▁the", "\n", *runs, "\n\n"]
    of_runs = [(run[:at], run[at:]) for run in runs for at in range(1, len(run))]
    merges = [*of_runs, ("\n", "\n"), ("f", "o"), ("fo", "x"), ("▁", "fox"), ("t", "h"), ("th", "e"), ("▁", "the")]
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>"]
    entries = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    vocabulary = {entry: i for i, entry in enumerate(entries)}
    source = Source(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    source.normalizer = normalizers.Replace(" ", "▁")
    source.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    source.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    source.post_processor = processors.TemplateProcessing("<bos> $A", "<bos> $A <bos> $B", [("<bos>", 2)])
    source.add_special_tokens([AddedToken(each, normalized=False, special=True) for each in special])
    source.add_tokens([AddedToken(each, normalized=False) for each in (*runs, "\n\n")])
    return source


def metaspace_source(scheme: str = "first") -> Source:
    """SentencePiece-style by its pre-tokenizer, trained: bytes for characters that are rare."""
    source = Source(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    source.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    source.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<unk>", "<s>", "</s>"]
    entries = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=entries, limit_alphabet=60, show_progress=False)
    source.train_from_iterator(CORPUS, trainer)
    content = json.loads(source.to_str())
    content["added_tokens"] = content["added_tokens"][: len(special)]
    return Source.from_str(json.dumps(content))


def wordpiece_source() -> Source:
    """A decoder that looks at neighbours: spaces before all but ## and punctuation."""
    entries = ["[UNK]", "[SEP]", "a", "the", "fox", "##es", "##y", ".", ",", "stop", "do", "n't", "'"]
    source = Source(models.WordPiece({t: i for i, t in enumerate(entries)}, unk_token="[UNK]"))
    source.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    source.decoder = decoders.WordPiece("##", cleanup=True)
    source.add_special_tokens(["[UNK]", "[SEP]"])
    return source


def write_folder(source: Source, folder: Path, **files: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder
