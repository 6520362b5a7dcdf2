"""`python -m ramet.launch_server --model-path ...`: the field's spelling of `ramet serve`."""

import sys

from ramet.__main__ import guarded, serve

if __name__ == "__main__":
    sys.exit(guarded(serve, sys.argv[1:]))
