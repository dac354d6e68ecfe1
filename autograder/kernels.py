"""The two kernels of the course: the same Python, told by COURSE_DEVICE what to compute on."""

from __future__ import annotations

import ast
import sys
import tempfile
from pathlib import Path

CPU = "course-cpu"
CUDA = "course-cuda"
DISPLAY_NAMES = {CPU: "Block by Block (CPU)", CUDA: "Block by Block (CUDA)"}


def install(prefix: str = sys.prefix) -> list[Path]:
    """Install both kernels into the environment at `prefix`; returns their folders."""
    from ipykernel.kernelspec import write_kernel_spec
    from jupyter_client.kernelspec import KernelSpecManager

    folders = []
    with tempfile.TemporaryDirectory() as workshop:
        for name, display_name in DISPLAY_NAMES.items():
            guard = (
                "--IPKernelApp.exec_lines=from autograder import kernels; kernels.require_cuda()"
            )
            spec = write_kernel_spec(
                Path(workshop) / name,
                overrides={
                    "display_name": display_name,
                    "env": {"COURSE_DEVICE": name.removeprefix("course-")},
                },
                extra_arguments=[guard] if name == CUDA else [],
                python_arguments=["-Xfrozen_modules=off"],  # or the debugger misses breakpoints
            )
            manager = KernelSpecManager()
            folders.append(Path(manager.install_kernel_spec(spec, name, prefix=prefix)))
    return folders


class _RequireCuda(ast.NodeTransformer):
    """Refuses every cell until torch has a CUDA device."""

    def visit(self, node: ast.AST) -> ast.AST:
        from IPython.core.error import InputRejected

        from autograder.devices import device

        try:
            device()
        except RuntimeError as error:
            raise InputRejected(str(error)) from None
        return node


def require_cuda() -> None:
    """Let the kernel that this runs in refuse its cells where torch has no CUDA device.

    The kernel itself starts: one that ended at its start would be started again and again, and its
    reason would be in the server's log. A refused cell shows the reason where it is looked for,
    also in a notebook that never calls `device()`.
    """
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is not None:
        shell.ast_transformers.append(_RequireCuda())
