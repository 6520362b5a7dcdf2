"""The time limit of a compile is that of its constraint, not of the library."""

import threading

from constrained import vocabulary

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.compile import CompilePool, Compiling
from ramet.runtime.grammar.compiled import Failed, Loaded
from ramet.runtime.grammar.compiler import CompileLimits, Compiler

LOADING_IS_LONGER_S = 0.05  # a cold library takes twice this and more, the constraint 2 ms
ATTEMPTS = 20  # a busy machine may hold up a process of low priority


def test_a_library_may_load_longer_than_a_constraint_may_compile() -> None:
    constraint = Constraint(ConstraintKind.REGEX, "ab", backend="llguidance")
    outcomes = []
    for _ in range(ATTEMPTS):
        done = threading.Event()
        limits = CompileLimits(LOADING_IS_LONGER_S, memory_mb=1024.0, cache_bytes=1 << 20)
        pool = CompilePool(Compiler(vocabulary(), limits), done.set)
        assert isinstance(pool.get(constraint), Compiling)
        assert done.wait(60)
        outcomes.append(pool.get(constraint))
        pool.close()
        if isinstance(outcomes[-1], Loaded):
            break
    assert any(isinstance(outcome, Loaded) for outcome in outcomes), [o for o in outcomes if isinstance(o, Failed)]
