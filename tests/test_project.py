"""The files around the code: versions, set-up, what is tracked, and the code in the lessons."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml

from autograder.builder import source
from autograder.course import ROOT, lessons

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def pins(lines: list[str]) -> dict[str, str]:
    """{"torch": "2.13.0"} from ["torch==2.13.0"]; anything but an exact version is an error."""
    found = {}
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[\w+\])?==([0-9][0-9a-z.]*)", line)
        assert match, f"{line!r} is not an exact version"
        found[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[2]
    return found


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return pins([line for line in lines if not line.startswith("#")])


def run(*command: str, cwd: Path, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, text=True, capture_output=True, **kwargs)


def test_pyproject_and_constraints_agree() -> None:
    extras = PROJECT["optional-dependencies"].values()
    direct = pins([*PROJECT["dependencies"], *(line for extra in extras for line in extra)])
    pinned = constraints()
    assert direct == {name: pinned.get(name) for name in direct}


def test_environment_takes_its_versions_from_constraints() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    assert environment["name"] == PROJECT["name"]
    python, pip, from_pip = environment["dependencies"]
    assert from_pip == {"pip": ["-c constraints.txt", "-e .[dev]"]}
    assert pip == "pip"
    assert python.removeprefix("python=") in pythons_of_ci()


def pythons_of_ci() -> list[str]:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    return workflow["jobs"]["cpu"]["strategy"]["matrix"]["python"]


def test_the_pythons_of_ci_are_those_that_are_supported() -> None:
    assert PROJECT["requires-python"] == f">={pythons_of_ci()[0]}"
    in_range = re.search(r"in_range\(\) { case \$1 in (.*?)\)", (ROOT / "setup.sh").read_text())
    assert in_range and in_range[1].split(" | ") == pythons_of_ci()


def test_make_help_lists_every_target() -> None:
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    declared = re.search(r"^\.PHONY: (.*)", MAKEFILE, re.MULTILINE)
    assert declared
    targets = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
    assert targets == set(declared[1].split()) - {"again"}
    shown = run("make", "help", cwd=ROOT).stdout
    listed = re.findall(r"^ +make ([a-z-]+) +\S", shown, re.MULTILINE)
    assert sorted(listed) == sorted(targets)


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "Makefile",
        "environment.yml",
        "pyproject.toml",
        "constraints.txt",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "LICENSE",
        "LICENSE-lessons",
        ".pre-commit-config.yaml",
        ".github/workflows/ci.yml",
        ".ci/run",
        "docs/report.png",
    ],
)
def test_it_is_there(path: str) -> None:
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("lesson", lessons(), ids=lambda lesson: lesson.stem)
def test_a_lesson_has_one_file_in_each_room(lesson) -> None:
    rooms = ["solutions", "autograder/checks", "autograder/mistakes", "visuals"]
    files = [ROOT / room / f"{lesson.name}.py" for room in rooms] + [lesson.notebook, lesson.solved]
    assert [str(file) for file in files if not file.is_file()] == []


def test_no_file_names_the_host_of_a_registry() -> None:
    listing = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    if listing.returncode:
        pytest.skip("this is not a git clone, so which files belong to it is not known")
    # In two parts each, or this file would name them.
    hosts = [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("download.pytorch", "org"),
        ("debian", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("anaconda", "org"),
        ("anaconda", "com"),
        ("conda-forge", "org"),
    ]
    pattern = re.compile("|".join(re.escape(".".join(host)) for host in hosts))
    named = {}
    for name in listing.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and (host := pattern.search(path.read_text("utf-8", errors="ignore"))):
            named[name] = host[0]
    assert named == {}


@pytest.mark.parametrize("lesson", lessons(), ids=lambda lesson: lesson.stem)
def test_ruff_passes_on_the_code_cells_of_a_lesson(lesson) -> None:
    """With the answers in their places, so that a name which a lesson forgot to import is found."""
    notebook = nbformat.writes(source(lesson))
    ruff = [sys.executable, "-m", "ruff", "check", "--output-format=concise"]
    name = f"--stdin-filename=lessons/{lesson.stem}.ipynb"
    result = run(*ruff, name, "-", cwd=ROOT, input=notebook)
    assert result.returncode == 0, result.stdout + result.stderr


OLD = 'echo "3.9"'
NEW_WITHOUT_VENV = 'case "$*" in *ensurepip*) exit 1 ;; *) echo "3.12" ;; esac'
NEW = 'echo "3.12"'


@pytest.mark.parametrize(
    ("programs", "said", "sentence"),
    [
        ({"python3": OLD, "python3.12": "exit 127"}, "", "was found: python3 is 3.9; the course"),
        ({}, "", "was found: none of python3 python3.13 "),
        ({"mine": OLD}, "mine", "PYTHON=mine is Python 3.9, and the course needs 3.11 or newer"),
        ({"python3": NEW}, "mine", "PYTHON=mine does not run"),
        ({"python3": NEW_WITHOUT_VENV}, "", "apt-get install python3-venv"),
        ({"python3": NEW, "df": "echo; echo d 9 9 1048576"}, "", "has 1024 MB free"),
    ],
)
def test_setup_says_what_is_missing(
    tmp_path: Path, programs: dict[str, str], said: str, sentence: str
) -> None:
    shutil.copy(ROOT / "setup.sh", tmp_path)
    path = tmp_path / "bin"
    path.mkdir()
    for name in ("bash", "cat", "dirname", "awk", "df", "rm"):
        found = shutil.which(name)
        assert found
        (path / name).symlink_to(found)
    for name, body in programs.items():
        (path / name).unlink(missing_ok=True)
        (path / name).write_text(f"#!{path}/bash\n{body}\n")
        (path / name).chmod(0o755)
    environment = {**os.environ, "PATH": str(path), "PYTHON": said, "TORCH_INDEX": ""}
    result = run("bash", "setup.sh", cwd=tmp_path, env=environment)
    assert result.returncode == 1
    assert sentence in result.stderr
    assert not (tmp_path / ".venv").exists()
