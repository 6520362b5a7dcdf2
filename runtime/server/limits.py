"""Limits of fields that both their checks and their schemas name. Decides numbers, knows no field."""

MOST_IDS = 1024  # chosen tokens at each place
MOST_KEY_CHARS = 1024  # of a key or salt of the cache
MAX_RID_CHARS = 256
MOST_EMBED = 1e4  # of a number of an embedding: sums over layers must stay within float16's 65504
