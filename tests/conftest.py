"""What every test may import without a package: the fakes, and the maker of tiny models."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "fakes"))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
