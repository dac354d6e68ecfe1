"""Which known mistake an answer made, found by running the mistakes on the same inputs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from autograder.judge.agent import Agent
from autograder.judge.compare import alike, was_changed
from autograder.judge.draw import Draw
from autograder.judge.exercise import Check, Exercise, Mistake
from autograder.judge.subject import (
    Failure,
    LinkLost,
    LocalLink,
    Recorder,
    Subject,
    is_device_mismatch,
    is_its_own,
    is_unanswered,
)
from autograder.judge.values import walk


def run_check(
    exercise: Exercise,
    check: Check,
    link: Any,
    seed: int,
    device: str = "cpu",
    follow: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[str | None, list[dict[str, Any]]]:
    """Run one check over `link`: what it says against the answer (None: passed), and the replies.

    The draws depend on the seed, the exercise and the check alone, so every answer meets the same.
    `follow` hears of each reply. What the check leaves with the answer is undone by the next one,
    or by RESET.
    """
    recorder = Recorder(link, follow)
    answer = Subject(recorder, exercise.name, ruled_out=exercise.ruled_out)
    own = LocalLink(Agent(exercise.reference, (), device))
    reference = Subject(own, "the reference")
    try:
        check.run(answer, reference, Draw(seed, exercise.name, check.name, device=device))
    except Failure as failure:
        return str(failure), recorder.replies
    except LinkLost:
        raise
    except Exception as error:
        # A value that no check foresaw: it loses this check alone.
        return f"This can't be checked: {type(error).__name__}: {error}", recorder.replies
    return None, recorder.replies


def agent_for(exercise: Exercise, answer: Any, device: str = "cpu") -> Agent:
    """An agent that holds `answer` and watches for what the exercise rules out."""
    return Agent(answer, exercise.ruled_out.names if exercise.ruled_out else (), device)


def diagnose(
    exercise: Exercise,
    failed: dict[str, list[dict[str, Any]]],
    passed: set[str],
    seed: int,
    device: str = "cpu",
) -> dict[str, Mistake]:
    """For each failed check, by name, the mistake that behaves like the answer, if there is one.

    `failed` has the answer's replies in each. A mistake that fails where the answer `passed`, or
    fails in another way where the answer made one that is known already, is not the answer's. Of
    several, the one most like it in all the checks is meant, and the earlier of equals; but where
    only the outlines are alike, equals with other names leave it open which was made. What is not
    answered yet is no mistake.
    """

    def tried(place: int, name: str) -> _Tried:
        return _try_mistake(exercise, place, name, seed, device)

    def likeness(place: int, name: str) -> int:
        return tried(place, name).fails_like(behaviours[name])

    def agrees(place: int) -> bool:
        return all(tried(place, other).passes() for other in passed) and all(
            likeness(place, other) or tried(place, other).passes() for other in places
        )

    behaviours = {
        name: [behaviour(reply) for reply in replies]
        for name, replies in failed.items()
        if not any(reply["error"] and is_unanswered(reply["error"]) for reply in replies)
    }
    places: dict[str, int] = {}
    for name in behaviours:
        # A mistake that explained an earlier check is the likely one here too.
        again = next((place for place in places.values() if likeness(place, name)), None)
        if again is not None:
            places[name] = again
            continue
        alike_here = [place for place in range(len(exercise.mistakes)) if likeness(place, name)]
        score = {
            place: (likeness(place, name), sum(likeness(place, other) for other in behaviours))
            for place in alike_here
            if agrees(place)
        }
        top = max(score.values(), default=None)
        best = [place for place in score if score[place] == top]
        names = {exercise.mistakes[place].name for place in best}
        if best and (score[best[0]][0] == WHOLLY or len(names) == 1):
            places[name] = best[0]
    return {name: exercise.mistakes[place] for name, place in places.items()}


RESET = {"do": "reset", "target": 0}
OUTLINES, WHOLLY = 1, 2  # how much two answers are alike


class _Differs(LinkLost):
    """A mistake does something that the answer did not do, so the rest need not be seen."""


class _Tried:
    """What a check says against a mistake, and how the mistake behaves in it, as far as known.

    It is found out when it is asked for, at first no further than is needed to tell it from an
    answer: most of a catalogue differs from most answers in the first replies.
    """

    def __init__(self, exercise: Exercise, place: int, name: str, seed: int, device: str):
        self._exercise, self._seed, self._device = exercise, seed, device
        self._answer = exercise.mistakes[place].answer
        self._check = next(check for check in exercise.checks if check.name == name)
        self._behaviour: list[Behaviour] = []
        self._whole = False
        self._message: str | None = None

    def passes(self) -> bool:
        self._run(None)
        return self._message is None

    def fails_like(self, wanted: list[Behaviour]) -> int:
        """How much of all that an answer did, reply by reply, it does and fails the check: or 0."""
        likeness = self._likeness(wanted)
        if likeness and not self._whole:
            self._run(None if self._behaviour else wanted)
            likeness = self._likeness(wanted)
        ended_alike = self._whole and len(self._behaviour) == len(wanted)
        return likeness if ended_alike and self._message is not None else 0

    def _likeness(self, wanted: list[Behaviour]) -> int:
        """How much as far as it is known."""
        least = WHOLLY
        for pair in zip(self._behaviour, wanted, strict=False):
            least = min(least, likeness_of(*pair))
            if not least:
                break
        return least

    def _run(self, wanted: list[Behaviour] | None) -> None:
        """Find out the rest, or as much as is like `wanted`."""
        if self._whole:
            return
        agent = agent_for(self._exercise, self._answer, self._device)
        found: list[Behaviour] = []

        def follow(reply: dict[str, Any]) -> None:
            found.append(behaviour(reply))
            place = len(found) - 1
            if wanted is not None and not (
                place < len(wanted) and likeness_of(found[place], wanted[place])
            ):
                raise _Differs

        try:
            self._message, _ = run_check(
                self._exercise, self._check, LocalLink(agent), self._seed, self._device, follow
            )
            self._whole = True
        except _Differs:
            pass
        finally:
            agent.perform(RESET)
        self._behaviour = found


@lru_cache(maxsize=4096)
def _try_mistake(exercise: Exercise, place: int, check_name: str, seed: int, device: str) -> _Tried:
    return _Tried(exercise, place, check_name, seed, device)


@dataclass(frozen=True)
class Behaviour:
    """What of a reply tells two answers apart: names of classes, lines and prints do not.

    The `outlines` do in other hands too: they leave to the `whole` in what operation an error came
    up, what the answer's own errors say, and what an argument was changed to.
    """

    whole: dict[str, Any]
    outlines: dict[str, Any]


def likeness_of(one: Behaviour, other: Behaviour) -> int:
    """0, OUTLINES or WHOLLY."""
    if not alike(one.outlines, other.outlines):
        return 0
    return WHOLLY if alike(one.whole, other.whole) else OUTLINES


def behaviour(reply: dict[str, Any]) -> Behaviour:
    """What an agent's reply shows of an answer."""
    if reply["ruled_out"]:
        return Behaviour({"ruled_out": True}, {})
    value, error = reply["value"], reply["error"]
    if isinstance(value, dict) and "module" in value:
        value = {key: _in_order(value[key]) for key in value if key not in ("bases", "modules")}
    whole = {
        "error": error and (error["type"], _said(error)),
        "arguments": reply.get("arguments"),
    }
    came = {"value": value, **{key: reply.get(key) for key in ("gradients", "parameters")}}
    if reply.get("meta") and _left_behind(reply):
        return Behaviour(whole | came, {"left_behind": True})
    changed = _changed(reply.get("given"), reply.get("arguments"))
    return Behaviour(whole, came | {"error": error and _behind(error), "changed": changed})


def _left_behind(reply: dict[str, Any]) -> bool:
    """Whether a run on `meta` left a tensor elsewhere: it met others there, or came back."""
    if reply["error"]:
        return is_device_mismatch(reply["error"])
    found: list[bool] = []
    walk(
        reply["value"],
        lambda one: found.append(isinstance(one, torch.Tensor) and one.device.type != "meta"),
    )
    return any(found)


def _changed(before: Any, after: Any) -> Any:
    """Which of the tensors that were handed over a call changed, whatever to."""
    if isinstance(before, torch.Tensor):
        return was_changed(after, before)
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        return [_changed(*pair) for pair in zip(before, after, strict=False)]
    if isinstance(before, dict) and isinstance(after, dict):
        return {key: _changed(before[key], after.get(key)) for key in before}
    return None


def _in_order(part: Any) -> Any:
    """The rows of a description, in whatever order an answer made its parts."""
    if not (isinstance(part, list) and all(isinstance(row, list) for row in part)):
        return part
    numbers: dict[str, int] = {}  # storages are numbered as they come
    return [
        [*row[:5], *(numbers.setdefault(str(one), len(numbers)) for one in row[5:])]
        for row in sorted(part, key=str)
    ]


OF_ITS_OWN = ("AssertionError", "NotImplementedError")  # a line that some mistakes are about


def _behind(error: dict[str, Any]) -> Any:
    """What an error came of: of a None or a tensor on another device, whatever was done with it.

    One that the answer raises itself is a ValueError in this course, or one like another.
    """
    if is_device_mismatch(error):
        return "another device"
    if error["type"] in ("TypeError", "AttributeError") and "NoneType" in error["message"]:
        return "None"
    if error["type"] == "UnboundLocalError":
        return "a name without a value"
    if is_its_own(error):
        known = "ValueError" in error["bases"] or error["type"] in OF_ITS_OWN
        return error["type"] if known else "another error"
    return error["type"], _said(error)


def _said(error: dict[str, Any]) -> Any:
    """What an error says; of one that the answer raises itself numbers and names, not the words.

    Python's own on wrong arguments begins with the function's name: "Mine.__init__() got an …".
    """
    if is_its_own(error):
        return re.findall(r"\d+(?:\.\w+)*", error["message"])  # "0.weight" is not "0.bias"
    return re.sub(r"^[\w.<>]+(?=\(\) (?:got|missing|takes) )", "", error["message"])
