"""Grading through real nbgrader: one small class graded once, and looked at from all sides."""

import csv
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from torch import nn

from autograder import builder, evaluate
from autograder.check_notebook import check_notebook
from autograder.course import CourseError, lesson
from autograder.grading import Outcome, grade
from autograder.grading.course_folder import CourseFolder, nbgrader_id
from autograder.grading.judging import Judged
from autograder.grading.outcomes import Ledger
from autograder.grading.sandbox import check_sandbox

LESSON = lesson("norm")
FULL = sum(exercise.points for exercise in LESSON.exercises)
POINTS = {exercise.name: exercise.points for exercise in LESSON.exercises}


def _sandbox() -> str:
    """bwrap where it works; a machine without it still tests the rest."""
    try:
        check_sandbox()
    except CourseError as error:
        print(f"Grading without a sandbox here: {error}")
        return "none"
    return "bwrap"


SANDBOX = _sandbox()
AWKWARD = 'Žofia "Zo", [2] 张'
UNBIASED = """\
import torch
import warnings


def layer_norm(x, scale, shift, eps=1e-5):
    warnings.warn("not an error")
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(x.var(-1, keepdim=True) + eps) * scale + shift
"""


def cell(notebook: NotebookNode, grade_id: str) -> NotebookNode:
    return next(
        c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id
    )


def without_demos(notebook: NotebookNode) -> NotebookNode:
    """Imports, answers and checks alone: the demos take time and give no points."""
    code = [c for c in notebook.cells if c.cell_type == "code"]
    notebook.cells = code[:1] + [c for c in code[1:] if "nbgrader" in c.metadata]
    return notebook


def unbiased(notebook: NotebookNode) -> None:
    cell(notebook, "layer_norm").source = UNBIASED


def kill(notebook: NotebookNode) -> None:
    """No answer, which nbgrader by itself takes for full marks, and one that ends its kernel."""
    cell(notebook, "ManualLayerNorm").source = "def check(name): pass"
    cell(notebook, "rms_norm").source = "import os\nos._exit(1)"


def vandalize(notebook: NotebookNode) -> None:
    """Still all the right answers, under what was done to the cells that grade them."""
    edited = cell(notebook, "check_layer_norm")
    edited.source = "1000"
    edited.metadata.nbgrader = {"grade_id": "check_layer_norm", "grade": False, "points": "many"}
    notebook.cells.remove(cell(notebook, "check_rms_norm"))
    cell(notebook, "rms_norm").metadata = NotebookNode()
    quiz = cell(notebook, "check_norm_quiz")
    notebook.cells.remove(quiz)
    notebook.cells.insert(0, quiz)
    copy = deepcopy(cell(notebook, "layer_norm"))
    copy.id = "copy"
    notebook.cells.append(copy)
    notebook.metadata = NotebookNode(kernelspec={"name": "julia", "display_name": "Julia"})


def hand_in(folder: Path, student: str, notebook: NotebookNode, nested: bool = False) -> Path:
    path = folder / student / (LESSON.stem if nested else "") / f"{LESSON.stem}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def source() -> NotebookNode:
    return builder.source(LESSON)


@pytest.fixture(scope="module")
def submissions(source: NotebookNode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("class") / "submissions"
    hand_in(folder, "reference", source)
    hand_in(folder, "untouched", builder.release(source), nested=True)
    changes: dict[str, Callable[[NotebookNode], None]] = {
        AWKWARD: unbiased,
        "killer": kill,
        "vandal": vandalize,
    }
    for student, change in changes.items():
        notebook = without_demos(deepcopy(source))
        change(notebook)
        hand_in(folder, student, notebook, nested=student == AWKWARD)
    truncated = hand_in(folder, "truncated", source)
    truncated.write_bytes(truncated.read_bytes()[:2000])
    (folder / "nothing").mkdir()
    return folder


@pytest.fixture(scope="module")
def graded(submissions: Path) -> dict[str, Outcome]:
    outcomes = grade(submissions, submissions.parent / "out", sandbox=SANDBOX)
    assert len(outcomes) == len({one.student for one in outcomes}) == 7
    return {one.student: one for one in outcomes}


@pytest.fixture
def out(submissions: Path, graded: dict[str, Outcome]) -> Path:
    return submissions.parent / "out"


def feedback(out: Path, student: str) -> str:
    return (out / "feedback" / student / f"{LESSON.stem}.html").read_text("utf-8")


def test_the_reference_gets_full_marks(graded: dict[str, Outcome]) -> None:
    assert graded["reference"] == Outcome("reference", LESSON.stem, FULL, FULL, "graded", "")


def test_the_untouched_notebook_gets_nothing(graded: dict[str, Outcome]) -> None:
    assert graded["untouched"] == Outcome("untouched", LESSON.stem, 0, FULL, "graded", "")


def test_a_partly_right_answer_gets_its_part_in_spite_of_warnings(
    graded: dict[str, Outcome], out: Path, source: NotebookNode
) -> None:
    scope: dict[str, object] = {"nn": nn}
    exec(UNBIASED.replace('warnings.warn("not an error")', "pass"), scope)
    exec(cell(source, "ManualLayerNorm").source, scope)  # it calls layer_norm
    reports = [evaluate(name, scope[name]) for name in ("layer_norm", "ManualLayerNorm")]
    assert all(0 < report.score < report.max_score for report in reports)
    lost = sum(report.max_score - report.score for report in reports)
    assert graded[AWKWARD].score == FULL - lost
    advice = next(check.advice for check in reports[0].checks if check.advice)
    words = max(advice.split("`"), key=len)  # what lies between two pieces set as code
    assert words in feedback(out, AWKWARD)


def test_a_cell_that_ends_its_kernel_costs_what_depends_on_it(
    graded: dict[str, Outcome], out: Path
) -> None:
    killer = graded["killer"]
    earned = POINTS["layer_norm"] + POINTS["norm_quiz"]
    lost = POINTS["ManualLayerNorm"] + POINTS["rms_norm"]
    assert earned <= killer.score < FULL - lost  # RMSNorm calls rms_norm, which is not there
    assert killer.status == "flagged" and "ended its kernel" in killer.reason
    assert "ended its kernel" in feedback(out, "killer")
    assert "There is no <code>ManualLayerNorm</code>" in feedback(out, "killer")


def test_check_cells_come_from_the_release(graded: dict[str, Outcome]) -> None:
    vandal = graded["vandal"]
    assert vandal.score == FULL and vandal.status == "graded"
    assert "changed: check_layer_norm." in vandal.reason
    assert "missing: check_rms_norm." in vandal.reason
    assert "above its answer: check_layer_norm, check_norm_quiz." in vandal.reason


def test_an_unreadable_notebook_is_flagged_and_says_so(
    graded: dict[str, Outcome], out: Path
) -> None:
    truncated = graded["truncated"]
    assert (truncated.score, truncated.max_score, truncated.status) == (0, FULL, "flagged")
    assert "not valid JSON" in truncated.reason
    assert "not valid JSON" in feedback(out, "truncated")
    assert graded["nothing"].status == "flagged" and "No notebook" in graded["nothing"].reason


def test_the_csv_is_valid_and_agrees_with_the_gradebook(
    graded: dict[str, Outcome], out: Path
) -> None:
    with open(out / "grades.csv", encoding="utf-8", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert set(rows) == set(graded)
    assert list(rows[AWKWARD]) == ["student", "lesson", "score", "max_score", "status", "reason"]
    with Gradebook(f"sqlite:///{out / 'gradebook.db'}") as gradebook:
        students = {one.id: one.score for one in gradebook.students}
    for student, row in rows.items():
        if row["lesson"]:
            assert float(row["score"]) == students[nbgrader_id(student)]


def test_nbgrader_by_itself_gives_the_same_score(graded: dict[str, Outcome], out: Path) -> None:
    command = [sys.executable, "-m", "nbgrader", "autograde", LESSON.stem, "--force"]
    done = subprocess.run(
        [*command, "--student", "killer"], cwd=out / "course", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with Gradebook(f"sqlite:///{out / 'gradebook.db'}") as gradebook:
        assert gradebook.find_submission(LESSON.stem, "killer").score == graded["killer"].score


def test_a_rerun_grades_what_has_changed(
    submissions: Path,
    graded: dict[str, Outcome],
    out: Path,
    source: NotebookNode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []
    record = CourseFolder.record

    def watched(course: CourseFolder, student: str, stem: str, judged: Judged) -> str:
        started.append(student)
        return record(course, student, stem, judged)

    monkeypatch.setattr(CourseFolder, "record", watched)
    before = (out / "grades.csv").read_bytes()
    grade(submissions, out, sandbox=SANDBOX)
    assert started == [] and (out / "grades.csv").read_bytes() == before
    path = submissions / "truncated" / f"{LESSON.stem}.ipynb"
    nbformat.write(without_demos(deepcopy(source)), path)
    again = {one.student: one for one in grade(submissions, out, sandbox=SANDBOX)}
    assert started == ["truncated"]
    assert again["truncated"] == Outcome("truncated", LESSON.stem, FULL, FULL, "graded", "")
    assert again["killer"] == graded["killer"]


def test_grading_everything_again_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    def open_ledger() -> Ledger:
        return Ledger(tmp_path / "outcomes.jsonl")

    def keep(ledger: Ledger, student: str) -> None:
        ledger.keep(Outcome(student, "01_norm", 1, 2, "graded"), "mark", {}, {})

    def known(ledger: Ledger) -> list[str]:
        return [one for one in ("ada", "bo") if ledger.find(one, "01_norm", "mark")]

    ledger = open_ledger()
    first = ledger.begin(None, regrade=False)
    keep(ledger, "ada"), keep(ledger, "bo")
    ledger.end()
    assert known(open_ledger()) == ["ada", "bo"] and not open_ledger().find("bo", "01_norm", "new")
    again = open_ledger()
    anew = again.begin(None, regrade=True)
    assert known(again) == [] and anew != first
    keep(again, "bo")  # and here it is killed
    for same in (True, False):
        after = open_ledger()
        assert after.begin(None, regrade=same) == anew
        assert known(after) == ["bo"]
    keep(after, "ada")
    after.end()
    assert known(open_ledger()) == ["ada", "bo"]
    assert open_ledger().begin(None, regrade=True) != anew


def test_a_gradebook_that_is_removed_is_not_remembered(tmp_path: Path) -> None:
    file = tmp_path / "gradebook.db"
    for student in ("ada", "bob"):
        with Gradebook(f"sqlite:///{file}") as gradebook:
            gradebook.add_student(student)
            assert [one.id for one in gradebook.students] == [student]
        file.unlink()


def test_long_names_stay_apart(tmp_path: Path) -> None:
    names = ["[" * 250, "[" * 251, "张" * 80, "a" * 255]
    ids = [nbgrader_id(name) for name in names]
    assert len(set(ids)) == len(names)
    for one in ids:
        assert len(one.encode()) <= 120
        (tmp_path / one).mkdir()
    assert nbgrader_id("ada") == "ada"


@pytest.mark.parametrize("sandbox", ["auto", "bwrap"])
def test_nothing_runs_without_a_sandbox_unless_it_is_said(
    tmp_path: Path, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autograder.grading.sandbox.command.shutil.which", lambda _: None)
    monkeypatch.setattr("autograder.grading.sandbox.command.sysconfig.get_path", lambda _: "/")
    with pytest.raises(CourseError, match="--sandbox none"):
        grade(tmp_path, tmp_path / "out", sandbox=sandbox)


def test_bad_input_is_a_sentence(tmp_path: Path, source: NotebookNode) -> None:
    with pytest.raises(CourseError, match="not a folder"):
        grade(tmp_path / "nowhere", tmp_path / "out", sandbox="none")
    (tmp_path / "class" / "ada").mkdir(parents=True)
    with pytest.raises(CourseError, match="No notebook found"):
        grade(tmp_path / "class", tmp_path / "out", sandbox="none")
    hand_in(tmp_path / "class", "bo", source)
    with pytest.raises(CourseError, match="lies inside"):
        grade(tmp_path / "class", tmp_path / "class" / "out", sandbox="none")
    (tmp_path / "file").write_text("")
    with pytest.raises(CourseError, match="Cannot write"):
        grade(tmp_path / "class", tmp_path / "file", sandbox="none")


def test_check_notebook_reports_every_exercise(source: NotebookNode, tmp_path: Path) -> None:
    notebook = without_demos(deepcopy(source))
    unbiased(notebook)
    notebook.cells.remove(cell(notebook, "check_rms_norm"))
    path = hand_in(tmp_path, "me", notebook)
    reports = {report.exercise: report for report in check_notebook(path)}
    assert list(reports) == list(POINTS)
    assert {name for name, report in reports.items() if not report.passed} == {
        "layer_norm",
        "ManualLayerNorm",
    }


def test_check_notebook_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no file"):
        check_notebook(tmp_path / "01_norm.ipynb")
    (tmp_path / "01_norm.ipynb").write_text("{")
    with pytest.raises(CourseError, match="not a notebook"):
        check_notebook(tmp_path / "01_norm.ipynb")
