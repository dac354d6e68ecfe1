"""Puts the locked cells of the release back into a submission, and finds where the answers are.

nbgrader's own OverwriteCells restores the source of a locked cell that kept its metadata. It stops
the whole batch at a test cell whose flags were edited, and knows nothing of one that was deleted,
doubled or moved above the answer it tests. This step leaves it nothing to do and stands in for it.
"""

import re
from copy import deepcopy
from functools import cache

from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from autograder import builder, course
from autograder.course import Lesson


class RestoreCells(NbGraderPreprocessor):
    """The first of `Autograde.sanitize_preprocessors`."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        restore(nb, release_cells(course.lesson(resources["nbgrader"]["assignment"])))
        nb.metadata = NotebookNode()
        return nb, resources


@cache
def _release(lesson: Lesson) -> list[NotebookNode]:
    return builder.release(builder.source(lesson)).cells


@cache
def release_cells(lesson: Lesson) -> list[NotebookNode]:
    """The cells of the lesson's release that nbgrader knows: answers' stubs and locked checks."""
    return [cell for cell in _release(lesson) if "nbgrader" in cell.metadata]


@cache
def release_demos(lesson: Lesson) -> frozenset[str]:
    """The sources of the release's other code cells: the demos, which students may change."""
    return frozenset(
        cell.source
        for cell in _release(lesson)
        if cell.cell_type == "code" and "nbgrader" not in cell.metadata
    )


def restore(nb: NotebookNode, originals: list[NotebookNode]) -> list[str]:
    """Make `nb` gradable in place; returns sentences that say which cells were not as they were.

    Answers keep their sources. Of two cells with one grade id the last counts, as it does when the
    notebook runs from top to bottom; the other stays as an ordinary cell.
    """
    known = {cell.metadata.nbgrader.grade_id: cell for cell in originals}
    last: dict[str, NotebookNode] = {}
    cells: list[NotebookNode] = []
    odd: dict[str, list[str]] = {"changed": [], "missing": [], "above its answer": []}
    for cell in nb.cells:
        marked = cell.metadata.pop("nbgrader", {})
        grade_id = str(marked.get("grade_id")) if isinstance(marked, dict) else ""
        original = known.get(grade_id)
        if original is None:
            cells.append(cell)
            continue
        mended = NotebookNode({**original, "id": cell.id, "metadata": deepcopy(original.metadata)})
        if original.metadata.nbgrader.locked:
            if cell.source != original.source:
                odd["changed"].append(grade_id)
            if grade_id in last:
                cells.remove(last[grade_id])
        else:
            mended["source"] = cell.source
            if grade_id in last:
                last[grade_id].metadata.pop("nbgrader")
        last[grade_id] = mended
        cells.append(mended)
    for original in originals:
        if original.metadata.nbgrader.grade:
            if was := _place_check(cells, original, known, last):
                odd[was].append(original.metadata.nbgrader.grade_id)
    nb.cells = cells
    return [f"Put right, since it was {was}: {', '.join(ids)}." for was, ids in odd.items() if ids]


def _place_check(
    cells: list[NotebookNode],
    original: NotebookNode,
    known: dict[str, NotebookNode],
    last: dict[str, NotebookNode],
) -> str:
    """See that a check runs after the answer that it checks; says what was wrong, if anything."""
    check_id = original.metadata.nbgrader.grade_id
    name = check_id.removeprefix("check_")
    stub = known[name].source if name in known else ""
    answers = [i for i, cell in enumerate(cells) if _defines(cell, name) and cell.source != stub]
    here = _position(cells, last[check_id]) if check_id in last else None
    if here is not None and (not answers or here > answers[-1]):
        return ""
    if answers:
        target = answers[-1] + 1
    elif name in last:
        target = _position(cells, last[name]) + 1
    else:
        target = len(cells)
    cells.insert(target, deepcopy(original))
    if here is None:
        return "missing"
    del cells[here]
    return "above its answer"


def _position(cells: list[NotebookNode], wanted: NotebookNode) -> int:
    return next(i for i, cell in enumerate(cells) if cell is wanted)


def _defines(cell: NotebookNode, name: str) -> bool:
    """Whether a code cell defines or assigns `name` at its top level; works on broken code too."""
    pattern = rf"^(?:async )?(?:def|class) +{name}\b|^{name} *(?::[^=\n]*)?=(?!=)"
    return cell.cell_type == "code" and bool(re.search(pattern, cell.source, re.MULTILINE))
