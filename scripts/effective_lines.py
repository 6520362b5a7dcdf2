"""Print the lines of code of Python files without comments, docstrings and empty lines, as section 6.3.3 of the SGLang
paper counts them: `python scripts/effective_lines.py examples/article_analysis*.py`.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def effective_lines(source: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in SILENT for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - _docstring_lines(source))


def _docstring_lines(source: str) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if first is not None and ast.get_docstring(node, clean=False) is not None:
                found.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return found


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(effective_lines(Path(name).read_text()), name)
