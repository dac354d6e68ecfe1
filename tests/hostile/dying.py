"""Submissions that end their kernel: what does not depend on the cell that did it still counts."""

from tests.hostile import POINTS, QUIZ, Work, case

NOT_LAYER_NORM = {name: POINTS[name] for name in ("rms_norm", "RMSNorm", "norm_quiz")}
OTHERS = {**NOT_LAYER_NORM, "ManualLayerNorm": 1}  # its parameters are as asked


@case(OTHERS, flagged=True, says="exit status 3")
def exits(work: Work) -> None:
    """os._exit behind an answer."""
    work.after("layer_norm", "import os; os._exit(3)")


@case(OTHERS, flagged=True, says="SIGSEGV")
def crashes(work: Work) -> None:
    """A segmentation fault behind an answer."""
    work.after("layer_norm", "import ctypes; ctypes.string_at(0)")


@case(OTHERS, flagged=True, says="SIGABRT")
def aborts(work: Work) -> None:
    """What a library does that finds its data broken."""
    work.after("layer_norm", "import os; os.abort()")


@case(OTHERS, flagged=True, says="ended its kernel")
def becomes_another_program(work: Work) -> None:
    """exec, in the place of the kernel."""
    work.after("layer_norm", "import os; os.execvp('sleep', ['sleep', '1'])")


@case(NOT_LAYER_NORM, flagged=True, says="`layer_norm` was being checked")
def crashes_when_called(work: Work) -> None:
    """Dies in its answer; the next kernel is for what comes after, with the same cells."""
    body = "import ctypes; ctypes.string_at(0)"
    work.answer("layer_norm", f"def layer_norm(x, *more):\n    {body}")
    work.answer("ManualLayerNorm", f"def ManualLayerNorm(width):\n    {body}")


@case(QUIZ, flagged=True, says="Cell 2 ended its kernel")
def dies_in_the_imports(work: Work) -> None:
    """Only the quiz needs nothing that the imports bring."""
    work.first("import os; os.kill(os.getpid(), 9)")


@case({"layer_norm": POINTS["layer_norm"]}, flagged=True, says="exit status 1")
def dies_in_every_cell(work: Work) -> None:
    """One kernel after another, until there are no more; what came before them is kept."""
    for name in ("ManualLayerNorm", "rms_norm", "RMSNorm", "norm_quiz"):
        work.after(name, "import os; os._exit(1)")


@case(OTHERS | {"layer_norm": POINTS["layer_norm"], "ManualLayerNorm": POINTS["ManualLayerNorm"]})
def leaves_politely(work: Work) -> None:
    """exit(), quit and SystemExit end a cell, not the kernel."""
    work.after("layer_norm", "raise SystemExit(0)")
    work.after("rms_norm", "quit()")
    work.after("RMSNorm", "import sys; sys.exit(1)")


@case(OTHERS, flagged=True, says="ended its kernel")
def restarts(work: Work) -> None:
    """Asks Jupyter for a restart, and another way for an end."""
    work.after(
        "layer_norm",
        "import IPython, time\nIPython.Application.instance().kernel.do_shutdown(True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM); time.sleep(2); os._exit(0)",
    )


@case(OTHERS, flagged=True)
def hangs_up(work: Work) -> None:
    """Closes everything that is open."""
    work.after("layer_norm", "import os; os.closerange(3, 256)")


@case({}, flagged=True)
def dies_later(work: Work) -> None:
    """A thread that ends the kernel after every start, while something else is done."""
    work.stub().first(
        "import threading, os\nthreading.Timer(0.1, lambda: os._exit(5)).start()\n"
        "import time; time.sleep(1)"
    )
    work.answer("norm_quiz", "import torch\nnn, torch\nraise ValueError")
