"""Qwen3-Reranker's form: a causal model is asked about one document in a fixed text, and answers yes or no.

The three parts are tokenised one by one and joined as ids, as the model's authors do. Knows no tokenizer.
"""

BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
ASKED = "<Instruct>: {instruct}\n<Query>: {query}\n<Document>: {document}"
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
INSTRUCT = "Given a web search query, retrieve relevant passages that answer the query"
YES, NO = "yes", "no"
