"""Every exercise of every lesson: right answers get full marks, wrong ones lose, by name."""

import importlib
from functools import cache

import pytest

from autograder import course, evaluate
from autograder.judge import diagnose
from autograder.judge.catalogue import table
from tests.slips import slipped

EXERCISES = [
    exercise
    for lesson in course.lesson_names()
    for exercise in course.exercises_of(lesson).values()
]
SEEDS = (0, 1)  # of two independent measures of the same, such as mistakes and slips, each has one


@cache
def rows(exercise, seed):
    return list(table([exercise], seed))


def styles(exercise):
    return importlib.import_module(f"tests.styles.{exercise.lesson}").STYLES[exercise.name]


def slips(exercise):
    return importlib.import_module(f"tests.slips.{exercise.lesson}").SLIPS.get(exercise.name, [])


@pytest.fixture(params=EXERCISES, ids=[exercise.name for exercise in EXERCISES])
def exercise(request):
    return request.param


@pytest.mark.parametrize("seed", range(8))
def test_the_reference_gets_full_marks(exercise, seed):
    report = evaluate(exercise.name, exercise.reference, seed=seed)
    assert report.passed, report.text()


@pytest.mark.parametrize("seed", SEEDS)
def test_other_styles_get_full_marks(exercise, seed):
    answers = styles(exercise)
    assert len(answers) >= (4 if exercise.kind != "value" else 1)
    for answer in answers:
        report = evaluate(exercise.name, answer, seed=seed)
        assert report.passed, f"{answer}: {report.text()}"


def test_every_mistake_loses_points_and_is_named(exercise):
    missed = [row for row in rows(exercise, SEEDS[0]) if not row.ok]
    assert not missed


def test_every_mistake_is_named_made_in_the_reference(exercise):
    found = []
    for mistake, edits in slips(exercise):
        report = evaluate(exercise.name, slipped(exercise, edits), seed=SEEDS[1])
        named = {check.mistake for check in report.checks if check.mistake}
        if report.passed or named != {mistake}:
            found.append((mistake, edits, named, report.score))
    assert not found


def test_every_check_is_failed_by_some_mistake(exercise):
    failed = {check for row in rows(exercise, SEEDS[0]) for check in row.checks}
    assert failed == {check.name for check in exercise.checks}


def test_answers_that_do_nothing_get_nothing_or_little(exercise):
    for nothing in (lambda *_, **__: None, None, 0, [], {}):
        assert evaluate(exercise.name, nothing).score == 0


@pytest.mark.parametrize("name", [one.name for one in EXERCISES if one.kind != "value"])
def test_for_what_is_not_answered_yet_no_mistake_is_tried(name, monkeypatch):
    tried = []
    monkeypatch.setattr(diagnose, "_try_mistake", lambda *mistake: tried.append(mistake))

    def unanswered(*args, **kwargs):
        raise NotImplementedError()

    assert evaluate(name, unanswered).score == 0
    assert not tried


def test_every_mistake_has_a_sentence(exercise):
    assert exercise.mistakes
    for mistake in exercise.mistakes:
        assert mistake.sentence.endswith((".", "?")) and len(mistake.sentence) > 15
