"""What came of each submission: the CSV for people, the ledger for the next run."""

import csv
import io
import json
import os
import secrets
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What came of one submission: "graded", or "flagged" for the instructor to look at."""

    student: str
    lesson: str
    score: float
    max_score: float
    status: str
    reason: str = ""


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new, never half of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, "utf-8", newline="")
    os.replace(partial, path)


def write_csv(path: Path, outcomes: list[Outcome]) -> None:
    """All outcomes, a row each, with a header."""
    rows = io.StringIO()
    writer = csv.writer(rows)
    writer.writerow(field.name for field in fields(Outcome))
    for outcome in outcomes:
        values = astuple(outcome)
        writer.writerow(f"{v:g}" if isinstance(v, (int, float)) else v for v in values)
    write_whole(path, rows.getvalue())


class Ledger:
    """Outcomes of earlier runs, each under the fingerprint of what was graded.

    A file of JSON lines that only grows, so that a kill loses no line but the one being written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[tuple[str, str], dict[str, Any]] = {}
        self._seed: int | None = None
        lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
        for line in lines:
            if line.endswith("\n"):
                entry = json.loads(line)
                if "seed" in entry:
                    self._seed = entry["seed"]
                else:
                    self.entries[entry["outcome"]["lesson"], entry["outcome"]["student"]] = entry
        if lines and not lines[-1].endswith("\n"):
            write_whole(path, "".join(lines[:-1]))

    def seed(self, given: int | None, anew: bool) -> int:
        """The seed to draw from: the one given, else the last run's, else (or `anew`) a new one."""
        seed = given if given is not None else None if anew else self._seed
        if seed is None:
            seed = secrets.randbelow(2**31)
        if seed != self._seed:
            self._append({"seed": seed})
        self._seed = seed
        return seed

    def find(self, student: str, lesson: str, fingerprint: str) -> Outcome | None:
        entry = self.entries.get((lesson, student))
        if entry is None or entry["fingerprint"] != fingerprint:
            return None
        return Outcome(**entry["outcome"])

    def keep(
        self,
        outcome: Outcome,
        fingerprint: str,
        scores: dict[str, int],
        mistakes: dict[str, list[str]],
    ) -> None:
        """Remember an outcome at once, so that a killed run loses none."""
        entry = {
            "fingerprint": fingerprint,
            "outcome": asdict(outcome),
            "scores": scores,
            "mistakes": mistakes,
        }
        self.entries[outcome.lesson, outcome.student] = entry
        self._append(entry)

    def _append(self, entry: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
