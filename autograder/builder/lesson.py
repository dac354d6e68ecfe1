"""A lesson's Markdown as an nbgrader source notebook: every answer in it, nothing executed."""

from __future__ import annotations

import ast
import re
from copy import deepcopy
from pathlib import Path

import jupytext
from jupytext.cell_reader import MarkdownCellReader
from nbformat import NotebookNode, v4

from autograder.course import CourseError, Lesson
from autograder.kernels import CPU, DISPLAY_NAMES

LONGEST_CELL = 15  # lines; what a student takes in at one look

METADATA = {
    "kernelspec": {"display_name": DISPLAY_NAMES[CPU], "language": "python", "name": CPU},
    "language_info": {  # no version: the notebooks are the same whichever Python built them
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}


def source(lesson: Lesson) -> NotebookNode:
    """The nbgrader source notebook of `lesson`; CourseError says which line to put right."""
    return read(lesson)[0]


def read(lesson: Lesson) -> tuple[NotebookNode, dict[str, int]]:
    """The source notebook, and for the id of each code cell the line where its block begins."""
    text = lesson.source.read_text("utf-8")
    blocks, cells = _blocks(text, lesson), jupytext.reads(text, fmt="md").cells
    if len(blocks) != sum(cell.cell_type == "code" for cell in cells):
        raise problem(
            lesson,
            1,
            "jupytext finds other code cells than there are ```python blocks; "
            "take the blocks out of HTML comments and #region markers",
        )
    begins = iter(blocks)
    notebook = v4.new_notebook(metadata=deepcopy(METADATA))
    lines: dict[str, int] = {}
    for cell in cells:
        if cell.cell_type == "markdown":
            _add(notebook, v4.new_markdown_cell(cell.source))
        elif cell.cell_type == "code":
            cell.metadata.pop("lines_to_next_cell", None)  # jupytext's own, not the author's
            line = next(begins)
            if "exercise" in cell.metadata:
                made = _exercise(cell, line, lesson, placed=set(lines))
            elif "practice" in cell.metadata:
                made = [_practice(cell, line, lesson, placed=set(lines))]
            else:
                made = [_demo(cell, line, lesson, placed=set(lines))]
            for one in made:
                _add(notebook, one)
                lines[one.id] = line
    for exercise in lesson.exercises:
        if exercise.name not in lines:
            raise problem(
                lesson,
                len(text.splitlines()),
                f"the lesson has no place for {exercise.name!r}; "
                f'add an empty block ```python exercise="{exercise.name}" for it',
            )
    return notebook, lines


def _add(notebook: NotebookNode, cell: NotebookNode) -> None:
    if "nbgrader" not in cell.metadata:
        cell.id = f"cell-{len(notebook.cells):03}"  # by its place: two builds are byte-identical
    notebook.cells.append(cell)


def problem(lesson: Lesson, line: int, sentence: str) -> CourseError:
    """What is wrong at a line of the lesson, in the form in which editors jump to it."""
    return CourseError(f"{lesson.source.relative_to(lesson.root)}:{line}: {sentence}.")


def _blocks(text: str, lesson: Lesson) -> list[int]:
    """The lines at which jupytext finds a code cell; it does not tell them itself."""
    found = []
    opened: tuple[int, str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"`{3,}", line)
        if not fence:
            continue
        if opened is None:
            opened = number, fence[0]
            cell = MarkdownCellReader.start_code_re.match(line)
            if cell and ".noeval" not in line:
                if cell[3] != "python":
                    raise problem(
                        lesson,
                        number,
                        f"jupytext would run this {cell[3]} block; "
                        f"write ```{cell[3]} .noeval where it is only to be read",
                    )
                found.append(number)
        elif line.rstrip() == opened[1]:
            opened = None
        elif len(fence[0]) >= len(opened[1]):
            break
    if opened:
        raise problem(
            lesson, opened[0], f"this block is not closed; end it with a line {opened[1]}"
        )
    return found


def _exercise(
    cell: NotebookNode, line: int, lesson: Lesson, placed: set[str]
) -> list[NotebookNode]:
    """The answer's cell and the locked cell that grades it."""
    name = cell.metadata.exercise
    exercises = {exercise.name: exercise for exercise in lesson.exercises}
    _refuse_other_words(cell, line, lesson, {"exercise"})
    if name not in exercises:
        known = ", ".join(exercises)
        raise problem(lesson, line, f"unknown exercise {name!r}; this lesson's are {known}")
    exercise = exercises[name]
    if name in placed:
        raise problem(
            lesson, line, f"{name!r} has its place further up already; remove one of them"
        )
    if cell.source.strip():
        raise problem(
            lesson,
            line,
            f"the block of an exercise stays empty, since the builder puts "
            f"the source of {name!r} from solutions/{lesson.name}.py there",
        )
    for room in ("checks", "mistakes"):
        if not getattr(exercise, room):
            raise problem(
                lesson,
                line,
                f"{name!r} has no {room}; write them in autograder/{room}/{lesson.name}.py",
            )
    answer = _answer(lesson.solved.with_name(f"{lesson.name}.py"), name)
    if answer is None:
        raise problem(lesson, line, f"solutions/{lesson.name}.py does not define {name!r}")
    if "### BEGIN SOLUTION" not in answer:
        raise problem(
            lesson,
            line,
            f"{name!r} in solutions/{lesson.name}.py has no lines "
            "### BEGIN SOLUTION and ### END SOLUTION around what a student is to write",
        )
    solution = v4.new_code_cell(answer, id=name)
    solution.metadata.nbgrader = _nbgrader(name, solution=True)
    grade = v4.new_code_cell(f'check("{name}")', id=f"check_{name}")
    grade.metadata.nbgrader = _nbgrader(grade.id, grade=True, points=exercise.points)
    return [solution, grade]


def _nbgrader(
    grade_id: str, solution: bool = False, grade: bool = False, **more: int
) -> dict[str, object]:
    return {
        "schema_version": 3,
        "grade_id": grade_id,
        "solution": solution,
        "grade": grade,
        "locked": grade,
        "task": False,
        **more,
    }


def _answer(path: Path, name: str) -> str | None:
    """The source of the top-level `name` in the file, with the comments right above it."""
    text = path.read_text("utf-8")
    lines = text.splitlines()
    spans = []
    for node in ast.parse(text, str(path)).body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                names = [node.name]
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            case ast.Assign():
                names = [one.id for one in node.targets if isinstance(one, ast.Name)]
                first = node.lineno
            case ast.AnnAssign(target=ast.Name(id=target)):
                names, first = [target], node.lineno
            case _:
                continue
        if name in names and node.end_lineno is not None:
            spans.append((first - 1, node.end_lineno))
    if not spans:
        return None
    begin, end = spans[0][0], spans[-1][1]
    while begin and lines[begin - 1].startswith("#") and "END SOLUTION" not in lines[begin - 1]:
        begin -= 1
    if end < len(lines) and lines[end].strip() == "### END SOLUTION":
        end += 1
    return "\n".join(lines[begin:end])


def _demo(cell: NotebookNode, line: int, lesson: Lesson, placed: set[str]) -> NotebookNode:
    """A cell that shows something, kept as the author wrote it."""
    _refuse_other_words(cell, line, lesson, {"needs", "tags"})
    if not cell.source.strip():
        raise problem(
            lesson,
            line,
            'this block is empty; write exercise="NAME" behind ```python, or some code into it',
        )
    _refuse_a_long_cell(cell, line, lesson)
    names = [exercise.name for exercise in lesson.exercises]
    for need in cell.metadata.get("needs", "").split():
        if need not in names and need not in placed:
            raise problem(
                lesson,
                line,
                f"needs={need!r} is an unknown exercise; this lesson's are {', '.join(names)}",
            )
        if need not in placed:
            raise problem(
                lesson,
                line,
                f"this cell needs {need!r}, which stands further down; move the cell below it",
            )
    return v4.new_code_cell(cell.source, metadata=cell.metadata)


def _practice(cell: NotebookNode, line: int, lesson: Lesson, placed: set[str]) -> NotebookNode:
    """A cell that the student completes and nothing grades; its answer stands in the lesson."""
    name = cell.metadata.practice
    _refuse_other_words(cell, line, lesson, {"practice"})
    _refuse_a_long_cell(cell, line, lesson)
    if name in placed or name in [exercise.name for exercise in lesson.exercises]:
        raise problem(lesson, line, f"{name!r} has its place already; give this one another name")
    if "### BEGIN SOLUTION" not in cell.source:
        raise problem(
            lesson,
            line,
            f"practice={name!r} has no lines ### BEGIN SOLUTION and ### END SOLUTION around what a "
            "student is to write",
        )
    made = v4.new_code_cell(cell.source, id=name)
    made.metadata.nbgrader = _nbgrader(name, solution=True)
    return made


def _refuse_a_long_cell(cell: NotebookNode, line: int, lesson: Lesson) -> None:
    length = len(cell.source.splitlines())
    if length > LONGEST_CELL:
        raise problem(
            lesson,
            line,
            f"this cell has {length} lines; split it, or move what is not "
            f"the idea into visuals, until it has {LONGEST_CELL} at most",
        )


def _refuse_other_words(cell: NotebookNode, line: int, lesson: Lesson, known: set[str]) -> None:
    if unknown := set(cell.metadata) - known:
        said = cell.metadata.get("incorrectly_encoded_metadata") or ", ".join(sorted(unknown))
        raise problem(
            lesson,
            line,
            f"unknown words {said!r} behind ```python; it can be "
            'exercise="NAME", practice="NAME", or needs="NAME NAME" and tags=["raises-exception"]',
        )
