"""What a bench refuses to start with. Reported as one line, exit code 2."""


class BadOption(Exception):
    """An option, a file or a server that cannot be measured with, and what would work."""
