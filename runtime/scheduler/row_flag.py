"""What a request asks beyond the columns of its row, as bits: a feature looks only at who has one of its bits."""


class RowFlag:
    """Bits of Request.flags, and of RowTable.flags while it runs."""

    STOP_CHECK = 1 << 0  # stop ids, strings or patterns of its own
    BIAS = 1 << 1
    LOGPROBS = 1 << 2
    HIDDEN = 1 << 3
    PROCESSOR = 1 << 4  # sees its output: it cannot be planned before its last token is known
    IGNORE_EOS = 1 << 5
    CONSTRAINED = 1 << 6  # draws what a grammar allows
    JUMPS = 1 << 7  # what follows its next token may not be drawn: it cannot be planned before that token is known
    HEALING = 1 << 8  # the end of its prompt is chosen again: its next token may be taken back
    PATTERNS = 1 << 9  # stop patterns of its own: they may take long
    FILTERED = 1 << 10  # leaves tokens out by a filter (runtime/sampling/filters.py)
    ADAPTER = 1 << 11
    EMBEDS = 1 << 12
    MEDIA = 1 << 13
    PENALTIES = 1 << 14
    MIN_NEW = 1 << 15  # its output has a least length
    SHIFTED = 1 << 16  # its tokens are at other positions to the model than their indices
    HEALED = 1 << 17  # its output begins with the end of its prompt
    LONG_ROPE = 1 << 18  # its keys are others once it is longer than a limit
    PART = 1 << 19  # it is computed for another request
    READS_OTHERS = 1 << 20  # some of what it has read was computed by others
    APART = 1 << 21  # it shares nothing with anybody
    WATCHED = 1 << 22  # a feature does something when it is opened, when its prompt is computed, or when it ends
    CONTEXTS = 1 << 23  # parallel contexts of its prompt are computed in rows of their own
    STATES = 1 << 24  # its layers have states
    CHANGES = PROCESSOR | MIN_NEW  # samples in another way from step to step
    SERIAL = PROCESSOR | JUMPS | HEALING
    MASKED = CONSTRAINED | HEALING
    TOLD_LATE = MASKED | PATTERNS  # its token is told when more is known than that it was drawn
    RETURNS = LOGPROBS | HIDDEN
