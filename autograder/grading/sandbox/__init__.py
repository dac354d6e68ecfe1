"""What runs a submission's code: a kernel in a sandbox, one for each submission."""

from autograder.grading.sandbox.command import check_sandbox
from autograder.grading.sandbox.kernel import CellRun, Kernel
from autograder.grading.sandbox.limits import Limits, Stopped
from autograder.grading.sandbox.source import KernelSource

__all__ = ["CellRun", "Kernel", "KernelSource", "Limits", "Stopped", "check_sandbox"]
