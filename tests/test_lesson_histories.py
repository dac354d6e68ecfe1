"""The data of lesson 08 is what its script makes and what its README says."""

import csv
import hashlib
import runpy

import pytest

from autograder.course import ROOT
from visuals import training

FOLDER = ROOT / "data"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(FOLDER / "make_lesson_histories.py"))


@pytest.fixture(scope="module")
def readme():
    return (FOLDER / "README.md").read_text("utf-8")


def test_the_script_makes_exactly_this_file(script, tmp_path):
    script["main"](tmp_path / "made.csv")
    committed = (FOLDER / "lesson_histories.csv").read_bytes()
    assert (tmp_path / "made.csv").read_bytes() == committed


def test_the_readme_has_its_hash(readme):
    digest = hashlib.sha256((FOLDER / "lesson_histories.csv").read_bytes()).hexdigest()
    assert digest in readme


def test_the_rows_are_what_the_readme_says():
    with (FOLDER / "lesson_histories.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["learner"]) for row in rows] == list(range(1, 1501))
    assert sum(row["split"] == "held out" for row in rows) == 300
    for row in rows:
        lessons = [int(lesson) for lesson in row["lessons"].split()]
        assert 6 <= len(lessons) <= 16 and set(lessons) <= set(range(1, 49))


@pytest.mark.parametrize(
    ("split", "cases", "rule"), [("train", 10_933, "41.6%"), ("held out", 2_697, "39.7%")]
)
def test_the_rule_reaches_what_the_readme_says(readme, split, cases, rule):
    history, following = training.lesson_histories(split)
    right = (history[:, 0] % 48 + 1 == following).double().mean().item()
    assert len(history) == len(following) == cases
    assert f"{right:.1%}" == rule and rule in readme and f"{cases:,}" in readme


def test_the_latest_lesson_stands_first():
    history, following = training.lesson_histories("train")
    # Learner 1 begins with 25 31 26 16.
    assert history[0].tolist() == [31, 25] + [0] * 14 and following[0] == 26
    assert history[1].tolist() == [26, 31, 25] + [0] * 13 and following[1] == 16
