"""Not a fake: the scheduler process of a server starts only when the pipe HELD_UNTIL has been opened for writing.

Python imports it at the start of every process whose PYTHONPATH has this folder.
"""

import os
import sys

if __name__ == "sitecustomize" and sys.orig_argv[-1] == "scheduler":
    open(os.environ["HELD_UNTIL"]).close()
