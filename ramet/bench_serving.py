"""`python -m ramet.bench_serving ...`: the field's spelling of `ramet bench serving`."""

import sys

from ramet.__main__ import bench, guarded

if __name__ == "__main__":
    sys.exit(guarded(lambda argv: bench(["serving", *argv]), sys.argv[1:]))
