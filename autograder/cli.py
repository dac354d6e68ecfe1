"""The command line: `autograder build | check | grade | mistakes | kernels`.

Every command imports what it needs when it runs, so that `autograder --help` answers at once.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.console import Console

    from autograder.grading import Outcome


class Commands(TyperGroup):
    """Says what the user can put right in one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Looked up and not imported, since that takes a second and a help page ends here too.
            course = sys.modules.get("autograder.course")
            if course is None or not isinstance(error, course.CourseError):
                raise
            from rich.console import Console

            Console(stderr=True).print(str(error), style="red", markup=False, soft_wrap=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="""
    Block by Block: build a transformer in Jupyter notebooks, one graded exercise at a time.

    Students use **check**, instructors **grade**, authors **build** and **mistakes**. Every command
    has a page of its own, such as `autograder grade --help`.
    """,
)


class Sandbox(StrEnum):
    auto = "auto"
    bwrap = "bwrap"
    none = "none"


@app.command()
def build(
    lesson: Annotated[
        list[str] | None,
        typer.Argument(help="Lessons to build: norm, 01_norm or 1.", show_default="all lessons"),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; exit with 1 where a notebook is not fresh."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay, and build again whatever is saved.")
    ] = False,
) -> None:
    """Build the notebooks: lessons/01_norm.md becomes the student's and the solved one.

    The solved notebook is executed on the kernel course-cpu, which takes some seconds a lesson.
    With --watch, prose shows up at once without executing anything.

    **Examples**

    `autograder build` builds all lessons.

    `autograder build norm --watch` is for writing the norm lesson.

    `autograder build --check` is for CI: is what is committed what builds?
    """
    from autograder import builder, course

    chosen = [course.lesson(_key(one)) for one in lesson] if lesson else course.lessons()
    if not chosen:
        raise course.CourseError("There is nothing to build: lessons/ has no file like 01_norm.md.")
    if watch and check:
        raise course.CourseError("--watch writes and --check does not: say only one of them.")
    if watch:
        try:
            builder.watch(chosen)
        except KeyboardInterrupt:
            raise typer.Exit() from None
    stale = builder.build(chosen, check=check)
    for sentence in stale:
        typer.echo(sentence if check else f"Wrote {sentence.partition(':')[0]}", err=check)
    if check and stale:
        typer.echo("Edit the lesson, not its notebooks, and run `autograder build`.", err=True)
        raise typer.Exit(1)
    names = ", ".join(one.stem for one in chosen)
    typer.echo(f"Fresh: {names}")


@app.command()
def check(
    notebook: Annotated[Path, typer.Argument(help="The notebook you work in.")],
) -> None:
    """Check the answers in a notebook of yours, and print the reports.

    It runs the notebook's code on this machine, without a sandbox: check your own notebooks. Exit
    status 0 when everything is right, 1 when something is still missing or wrong.

    **Example**

    `autograder check my-notebooks/01_norm.ipynb`
    """
    from rich.console import Console

    from autograder.check_notebook import check_notebook

    console = Console()
    reports = check_notebook(notebook)
    for report in reports:
        console.print(report.text(), markup=False, highlight=False, end="\n\n")
    table = _table("Exercise", "Points", "Result")
    for report in reports:
        result = "[green]right[/]" if report.passed else "[red]not yet[/]"
        table.add_row(report.exercise, f"{report.score} of {report.max_score}", result)
    console.print(table)
    if not all(report.passed for report in reports):
        raise typer.Exit(1)


@app.command()
def grade(
    submissions: Annotated[
        Path,
        typer.Argument(
            help="A folder with a folder for each student: alice/01_norm.ipynb, or nbgrader's "
            "alice/01_norm/01_norm.ipynb.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(help="Where the grades, the feedback and the overview go."),
    ] = Path("out"),
    sandbox: Annotated[
        Sandbox,
        typer.Option(
            help="What keeps students' code away from you. auto is bwrap (bubblewrap), or a word "
            "on what is missing; with none it runs as you and can do what you can.",
        ),
    ] = Sandbox.auto,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many notebooks to run at a time.", show_default="one for each core"
        ),
    ] = None,
    regrade: Annotated[
        bool,
        typer.Option("--regrade", help="Grade also what was graded before and has not changed."),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**31 - 1,
            help="Draw the same inputs as the run that had this seed.",
            show_default="drawn afresh",
        ),
    ] = None,
    db: Annotated[
        str,
        typer.Option(
            help="A gradebook elsewhere, as an SQLAlchemy URL: postgresql+psycopg2://user@host/db",
            show_default="OUT/gradebook.db",
        ),
    ] = "",
    cluster: Annotated[
        str,
        typer.Option(
            help="Run the notebooks on the workers of this Dask scheduler: tcp://host:8786",
            show_default="on this machine",
        ),
    ] = "",
) -> None:
    """Grade a folder of submitted notebooks: a gradebook, a CSV and a feedback page for each.

    Each notebook runs in a sandbox of its own, without network, files of yours or other people's
    notebooks. Run the same command again after an interrupt, a crash, or when more was handed in:
    what was graded stays, and what is new or has changed is graded.

    Exit status 0 when all were graded, 3 when some were flagged for you to look at, 2 when it
    could not go on, 130 after Ctrl-C.

    **Examples**

    `autograder grade submitted/` puts grades.csv, overview.html, mistakes.csv, gradebook.db and
    feedback/ into out/.

    `autograder grade submitted/ --out week3 --workers 8`

    `autograder grade my-work/ --sandbox none` is for code that you trust, such as your own.
    """
    from rich.console import Console

    from autograder import workers as processes

    if not cluster:
        processes.prepare()  # they start while this process still imports
    from autograder.grading import Interrupted
    from autograder.grading import grade as grade_all

    try:
        outcomes = grade_all(
            submissions,
            out,
            sandbox.value,
            seed,
            workers=workers,
            regrade=regrade,
            db=db,
            cluster=cluster,
        )
    except Interrupted as interrupted:
        typer.echo(interrupted, err=True)
        raise typer.Exit(130) from None
    console = Console()
    _show(outcomes, console)
    console.print(
        f"Grades: {out}/grades.csv, with feedback/ next to it. What to talk about in class: "
        f"{out}/overview.html and mistakes.csv.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if any(outcome.status != "graded" for outcome in outcomes):
        raise typer.Exit(3)


@app.command()
def mistakes(
    exercise: Annotated[
        list[str] | None,
        typer.Argument(
            help="Exercises to look at, such as rms_norm.", show_default="all exercises"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Draw other inputs.")] = 0,
) -> None:
    """Put every known mistake before the checks: does it lose points, and is it recognised?

    Exit status 1 where a mistake keeps all its points, or where the report would not name it.

    **Example**

    `autograder mistakes layer_norm rms_norm`
    """
    from rich.console import Console
    from rich.progress import track

    from autograder import course
    from autograder.judge.catalogue import table as catalogue

    if exercise:
        chosen = [course.exercise(name) for name in exercise]
    else:
        chosen = [one for lesson in course.lessons() for one in lesson.exercises]
    rows = list(
        track(
            catalogue(chosen, seed),
            "Trying mistakes",
            total=sum(len(one.mistakes) for one in chosen),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
    )
    table = _table("Exercise", "Mistake", "Lost", "Recognised", "Checks that fail")
    for row in rows:
        table.add_row(
            row.exercise,
            row.mistake,
            str(row.lost) if row.lost else "[red]0[/]",
            "yes" if row.recognised else "[red]no[/]",
            ", ".join(row.checks),
        )
    console = Console()
    console.print(table)
    wrong = sum(not row.ok for row in rows)
    console.print(f"{len(rows)} mistakes, {wrong} of them not caught or not recognised.")
    if wrong:
        raise typer.Exit(1)


@app.command()
def kernels() -> None:
    """Install the Jupyter kernels of the course into this Python environment.

    Block by Block (CPU) and Block by Block (CUDA) are this very Python; they differ in what
    `device()` gives. The CUDA one refuses to run where torch finds no CUDA device.

    **Example**

    `autograder kernels`
    """
    from autograder.kernels import install

    for folder in install():
        typer.echo(f"Installed {folder}")


def _show(outcomes: list[Outcome], console: Console) -> None:
    """A row for each notebook, then how many came to what, by lesson."""
    table = _table("Student", "Lesson", "Score", "Status", "Reason")
    lessons: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        table.add_row(
            *map(_plain, (outcome.student, outcome.lesson)),
            f"{outcome.score:g} of {outcome.max_score:g}",
            outcome.status if outcome.status == "graded" else f"[yellow]{outcome.status}[/]",
            _plain(outcome.reason),
        )
        lessons.setdefault(outcome.lesson, []).append(outcome)
    summary = _table("Lesson", "Notebooks", "Graded", "Flagged", "Mean score")
    for lesson, ours in sorted(lessons.items()):
        graded = sum(outcome.status == "graded" for outcome in ours)
        mean = sum(outcome.score for outcome in ours) / len(ours)
        row = [lesson or "none", len(ours), graded, len(ours) - graded, f"{mean:.3g}"]
        summary.add_row(*map(str, row))
    console.print(table)
    console.print()
    console.print(summary)
    console.print()


def _key(text: str) -> str | int:
    return int(text) if text.isdigit() else text


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _table(*columns: str) -> Any:
    from rich.table import Table

    return Table(*columns, box=None, header_style="bold", pad_edge=False)


if __name__ == "__main__":
    app()
