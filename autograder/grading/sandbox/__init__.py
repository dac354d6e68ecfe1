"""What runs a submission's code: a kernel in a sandbox, one for each submission."""

from autograder.grading.sandbox.command import check_sandbox
from autograder.grading.sandbox.kernel import CellRun, Kernel
from autograder.grading.sandbox.limits import Limits, Stopped
from autograder.grading.sandbox.source import Gone, KernelSource, SharedKernels

__all__ = [
    "CellRun",
    "Gone",
    "Kernel",
    "KernelSource",
    "Limits",
    "SharedKernels",
    "Stopped",
    "check_sandbox",
]
