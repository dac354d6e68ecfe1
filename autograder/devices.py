"""The device that a notebook computes on, as its kernel says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

NO_CUDA = (
    "This is the CUDA kernel, but torch finds no CUDA device here. Nothing was run, so that you do "
    "not mistake the CPU for a GPU. Choose the kernel 'Block by Block (CPU)' (in JupyterLab: "
    "Kernel, Change Kernel), or install a CUDA build of torch as the README says."
)


def device() -> torch.device:
    """The device of the kernel (its COURSE_DEVICE): "cpu" where none is set, or "cuda".

    RuntimeError where that is CUDA and torch has no CUDA device: a notebook on the CUDA kernel
    never runs on the CPU unnoticed.
    """
    import torch  # here, because the command line imports this module and need not wait for torch

    name = os.environ.get("COURSE_DEVICE") or "cpu"
    if name not in ("cpu", "cuda"):
        raise RuntimeError(f"COURSE_DEVICE is {name!r}; it can be 'cpu' or 'cuda'.")
    if name == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(NO_CUDA)
    return torch.device(name)
