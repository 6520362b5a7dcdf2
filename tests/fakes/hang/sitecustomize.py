"""Not a fake: on SIGALRM a process spins in C with the interpreter's lock, as a defect of an extension would.

Python imports it at the start of every process whose PYTHONPATH has this folder.
"""

import re
import signal

if __name__ == "sitecustomize":
    # exponential in the number of a's; no other thread of the process runs any more
    signal.signal(signal.SIGALRM, lambda *_: re.match("(a+)+b", "a" * 64))
