"""The command line: exit statuses, and sentences in place of tracebacks."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from autograder import builder, course, grading
from autograder.cli import app
from autograder.course import CourseError, Lesson
from autograder.grading import Outcome
from autograder.judge import catalogue

COMMANDS = ("build", "check", "grade", "mistakes", "kernels")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def one_lesson(monkeypatch, tmp_path):
    lesson = Lesson(1, "norm", tmp_path / "lessons/01_norm.md", tmp_path)
    monkeypatch.setattr(course, "lessons", lambda: [lesson])
    return lesson


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_with_an_example(command):
    page = run(command, "--help")
    assert page.exit_code == 0
    assert "Example" in page.output and f"autograder {command}" in page.output
    assert command in run("--help").output


@pytest.mark.parametrize("page", [(), ("grade",)])
def test_a_help_page_does_not_wait_for_torch(page):
    program = (
        "import sys; from autograder.cli import app; app(standalone_mode=False);"
        "assert not {'torch', 'nbformat', 'jupyter_client'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, *page, "--help"], check=True)


@pytest.mark.parametrize(
    ("stale", "arguments", "status"),
    [([], [], 0), ([], ["--check"], 0), (["a: b"], [], 0), (["a: b"], ["--check"], 1)],
)
def test_build_fails_only_where_a_check_finds_a_difference(
    one_lesson, monkeypatch, stale, arguments, status
):
    given = []

    def build(lessons, check):
        given.append((lessons, check))
        return stale

    monkeypatch.setattr(builder, "build", build)
    result = run("build", *arguments)
    assert result.exit_code == status
    assert given == [([one_lesson], bool(arguments))]
    assert all(sentence.partition(":")[0] in result.output for sentence in stale)


def test_what_the_user_can_put_right_is_one_line_and_status_2(one_lesson, monkeypatch):
    def build(lessons, check):
        raise CourseError("lessons/01_norm.md:3: this block is not closed.")

    monkeypatch.setattr(builder, "build", build)
    result = run("build")
    assert result.exit_code == 2
    assert result.stderr == "lessons/01_norm.md:3: this block is not closed.\n"
    assert run("build", "nrom").exit_code == 2
    assert run("build", "--check", "--watch").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "sandbox", "seed", "more"),
    [
        ([], "auto", None, {}),
        (["--sandbox", "none", "--seed", 7, "--regrade"], "none", 7, {"regrade": True}),
        (
            ["--workers", 2, "--db", "sqlite:///x"],
            "auto",
            None,
            {"workers": 2, "db": "sqlite:///x"},
        ),
        (["--cluster", "tcp://here:1"], "auto", None, {"cluster": "tcp://here:1"}),
    ],
)
def test_grade_passes_on_what_was_asked_for(tmp_path, monkeypatch, arguments, sandbox, seed, more):
    given = []
    monkeypatch.setattr(
        grading, "grade", lambda *words, **names: given.append((words, names)) or []
    )
    assert run("grade", tmp_path, "--out", "o", *arguments).exit_code == 0
    options = {"workers": None, "regrade": False, "db": "", "cluster": ""} | more
    assert given == [((tmp_path, Path("o"), sandbox, seed), options)]


@pytest.mark.parametrize(("status", "exit_code"), [("graded", 0), ("flagged", 3)])
def test_grade_says_whether_some_were_flagged(tmp_path, monkeypatch, status, exit_code):
    outcomes = [
        Outcome("alice", "01_norm", 9, 9, "graded"),
        Outcome("bob [/] b", "01_norm", 3.5, 9, status, "a [reason]"),
        Outcome("alice", "02_next", 8, 9, "graded"),
    ]
    monkeypatch.setattr(grading, "grade", lambda *words, **names: outcomes)
    result = run("grade", tmp_path, "--out", "o")
    assert result.exit_code == exit_code
    assert "bob [/] b" in result.output and "3.5 of 9" in result.output
    assert "a [reason]" in result.output
    lines = [line.split() for line in result.output.splitlines()]
    graded = 1 + (status == "graded")
    assert ["01_norm", "2", str(graded), str(2 - graded), "6.25"] in lines
    assert ["02_next", "1", "1", "0", "8"] in lines
    assert "o/grades.csv" in result.output and "o/overview.html" in result.output


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(grading.Interrupted("Ctrl-C [!]."), 130), (CourseError("Ctrl-C [!]."), 2)],
)
def test_what_ends_a_run_is_a_sentence(tmp_path, monkeypatch, error, exit_code):
    def grade(*words, **names):
        raise error

    monkeypatch.setattr(grading, "grade", grade)
    result = run("grade", tmp_path)
    assert (result.exit_code, result.stderr, result.stdout) == (exit_code, "Ctrl-C [!].\n", "")


def test_no_sandbox_is_a_sentence_before_anything_runs(tmp_path, monkeypatch):
    def missing(sandbox):
        assert sandbox == "auto"
        raise CourseError("Install bubblewrap.")

    monkeypatch.setattr(grading, "sandbox_works", missing)
    result = run("grade", tmp_path, "--out", tmp_path / "out")
    assert (result.exit_code, result.stderr) == (2, "Install bubblewrap.\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", [["--workers", 0], ["--seed", -1], ["--sandbox", "docker"]])
def test_a_wrong_option_is_not_graded_with(tmp_path, wrong):
    assert run("grade", tmp_path, *wrong).exit_code == 2


def test_grading_a_folder_that_is_not_there_is_a_sentence(tmp_path):
    result = run("grade", tmp_path / "nowhere", "--sandbox", "none")
    assert result.exit_code == 2
    assert "nowhere" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(("lost", "exit_code"), [(2, 0), (0, 1)])
def test_a_mistake_that_keeps_its_points_is_a_failure(monkeypatch, lost, exit_code):
    row = catalogue.Row("layer_norm", "no_eps", lost, lost > 0, ["eps"] if lost else [])
    monkeypatch.setattr(catalogue, "table", lambda exercises, seed: iter([row]))
    result = run("mistakes")
    assert result.exit_code == exit_code
    assert "no_eps" in result.output


@pytest.mark.parametrize(("passed", "exit_code"), [(True, 0), (False, 1)])
def test_check_prints_the_reports_of_a_notebook(tmp_path, monkeypatch, passed, exit_code):
    from autograder import check_notebook

    report = SimpleNamespace(
        exercise="layer_norm", score=1, max_score=2, passed=passed, text=lambda: "the [report]"
    )
    monkeypatch.setattr(check_notebook, "check_notebook", lambda path: [report])
    notebook = tmp_path / "01_norm.ipynb"
    notebook.write_text("{}")
    result = run("check", notebook)
    assert result.exit_code == exit_code
    assert "the [report]" in result.output and "1 of 2" in result.output
