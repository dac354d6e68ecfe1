"""Judging an answer: every check in order, then the diagnosis of those that failed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch

from autograder import course
from autograder.devices import device as course_device
from autograder.judge.diagnose import RESET, agent_for, diagnose, run_check
from autograder.judge.exercise import Exercise
from autograder.judge.report import CheckResult, Report
from autograder.judge.subject import Link, LinkLost, LocalLink, Subject

PRINT_LIMIT = 1_000


def evaluate(name: str, answer: Any, *, seed: int = 0, device: str = "cpu") -> Report:
    """Judge `answer` as the exercise called `name`; CourseError if there is no such exercise.

    The inputs are drawn from `seed`: the same seed repeats a run exactly.
    """
    exercise = course.exercise(name)
    return judge(exercise, LocalLink(agent_for(exercise, answer, device)), seed, device)


def check(name: str) -> Report:
    """Judge what the caller's notebook calls `name`, and show the report. Never raises.

    The seed is 0, or the environment variable COURSE_SEED.
    """
    caller = sys._getframe(1)
    try:
        exercise = course.exercise(name)
        seed = int(os.environ.get("COURSE_SEED") or 0)
        device = course_device().type
        scope = {**caller.f_globals, **caller.f_locals}
        if name not in scope:
            return Report.nothing(
                exercise,
                seed,
                f"There is no `{name}` in this notebook yet: run the cell that defines it, "
                "then this one again.",
            )
        link = LocalLink(agent_for(exercise, scope[name], device))
        return judge(exercise, link, seed, device)
    except KeyboardInterrupt:
        return Report(name, problem="You interrupted the check.")
    except (Exception, SystemExit) as error:
        return Report(name, problem=f"{type(error).__name__}: {error}"[:1000])


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Have torch compute in one thread.

    The tensors are small, and on a busy machine threads take ten times as long to wait for others.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_one_thread()
def judge(exercise: Exercise, link: Link, seed: int, device: str = "cpu") -> Report:
    """Run the checks of `exercise` against the answer at the other end of `link`."""
    if problem := _wrong_kind(exercise, link):
        return Report.nothing(exercise, seed, problem)
    messages: dict[str, str | None] = {}
    failed: dict[str, list[dict[str, Any]]] = {}
    printed, interrupted = "", False
    for check in exercise.checks:
        if interrupted or any(messages.get(need, "") is not None for need in check.needs):
            continue
        try:
            message, replies = run_check(exercise, check, link, seed, device)
        except KeyboardInterrupt:
            message, replies, interrupted = "You interrupted it here.", [], True
        messages[check.name] = message
        if message is not None:
            failed[check.name] = replies
        printed = printed or "".join(reply["printed"] for reply in replies)[:PRINT_LIMIT]
    with contextlib.suppress(LinkLost):  # the verdicts are made
        link.perform(RESET)
    passed = messages.keys() - failed.keys()
    found = {} if interrupted else diagnose(exercise, failed, passed, seed, device)
    return Report(
        exercise=exercise.name,
        checks=[_result(exercise, place, messages, found) for place in range(len(exercise.checks))],
        seed=seed,
        printed=printed,
    )


def _wrong_kind(exercise: Exercise, link: Link) -> str:
    """A sentence where a class or a function is asked for and the answer is none."""
    kind = Subject(link, exercise.name).kind()
    # A function that makes the module does what a class does.
    if exercise.kind == "class" and kind.name not in ("class", "function"):
        return f"`{exercise.name}` has to be a class; this is a {kind.bases[0]}."
    if exercise.kind == "function" and kind.name == "value":
        return f"`{exercise.name}` has to be a function; this is a {kind.bases[0]}."
    wanted = type(exercise.reference).__name__
    if exercise.kind == "value" and wanted not in kind.bases:
        return f"`{exercise.name}` has to be a {wanted}; this is a {kind.bases[0]}."
    return ""


def _result(exercise: Exercise, place: int, messages: Any, found: Any) -> CheckResult:
    check = exercise.checks[place]
    mistake = found.get(check.name)
    tried = check.name in messages
    message = messages.get(check.name)
    if not tried:
        waiting = [
            f"«{one.sentence}»"
            for one in exercise.checks
            if one.name in check.needs and messages.get(one.name, "") is not None
        ]
        message = f"Not tried yet: first {' and '.join(waiting)}" if waiting else "Not tried."
    return CheckResult(
        name=check.name,
        sentence=check.sentence,
        points=check.points,
        passed=tried and message is None,
        message=message or "",
        mistake=mistake.name if mistake else None,
        advice=mistake.sentence if mistake else None,
        tried=tried,
    )
