"""What every test may import without a package: the fakes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "fakes"))
