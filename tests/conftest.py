"""What every test may import without a package: the fakes, and the maker of tiny models.

Triton kernels run in the interpreter: chosen here, before the first of them is decorated.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "fakes"))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
os.environ.setdefault("TRITON_INTERPRET", "1")
