"""The student's version of grading: run a notebook, and collect what its checks say."""

from pathlib import Path
from subprocess import DEVNULL

import nbformat
from jupyter_client.kernelspec import NoSuchKernel
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from autograder.course import CourseError, Lesson, lessons
from autograder.judge.exercise import Exercise
from autograder.judge.report import REPORT_MIME, CheckResult, Report
from autograder.kernels import CPU

SECONDS = 60  # for one cell, as when it is graded


def check_notebook(path: Path) -> list[Report]:
    """Run the notebook in the CPU kernel; one report for each exercise of its lesson, in order.

    A check cell that is missing is added at the end for the run. The file stays as it is.
    """
    path = Path(path)
    notebook = _read(path)
    lesson = _lesson(path, notebook)
    cells = {name: cell for cell in notebook.cells if (name := _exercise(cell))}
    for exercise in lesson.exercises:
        if exercise.name not in cells:
            source = f"import autograder\nautograder.check({exercise.name!r})"
            cells[exercise.name] = new_code_cell(source)
            notebook.cells.append(cells[exercise.name])
    _run(notebook, path)
    return [_report(cells[exercise.name], exercise) for exercise in lesson.exercises]


def _read(path: Path) -> NotebookNode:
    if not path.exists():
        raise CourseError(f"There is no file {path}.")
    if path.is_dir():
        raise CourseError(f"{path} is a folder. Name a notebook, such as notebooks/01_norm.ipynb.")
    try:
        return nbformat.read(path, as_version=4)
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # nbformat raises many kinds for files that are no notebooks
        raise CourseError(
            f"{path} is not a notebook, or is damaged ({error.__class__.__name__}: "
            f"{str(error)[:100]}). Open it in JupyterLab, or take a fresh copy."
        ) from error


def _lesson(path: Path, notebook: NotebookNode) -> Lesson:
    """The lesson by the file's name, else by the exercises in it."""
    course = lessons()
    for lesson in course:
        if path.stem.startswith(lesson.stem):
            return lesson
    names = set(map(_exercise, notebook.cells))
    for lesson in course:
        if any(exercise.name in names for exercise in lesson.exercises):
            return lesson
    raise CourseError(
        f"{path} belongs to no lesson: its name does not begin with one of "
        f"{', '.join(lesson.stem for lesson in course)}, and it has no check cells."
    )


def _exercise(cell: NotebookNode) -> str:
    """The exercise that a check cell checks; nothing for other cells."""
    grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
    is_check = cell.cell_type == "code" and grade_id.startswith("check_")
    return grade_id.removeprefix("check_") if is_check else ""


def _run(notebook: NotebookNode, path: Path) -> None:
    """Execute every cell, errors allowed, with a progress bar."""
    console = Console(stderr=True)
    columns = TextColumn("Running"), BarColumn(), MofNCompleteColumn()
    code = sum(cell.cell_type == "code" for cell in notebook.cells)
    at = 0

    def began(cell: NotebookNode, cell_index: int) -> None:
        nonlocal at
        at = cell_index
        if cell.cell_type == "code":
            progress.advance(task)

    client = NotebookClient(
        notebook,
        kernel_name=CPU,
        timeout=SECONDS,
        allow_errors=True,
        on_cell_start=began,
        resources={"metadata": {"path": str(path.resolve().parent)}},
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=code)
        try:
            client.execute(stdout=DEVNULL, stderr=DEVNULL)  # or it lands in the progress bar
        except NoSuchKernel as error:
            raise CourseError(
                f"The kernel {CPU} is not installed here. Run: autograder kernels"
            ) from error
        except (CellTimeoutError, DeadKernelError) as error:
            what = (
                f"took more than {SECONDS} s"
                if isinstance(error, CellTimeoutError)
                else "ended the kernel"
            )
            source = notebook.cells[at].source.strip().partition("\n")[0]
            raise CourseError(f"Cell {at + 1} ({source[:60]}) {what}.") from error


def _report(cell: NotebookNode, exercise: Exercise) -> Report:
    for output in cell.outputs:
        if output.output_type == "execute_result" and REPORT_MIME in output.data:
            return Report.from_data(output.data[REPORT_MIME])
    errors = [f"{out.ename}: {out.evalue}" for out in cell.outputs if out.output_type == "error"]
    checks = [
        CheckResult(c.name, c.sentence, c.points, False, tried=False) for c in exercise.checks
    ]
    return Report(
        exercise.name, checks, problem=f"The check gave no report. {' '.join(errors)}".strip()
    )
