"""Held-out accuracy without a server: is the last produced part of a document what greedy decoding would give?

Decides only that: teacher forcing is exact for this, because greedy output matches an answer token by token or not at
all. The evaluation through the server (evaluate.py) is what counts; this is what the training log shows.
"""

from collections import defaultdict

import torch
from tokenizers import Tokenizer

from scripts.demo_model.batches import encode
from scripts.demo_model.corpus.draw import Document
from scripts.demo_model.network import Network


@torch.no_grad()
def exact_matches(
    network: Network, tokenizer: Tokenizer, documents: list[Document], length: int
) -> dict[str, tuple[int, int]]:
    """family -> (answers that are right in every token, answers asked). Documents over `length` tokens are left out."""
    found: dict[str, list[bool]] = defaultdict(list)
    for one in encode(tokenizer, documents):
        if len(one.ids) > length:
            continue
        tokens = torch.tensor([one.ids[:-1]], device=network.cos.device)
        hidden = network.hidden(tokens, None)[0, one.answer - 1 :]
        guesses = (hidden @ network.embed_tokens.weight.T).argmax(-1).tolist()
        found[one.family].append(guesses == one.ids[one.answer :])
    return {family: (sum(right), len(right)) for family, right in sorted(found.items())}
