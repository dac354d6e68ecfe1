"""nbval, with its gaps closed: `python -m autograder.nbval_strict cpu` re-executes every notebook.

As a pytest plugin (`-p autograder.nbval_strict`) it adds to nbval:

- in a student's notebook (in a folder `notebooks`), the code cells that need an answer fail with
  NotImplementedError, and no other cell fails;
- everywhere else, a code cell that was never executed is a failure: nbval would compare nothing;
- a cell tagged raises-exception has to raise;
- a kernel that died is noticed within a second, not after the cell's whole timeout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator
from queue import Empty

import nbval.plugin
import pytest
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbCell

from autograder.kernels import CPU, CUDA


class WatchedKernel(RunningKernel):
    """nbval's kernel, except that waiting for a reply ends with the kernel's life."""

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        deadline = time.monotonic() + timeout if timeout is not None else None
        while True:
            try:
                return super().await_reply(msg_id, timeout=0.5)
            except Empty:
                if not self.is_alive():
                    raise RuntimeError("The kernel died while it ran this cell.") from None
                if deadline is not None and time.monotonic() > deadline:
                    raise


def pytest_configure() -> None:
    nbval.plugin.RunningKernel = WatchedKernel  # nbval has no option for it


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    if not isinstance(item, IPyNbCell):
        return (yield)
    students = item.path.parent.name == "notebooks"
    if not students and item.cell.execution_count is None:
        item.raise_cell_error("This cell was never executed; run `autograder build`.")
    unanswered = students and "needs" in item.cell.metadata
    try:
        yield
    except nbval.plugin.NbCellError:
        if not unanswered or _raised(item) != "NotImplementedError":
            raise
    if unanswered and _raised(item) != "NotImplementedError":
        item.raise_cell_error(
            f"This cell needs an answer, so before there is one it raises NotImplementedError; "
            f"it raised {_raised(item) or 'nothing'}."
        )
    if item.options["check_exception"] and not _raised(item):
        item.raise_cell_error("This cell is tagged raises-exception and raised nothing.")
    return None


def _raised(item: IPyNbCell) -> str | None:
    """The name of the exception that ended the cell."""
    names = [output.ename for output in item.test_outputs or [] if output.output_type == "error"]
    return names[-1] if names else None


def main(arguments: list[str]) -> int:
    """Re-execute the notebooks named behind cpu or gpu, or all of them; returns an exit status."""
    if not arguments or arguments[0] not in ("cpu", "gpu"):
        print(
            "Say on what: python -m autograder.nbval_strict cpu|gpu [NOTEBOOK or pytest option ...]"
        )
        return 2
    on, *named = arguments
    if on == "gpu" and not _has_cuda():
        print("SKIPPED nbval on CUDA: torch finds no CUDA device here, so nothing was executed.")
        if os.environ.get("REQUIRE_CUDA") == "1":
            print("REQUIRE_CUDA=1 asks for one: this is a failure.", file=sys.stderr)
            return 1
        return 0
    from autograder.course import ROOT  # here, because the plugin in each worker can do without

    notebooks = named or [
        str(path) for room in ("solutions", "notebooks") for path in (ROOT / room).glob("*.ipynb")
    ]
    if not notebooks:
        print("There are no notebooks to execute; run `autograder build` first.", file=sys.stderr)
        return 1
    return subprocess.call(
        [
            *(sys.executable, "-m", "pytest"),
            *("-p", "autograder.nbval_strict"),
            "--nbval",  # compares nothing in a student's notebook, where no outputs are stored
            f"--nbval-kernel-name={CPU if on == 'cpu' else CUDA}",
            f"--nbval-sanitize-with={ROOT / 'tests/nbval_sanitize.cfg'}",
            "--nbval-cell-timeout=120",
            "--nbval-kernel-startup-timeout=60",
            "--numprocesses=2",
            "--dist=loadscope",  # the cells of a notebook share a kernel, so they stay together
            *notebooks,
        ],
        # No widget can run here. Two notebooks that train at once would wait for each other's
        # threads nearly for ever, so each has one.
        env={**os.environ, "COURSE_STATIC": "1", "OMP_NUM_THREADS": "1"},
    )


def _has_cuda() -> bool:
    import torch  # here, because only `gpu` has to know

    return torch.cuda.is_available()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
