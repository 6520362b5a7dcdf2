"""Puts built kernels into a wheel where RAMET_BUILD_KERNELS names a machine (`make build`).

Without it a wheel has sources only, and the first start on a machine compiles them: `pip install` of a checkout or of
an sdist needs no compiler.
"""

import os
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ramet.kernels.cpu.wheel import build_all, platform_tag

MACHINE = os.environ.get("RAMET_BUILD_KERNELS", "")
PLACE = "ramet/kernels/cpu/built"


class BuildWithKernels(build_py):
    def run(self) -> None:
        super().run()
        if MACHINE and not self.editable_mode:
            build_all(Path(self.build_lib, PLACE), MACHINE)


class DistributionWithKernels(Distribution):
    def has_ext_modules(self) -> bool:
        """Libraries belong to a machine: then a wheel does."""
        return bool(MACHINE)


class WheelWithKernels(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        if not MACHINE:
            return super().get_tag()
        built = list(Path(self.get_finalized_command("build_py").build_lib, PLACE).glob("*.so"))
        return "py3", "none", platform_tag(built, MACHINE)


setup(distclass=DistributionWithKernels, cmdclass={"build_py": BuildWithKernels, "bdist_wheel": WheelWithKernels})
