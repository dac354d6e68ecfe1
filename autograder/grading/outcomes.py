"""What came of each submission: the CSV for people, the ledger for the next run."""

import csv
import io
import json
import os
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
    """Outcomes of earlier runs, each under the fingerprint of what was graded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, dict[str, Any]] = {}
        if path.exists():
            self.entries = json.loads(path.read_text("utf-8"))

    def find(self, student: str, lesson: str, fingerprint: str) -> Outcome | None:
        entry = self.entries.get(f"{lesson}/{student}")
        if entry is None or entry["fingerprint"] != fingerprint:
            return None
        return Outcome(**entry["outcome"])

    def keep(self, outcome: Outcome, fingerprint: str) -> None:
        """Remember an outcome at once, so that a killed run loses none."""
        entry = {"fingerprint": fingerprint, "outcome": asdict(outcome)}
        self.entries[f"{outcome.lesson}/{outcome.student}"] = entry
        write_whole(self.path, json.dumps(self.entries, indent=1, ensure_ascii=False))
