"""Limits of fields that both their checks and their schemas name. Decides numbers, knows no field."""

MOST_IDS = 1024  # chosen tokens at each place
MOST_KEY_CHARS = 1024  # of a key or salt of the cache
MAX_RID_CHARS = 256
RID = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+$"  # no line breaks and other controls: the log prints it
MOST_EMBED = 1e4  # of a number of an embedding: sums over layers must stay within float16's 65504
