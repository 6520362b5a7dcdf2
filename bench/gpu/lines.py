"""What the parts of the table share: lines of figures, and what the command line says of the engine."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Lines = Iterator[tuple[str, dict[str, float]]]  # name, figures

# bytes of a weight of a layer, scales included; of 4 bits with float16 scale and zero for 128 inputs
WEIGHT_BYTES = {"": 2.0, "fp8": 1.0, "int4": 0.5 + 4 / 128}
PRODUCT_SPEED = {"": 1.0, "fp8": 2.0, "int4": 1.0}  # of the tensor cores, as a multiple of bfloat16's


@dataclass(frozen=True)
class LineOptions:
    num_prompts: int = 3000
    max_running: int = 512
    quantization: str = ""
    kv_cache_dtype: str = "auto"
    penalties: bool = True  # the headline with penalties too

    @property
    def engine(self) -> dict[str, Any]:
        """Keywords of an LLM."""
        more = {"quantization": self.quantization} if self.quantization else {}
        return more | {
            "kv_cache_dtype": self.kv_cache_dtype,
            "max_running_requests": self.max_running,
            "cuda_graph_max_bs": self.max_running,
        }

    @property
    def flags(self) -> list[str]:
        """The same for `ramet serve`."""
        return [word for name, value in self.engine.items() for word in (f"--{name.replace('_', '-')}", str(value))]

    @property
    def weight_bytes(self) -> float:
        return WEIGHT_BYTES[self.quantization]

    @property
    def kv_number_bytes(self) -> int:
        """Of a key's or a value's number."""
        return 1 if self.kv_cache_dtype == "fp8" else 2
