"""The benchmark runs, and writes its table and its picture. How fast it is, is not looked at."""

from pathlib import Path

from autograder.course import lesson
from autograder.grading import bench
from autograder.grading.bench_class import written_mistakes


def test_mistakes_can_be_written_down() -> None:
    found = written_mistakes(lesson("norm"))
    assert len(found) > 5
    for name, source in found:
        scope: dict[str, object] = {}
        exec(source, scope)
        assert callable(scope[name])


def test_it_measures_and_writes(tmp_path: Path) -> None:
    words = ["--students", "2", "--workers", "1", "--plain-students", "2", "--lessons", "norm"]
    bench.main([*words, "--out", str(tmp_path)])
    table = (tmp_path / "bench.md").read_text("utf-8")
    row = next(line for line in table.splitlines() if line.startswith("| 01_norm"))
    assert row.endswith("| 2 of 2 |")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
