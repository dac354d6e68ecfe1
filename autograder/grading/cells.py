"""Cells of a notebook that is put together anew."""

from __future__ import annotations

from typing import Any

import nbformat
from nbformat import NotebookNode


def new_cell(kind: str, source: str, **parts: Any) -> NotebookNode:
    """A cell of the kind "code", "markdown" or "raw" that nothing has looked at yet.

    nbformat's new_code_cell takes longer to look at one than its new_notebook takes for all of
    them, which it is handed then.
    """
    needed: dict[str, Any] = {"metadata": {}}
    if kind == "code":
        needed |= {"execution_count": None, "outputs": []}
    return nbformat.from_dict({"cell_type": kind, "source": source} | needed | parts)
