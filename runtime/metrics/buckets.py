"""Bounds of histograms: ours first, then those that other servers publish for the same number."""

Bounds = tuple[float, ...]
Own = tuple[Bounds, tuple[Bounds, ...]]


def _125(most: int) -> Bounds:
    """1, 2, 5, 10, ... up to `most`."""
    return tuple(n * 10**e for e in range(len(str(most))) for n in (1, 2, 5) if n * 10**e <= most)


VLLM_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
VLLM_TOKEN_GAP = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
VLLM_LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
TOKENS = _125(1_000_000)
SGLANG_FIRST_TOKEN = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0,
)  # fmt: skip
SGLANG_TOKEN_GAP = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0,
    2.0, 4.0, 6.0, 8.0,
)  # fmt: skip
SGLANG_LATENCY = (*SGLANG_FIRST_TOKEN, 600.0, 1200.0, 1800.0, 2400.0)
SGLANG_QUEUE = (
    0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0,
    200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 1200.0, 1400.0, 1600.0, 1800.0, 2000.0, 2500.0,
    3000.0,
)  # fmt: skip

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_GAPS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 5.0)

FIRST_TOKEN: Own = _SECONDS, (VLLM_FIRST_TOKEN, SGLANG_FIRST_TOKEN)
TOKEN_GAP: Own = _GAPS, (VLLM_TOKEN_GAP, SGLANG_TOKEN_GAP)
LATENCY: Own = _SECONDS, (VLLM_LATENCY, SGLANG_LATENCY)
QUEUE: Own = _SECONDS, (VLLM_LATENCY, SGLANG_QUEUE)
PROMPT: Own = TOKENS, ()
OUTPUT: Own = TOKENS, ()
