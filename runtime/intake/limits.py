"""Bounds of what one request may bring; those of sampling stand in ipc/params.py."""

INT32 = 1 << 31
# What a body is made of, outside its strings. While it is read no one else is served, and these are a few tenths of a
# second each: a list or object costs 1 us, a number or text in a list 0.1 us, an entry of an object 1 us.
MAX_OPENED = 1 << 18  # lists and objects
MAX_VALUES = 1 << 21  # entries of lists and objects
MAX_KEYS = 1 << 18  # entries of objects
MAX_DEPTH = 64  # levels of a body
MAX_SEQUENCES = 16_384  # prompts times samples of one request
MAX_INPUTS = 2048  # of one request for embeddings
MAX_TURNS = 1 << 14  # messages, items or content blocks: each costs time before any token is counted
MAX_TOOLS = 1 << 10
MAX_TOP = 256  # best tokens at each place
MAX_CHAT_TOP = 20  # the same of chats, as OpenAI's: each place is an object with texts and bytes
MAX_IDS = 1024  # chosen tokens at each place
MAX_KEY_CHARS = 1024  # of a key or salt of the cache
MAX_RID_CHARS = 256
MAX_EMBED = 1e4  # of a number of an embedding: sums over layers must stay within float16's 65504
MAX_CONSTRAINT_BYTES = 1 << 18  # of a schema, a pattern, a grammar; a server's queue holds one for each prompt
MAX_CHOICES = 10_000  # texts of which an output is one
