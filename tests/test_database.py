"""A gradebook in PostgreSQL, in a real server that is started here."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest

from tests.conftest import Undisturbed
from tests.small_class import grade, left, rows


def commands() -> str:
    """The folder of PostgreSQL's commands, which Debian keeps out of PATH."""
    found = sorted(glob("/usr/lib/postgresql/*/bin/initdb"))
    initdb = shutil.which("initdb") or (found[-1] if found else "")
    if not initdb:
        pytest.skip("PostgreSQL is not installed (`apt-get install postgresql`)")
    return os.path.dirname(os.path.realpath(initdb))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of an empty database; the server can be reached over a socket in its folder only."""
    pytest.importorskip("psycopg2", reason="the extra `postgresql` is not installed")
    bin = commands()
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's name must be short
    as_user: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    data = f"{folder}/data"

    def run(*words: str) -> None:
        command = [*as_user, f"{bin}/{words[0]}", *words[1:]]
        with open(folder / "log", "a") as log:  # not a pipe, which the server would keep open
            done = subprocess.run(command, stdout=log, stderr=log, cwd=folder, timeout=60)
        assert done.returncode == 0, (folder / "log").read_text()

    try:
        run("initdb", "-D", data, "-U", "teacher", "-A", "trust", "-E", "UTF8", "--no-sync")
        run("pg_ctl", "-D", data, "-w", "-o", f"-k {folder} -c listen_addresses= -F", "start")
        try:
            yield f"postgresql+psycopg2://teacher@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def test_postgresql_holds_what_sqlite_holds(
    undisturbed: Undisturbed, server: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = grade(undisturbed.submissions, out, "--db", server)
    assert done.returncode == 3, done.stdout + done.stderr
    assert left(out, server) == undisturbed.left
    assert not (out / "gradebook.db").exists()
    kept = (out / "course" / "outcomes.jsonl").read_bytes()
    done = grade(undisturbed.submissions, out, "--db", server)
    assert done.returncode == 3, done.stdout + done.stderr
    assert rows(out) == undisturbed.left["csv"]
    assert (out / "course" / "outcomes.jsonl").read_bytes() == kept  # nothing was graded again


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql+psycopg2://teacher@/postgres?host=/nowhere", "/nowhere"),
        ("gradebook.db", "--db takes a URL"),
    ],
)
def test_a_database_that_is_not_there_is_a_sentence(
    undisturbed: Undisturbed, tmp_path: Path, url: str, sentence: str
) -> None:
    pytest.importorskip("psycopg2", reason="the extra `postgresql` is not installed")
    done = grade(undisturbed.submissions, tmp_path / "out", "--db", url)
    assert done.returncode == 2
    assert sentence in done.stderr and "Traceback" not in done.stderr
