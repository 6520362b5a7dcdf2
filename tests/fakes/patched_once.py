"""Triton's interpreter looks at its language anew whenever a kernel calls a function; here it does so once a launch.

Each look takes 2 ms, of which a launch of our kernels had up to thousands. What it puts in place stays there until the
launch has ended, so the later ones change nothing.
"""

import sys
from typing import Any


def patch_once() -> None:
    """Does nothing before somebody has imported Triton, and nothing the second time."""
    interpreter: Any = sys.modules.get("triton.runtime.interpreter")
    if interpreter is None or hasattr(interpreter, "looked_at"):
        return
    interpreter.looked_at = looked_at = set[int]()  # globals of modules
    look, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__

    def look_once(function: Any) -> Any:
        if id(function.__globals__) in looked_at:
            return interpreter._LangPatchScope()
        looked_at.add(id(function.__globals__))
        return look(function)

    def launch_anew(executor: Any, *args: Any, **kwargs: Any) -> Any:
        looked_at.clear()
        return launch(executor, *args, **kwargs)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = look_once, launch_anew
