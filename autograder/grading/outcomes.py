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


def write_whole(path: Path, text: str, private: bool = False) -> None:
    """Write a file so that a reader sees the old text or the new, never half of it.

    A `private` one, which may hold a password, is for its owner alone.
    """
    partial = path.with_name(f".{path.name}.partial")
    if private:
        partial.unlink(missing_ok=True)
        partial.touch(mode=0o600)
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
        self._stale: set[tuple[str, str]] = set()
        self._seed: int | None = None
        self._regrading = False  # a run that grades everything again has begun and not ended
        lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
        for line in lines:
            if line.endswith("\n"):
                self._read(json.loads(line))
        if lines and not lines[-1].endswith("\n"):
            write_whole(path, "".join(lines[:-1]))

    def _read(self, entry: dict[str, Any]) -> None:
        if "seed" in entry:
            self._seed = entry["seed"]
        elif "regrading" in entry:
            self._regrading = entry["regrading"]
            if self._regrading:
                self._stale = set(self.entries)
        else:
            key = entry["outcome"]["lesson"], entry["outcome"]["student"]
            self.entries[key] = entry
            self._stale.discard(key)

    def begin(self, seed: int | None, regrade: bool) -> int:
        """The seed of a run: the one given, else the last run's, else a new one.

        With `regrade` nothing that was graded before counts, and a new seed is drawn; but one that
        was interrupted goes on, whether the run after it asks for it or not.
        """
        if regrade and not self._regrading:
            self._append({"regrading": True})
            self._seed = None
        chosen = seed if seed is not None else self._seed
        if chosen is None:
            chosen = secrets.randbelow(2**31)
        if chosen != self._seed:
            self._append({"seed": chosen})
        return chosen

    def end(self) -> None:
        """A run has come to its end."""
        if self._regrading:
            self._append({"regrading": False})

    def find(self, student: str, lesson: str, fingerprint: str) -> Outcome | None:
        """What came of a submission, if it is to be graded no more."""
        entry = self.entries.get((lesson, student))
        if entry is None or entry["fingerprint"] != fingerprint:
            return None
        if self._regrading and (lesson, student) in self._stale:
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
        self._append(entry)

    def _append(self, entry: dict[str, Any]) -> None:
        self._read(entry)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
