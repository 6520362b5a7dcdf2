"""Bounds of what one request may bring; those of sampling stand in ipc/params.py."""

INT32 = 1 << 31
# What a body is made of, outside its strings. An event loop serves no one else while it is parsed: a number or text in
# a list costs up to 0.1 us, an entry of an object 0.4 us, a list or object 1 us. So two
# bounds are shares of --max-body-items, which bounds the entries of lists and objects.
KEYS_SHARE = 32  # entries of objects are one of so many
OPENED_SHARE = 64  # lists and objects are one of so many, and so are numbers that are read digit by digit
MAX_DEPTH = 64  # levels of a body
MAX_SEQUENCES = 16_384  # prompts times samples of one request
MAX_INPUTS = 2048  # of one request for embeddings
MAX_TURNS = 1 << 14  # messages, items or content blocks: each costs time before any token is counted
MAX_TOOLS = 1 << 10
MAX_ARGUMENT_ITEMS = 1 << 21  # of a chat's calls, in arguments that are texts: as many as a body may have by default
MAX_TOP = 256  # best tokens at each place
MAX_CHAT_TOP = 20  # the same of chats, as OpenAI's: each place is an object with texts and bytes
MAX_IDS = 1024  # chosen tokens at each place
MAX_KEY_CHARS = 1024  # of a key or salt of the cache
MAX_RID_CHARS = 256
MAX_EMBED = 1e4  # of a number of an embedding: sums over layers must stay within float16's 65504
MAX_CONSTRAINT_BYTES = 1 << 18  # of a schema, a pattern, a grammar; a server's queue holds one for each prompt
MAX_CHOICES = 10_000  # texts of which an output is one
