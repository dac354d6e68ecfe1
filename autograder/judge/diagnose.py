"""Which known mistake an answer made, found by running the mistakes on the same inputs."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Any

from autograder.judge.agent import Agent
from autograder.judge.compare import alike
from autograder.judge.draw import Draw
from autograder.judge.exercise import Check, Exercise, Mistake
from autograder.judge.renaming import Renaming
from autograder.judge.subject import Failure, LinkLost, LocalLink, Recorder, Subject


def run_check(
    exercise: Exercise, check: Check, link: Any, seed: int, device: str = "cpu"
) -> tuple[str | None, list[dict[str, Any]]]:
    """Run one check over `link`: what it says against the answer (None: passed), and the replies.

    The draws depend on the seed, the exercise and the check alone, so every answer meets the same.
    """
    recorder = Recorder(Renaming(link))
    answer = Subject(recorder, exercise.name, ruled_out=exercise.ruled_out)
    own = Renaming(LocalLink(Agent(exercise.reference, (), device)))
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
    finally:
        if recorder.left_traces and not isinstance(sys.exception(), LinkLost):
            link.perform({"do": "reset", "target": 0})
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

    `failed` has the answer's replies in each. A mistake that fails where the answer `passed` is
    not the answer's. Of several, the one that behaves like it in the most checks is meant, and
    the earlier one of equals.
    """

    def tried(place: int, name: str) -> tuple[str | None, list[dict[str, Any]]]:
        return _try_mistake(exercise, place, name, seed, device)

    def matches(place: int, name: str) -> bool:
        message, behaviour = tried(place, name)
        return message is not None and alike(behaviour, behaviours[name])

    behaviours = {name: [_behaviour(reply) for reply in failed[name]] for name in failed}
    places: dict[str, int] = {}
    for name in failed:
        # A mistake that explained an earlier check is the likely one here too.
        again = next((place for place in places.values() if matches(place, name)), None)
        if again is not None:
            places[name] = again
            continue
        candidates = [
            place
            for place in range(len(exercise.mistakes))
            if matches(place, name) and all(tried(place, other)[0] is None for other in passed)
        ]
        if candidates:
            places[name] = max(
                candidates, key=lambda place: sum(matches(place, name) for name in failed)
            )
    return {name: exercise.mistakes[place] for name, place in places.items()}


@lru_cache(maxsize=4096)
def _try_mistake(
    exercise: Exercise, place: int, check_name: str, seed: int, device: str
) -> tuple[str | None, list[dict[str, Any]]]:
    """What a check says against a mistake, and the mistake's behaviour in it; kept for the next."""
    link = LocalLink(agent_for(exercise, exercise.mistakes[place].answer, device))
    check = next(check for check in exercise.checks if check.name == check_name)
    message, replies = run_check(exercise, check, link, seed, device)
    return message, [_behaviour(reply) for reply in replies]


def _behaviour(reply: dict[str, Any]) -> dict[str, Any]:
    """What of a reply tells two answers apart: names of classes, lines and prints do not."""
    if reply["ruled_out"]:
        return {"ruled_out": True}
    error = reply["error"] and (reply["error"]["type"], _said(reply["error"]))
    value = reply["value"]
    if isinstance(value, dict) and "module" in value:
        value = {key: _in_order(value[key]) for key in value if key not in ("bases", "modules")}
    return {
        "value": value,
        "error": error,
        **{key: reply.get(key) for key in ("arguments", "gradients", "parameters")},
    }


def _in_order(part: Any) -> Any:
    """The rows of a description, in whatever order an answer made its parts."""
    if not (isinstance(part, list) and all(isinstance(row, list) for row in part)):
        return part
    numbers: dict[str, int] = {}  # storages are numbered as they come
    return [
        [*row[:5], *(numbers.setdefault(str(one), len(numbers)) for one in row[5:])]
        for row in sorted(part, key=str)
    ]


def _said(error: dict[str, Any]) -> Any:
    """What an error says; of one that the answer raises itself numbers and names, not the words.

    Python's own on wrong arguments begins with the function's name: "Mine.__init__() got an …".
    """
    if re.search(r"(?:^|:\s*)(?:raise|assert)\b", error["code"]):
        return re.findall(r"\d+(?:\.\w+)*", error["message"])  # "0.weight" is not "0.bias"
    return re.sub(r"^[\w.<>]+(?=\(\) (?:got|missing|takes) )", "", error["message"])
