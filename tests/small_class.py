"""A small class of lesson norm, and what a run of the real command over it left behind."""

import contextlib
import csv
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import nbformat
import psutil
from nbformat import NotebookNode
from nbgrader.api import Gradebook

from autograder import builder
from autograder.course import lesson

LESSON = lesson("norm")
SEED = "7"
NO_EPS = """\
import torch

def layer_norm(x, scale, shift, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False)) * scale + shift
"""
UNBIASED = NO_EPS.replace(", unbiased=False)", ") + eps")
LEAVES = "import os\nos._exit(3)"
ANSWERS = {
    "ada": {},
    "bo": {"layer_norm": NO_EPS},
    "chen": {"layer_norm": UNBIASED, "norm_quiz": "norm_quiz = {1: 'a', 2: 'b'}"},
    "dora": {"rms_norm": LEAVES},
    "emil": {"rms_norm": "def rms_norm(x, scale, eps=1e-6):\n    return x * scale"},
}


def hand_in(folder: Path, student: str, notebook: NotebookNode) -> Path:
    path = folder / student / f"{LESSON.stem}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def with_answers(answers: dict[str, str]) -> NotebookNode:
    """The solved notebook with other answers in it."""
    notebook = deepcopy(builder.source(LESSON))
    for cell in notebook.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        cell.source = answers.get(grade_id, cell.source)
    return notebook


def make(folder: Path) -> Path:
    """Seven students: right, wrong in several ways, deadly, untouched, and a damaged file."""
    for student, answers in ANSWERS.items():
        hand_in(folder, student, with_answers(answers))
    hand_in(folder, "finn", builder.release(builder.source(LESSON)))
    damaged = hand_in(folder, "gil", with_answers({}))
    damaged.write_bytes(damaged.read_bytes()[:2000])
    return folder


def command(submissions: Path, out: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "autograder.cli", "grade", str(submissions), "--out", str(out)]
    return [*words, "--seed", SEED, "--workers", "1", *more]


def grade(submissions: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        command(submissions, out, *more), capture_output=True, text=True, timeout=300
    )


class Run:
    """The command while it runs, so that something can be done to it; a context manager."""

    def __init__(self, submissions: Path, out: Path, *more: str) -> None:
        self.out = out
        self.process = subprocess.Popen(
            command(submissions, out, *more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # as a shell starts a job, which Ctrl-C reaches as a whole
        )

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def when(self, ready: Callable[[], object], seconds: float = 120) -> None:
        """Wait until `ready`, while it runs."""
        deadline = time.monotonic() + seconds
        while not ready():
            assert self.process.poll() is None, self.end()
            assert time.monotonic() < deadline, "it did not come to that point"
            time.sleep(0.02)

    def graded(self) -> int:
        """How many submissions it has kept by now."""
        ledger = self.out / "course" / "outcomes.jsonl"
        return ledger.read_text("utf-8").count('"fingerprint"') if ledger.exists() else 0

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def family(self) -> list[psutil.Process]:
        """What it has started, workers, sandboxes and kernels."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def workers(self) -> list[psutil.Process]:
        """Those of it that judge."""
        found = []
        for one in self.family():
            with contextlib.suppress(psutil.Error):
                if "forkserver" in " ".join(one.parent().cmdline()):
                    found.append(one)
        return found

    def end(self, seconds: float = 240) -> tuple[int, str]:
        """Its exit status and what it said."""
        said, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, said


def left(out: Path, db: str = "") -> dict[str, object]:
    """What a run leaves that must not depend on what happened to it on the way."""
    url = db or f"sqlite:///{out / 'gradebook.db'}"
    return {"csv": rows(out), "gradebook": gradebook(url), "feedback": feedback(out)}


def scores(out: Path) -> dict[str, float]:
    return {row["student"]: float(row["score"]) for row in rows(out)}


def rows(out: Path) -> list[dict[str, str]]:
    with open(out / "grades.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def gradebook(url: str) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    """Every grade, by student and cell: one that was entered twice would be an error here."""
    found: dict[tuple[str, str], tuple[float | None, float | None]] = {}
    with Gradebook(url) as book:
        for submission in book.assignment_submissions(LESSON.stem):
            for notebook in submission.notebooks:
                for one in notebook.grades:
                    key = submission.student.id, one.name
                    assert key not in found
                    found[key] = one.auto_score, one.manual_score
    return found


def feedback(out: Path) -> dict[str, str]:
    """Every file of feedback, partly written ones too; cells have other ids every time."""
    folder = out / "feedback"
    return {
        str(path.relative_to(folder)): re.sub(r"cell-id=[\w-]+", "", path.read_text("utf-8"))
        for path in folder.rglob("*")
        if path.is_file()
    }
