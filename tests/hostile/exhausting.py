"""Submissions that use up time, memory, processes, disk or output; some answers are honest."""

from tests.hostile import POINTS, QUIZ, Work, case

SOME = {name: POINTS[name] for name in ("rms_norm", "norm_quiz")}
GONE = "Cell 2 ended its kernel"


def some(work: Work) -> Work:
    return work.stub(*SOME)


def inside(work: Work, body: str) -> None:
    """Do this in every call of layer_norm, which is answered wrongly beside."""
    work.answer("layer_norm", f"def layer_norm(x, *more, **named):\n    {body}\n    return x")


@case(SOME)
def endless_loop(work: Work) -> None:
    """In a cell, behind an answer."""
    some(work).after("rms_norm", "while True: pass")


@case(QUIZ, flagged=True, says="could not be interrupted")
def deaf_loop(work: Work) -> None:
    """In C, with all signals blocked: the cell's answers are lost, and nothing else."""
    some(work).after(
        "rms_norm",
        """
import itertools, signal
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
sum(itertools.repeat(0))
""",
    )


@case(SOME)
def swallows_interrupts(work: Work) -> None:
    """A loop that catches whatever is thrown at it, three times."""
    some(work).after(
        "rms_norm",
        """
import time
for _ in range(3):
    try:
        while True: time.sleep(0.01)
    except BaseException: break
""",
    )


@case(SOME)
def answer_without_end(work: Work) -> None:
    """An answer that never returns."""
    inside(some(work), "while True: pass")


@case(QUIZ, flagged=True, says="`layer_norm` was being checked.*could not be interrupted")
def deaf_answer(work: Work) -> None:
    """An answer that never returns and hears no signal; what was honest below still counts."""
    work.stub("norm_quiz")
    inside(
        work,
        "import signal, itertools; signal.pthread_sigmask(signal.SIG_BLOCK, "
        "signal.valid_signals()); sum(itertools.repeat(0))",
    )


@case(SOME)
def giant_number(work: Work) -> None:
    """Arithmetic in one step of C that takes hours."""
    inside(some(work), "'a' * 40 and __import__('re').match('(a+)+$', 'a' * 40 + 'b')")


@case(SOME)
def eats_memory(work: Work) -> None:
    """Until there is none."""
    some(work).after("rms_norm", "hold = []\nwhile True: hold.append(bytearray(50_000_000))")


@case(QUIZ, flagged=True, says="used more than 1 GiB")
def eats_memory_in_parts(work: Work) -> None:
    """In processes, each of which stays below the limit."""
    some(work).after(
        "rms_norm",
        """
import os, time
for _ in range(8):
    if os.fork() == 0:
        hold = b"x" * 300_000_000
        time.sleep(100)
time.sleep(100)
""",
    )


@case(QUIZ, flagged=True, says="Cell .* ended its kernel")
def fork_bomb(work: Work) -> None:
    """Every process becomes two."""
    some(work).after(
        "rms_norm",
        """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    try: os.fork()
    except OSError: pass
""",
    )


@case(SOME)
def threads(work: Work) -> None:
    """As many as there can be, all of them busy."""
    some(work).after(
        "rms_norm",
        """
import threading, time
def wait(): time.sleep(1000)
while True: threading.Thread(target=wait, daemon=True).start()
""",
    )


@case(SOME)
def open_files(work: Work) -> None:
    """As many as there can be, closed again by nobody."""
    some(work).first(
        "import os\nopened = []\ntry:\n    while True: opened.append(os.dup(0))\n"
        "except OSError: print('no more')\nfor one in opened[-20:]: os.close(one)"
    )


@case(SOME)
def fills_the_disk(work: Work) -> None:
    """One large file, many small ones, and shared memory."""
    some(work).first("""
import os
for folder in ("/tmp", "/dev/shm"):
    try:
        with open(folder + "/large", "wb") as file:
            while True: file.write(bytes(10**6))
    except OSError: pass
    try:
        for number in range(10**6): open(f"{folder}/{number}", "wb").write(bytes(10**5))
    except OSError: pass
    try:
        for number in range(10**6): os.symlink("x" * 200, f"{folder}/link{number}")
    except OSError: pass
""")


@case(SOME)
def floods(work: Work) -> None:
    """Prints until it is stopped, on every stream."""
    some(work).after(
        "rms_norm",
        """
import os, sys
while True:
    print("x" * 1000)
    print("y" * 1000, file=sys.stderr)
""",
    )


@case(SOME)
def one_enormous_line(work: Work) -> None:
    """A line of 50 MB, an error as long, and an object whose name never ends."""
    some(work).first("""
from IPython.display import display
class Wide:
    def __repr__(self): return "w" * 30_000_000
print("z" * 50_000_000)
display(Wide())
""")
    work.after("rms_norm", 'raise ValueError("v" * 30_000_000)')


@case(SOME)
def prints_in_its_answer(work: Work) -> None:
    """A word for every step, and steps without end, until an exception that is as long."""
    inside(
        some(work),
        "for _ in range(10**5): print('word ' * 20)\n    raise RuntimeError('r' * 20_000_000)",
    )


@case(SOME)
def recursion(work: Work) -> None:
    """Deeper than Python goes, in a cell and in an answer."""
    some(work).after("rms_norm", "def down(n): return down(n + 1)\ndown(0)")
    inside(work, "return layer_norm(x)")


@case(QUIZ, flagged=True, says="ended its kernel")
def recursion_in_c(work: Work) -> None:
    """Deeper than the stack goes."""
    some(work).after(
        "rms_norm",
        """
import sys
sys.setrecursionlimit(10**9)
deep = lambda: sorted([0], key=lambda _: deep())
class Deep(dict):
    def __repr__(self): return "%r" % (self,)
    def __eq__(self, other): return [self] == [other]
import ctypes
@ctypes.CFUNCTYPE(None)
def again(): again()
again()
""",
    )


@case(SOME)
def enormous_tensors(work: Work) -> None:
    """Tensors that are large, and tensors that only say so."""
    inside(some(work), "return torch.zeros(1).expand(10**6, 10**6)")
    work.answer("ManualLayerNorm", "def ManualLayerNorm(*_): return torch.zeros(18_000_000)")
    work.answer("RMSNorm", "def RMSNorm(*_): return [torch.zeros(1_000_000)] * 90_000")


@case(SOME)
def modules_without_end(work: Work) -> None:
    """A module of a hundred thousand parameters, and a dict of a million items."""
    some(work).answer(
        "ManualLayerNorm",
        """
class ManualLayerNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.many = nn.ParameterList(torch.ones(1) for _ in range(5_000))
    def forward(self, x): return {i: i for i in range(10**6)}
""",
    )


@case(QUIZ, flagged=True, says="notebook took more than")
def slow_on_purpose(work: Work) -> None:
    """Every call takes a little less than it may, and there are many calls."""
    work.stub("norm_quiz").answer(
        "layer_norm",
        "import time\ndef layer_norm(x, *more):\n    time.sleep(7)\n    return x-x.mean(-1,True)",
    )


@case(QUIZ, flagged=True)
def alarms(work: Work) -> None:
    """A timer that kills, and one that interrupts whatever runs."""
    work.stub("norm_quiz").first("""
import signal
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.setitimer(signal.ITIMER_REAL, 0.2)
import time; time.sleep(1)
""")


@case({}, flagged=None)  # whether its kernel survives depends on the machine
def slows_its_guard(work: Work) -> None:
    """Takes the processor from what guards it, then keeps it busy with many processes."""
    work.stub().first(f"""
import os, resource
for set_it in (lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
               lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
               lambda: os.sched_setaffinity(1, {{0}})):
    try: set_it()
    except OSError: pass
for _ in range(30):
    if os.fork() == 0:
        os.sched_setaffinity(0, {{0}})
        os.execvp("sh", ["sh", "-c", "while :; do :; done #{work.tag}9"])
while True: pass
""")


@case({}, flagged=True, says="Cell 2 ended its kernel")
def limits_its_guard(work: Work) -> None:
    """Takes files, memory and time from what guards it, by limits it may set for it."""
    work.stub().first(f"""
import os, resource, subprocess
subprocess.Popen(["sleep", "{work.tag}8"], start_new_session=True)
for what in ("NOFILE", "FSIZE", "CPU", "STACK", "DATA", "AS", "NPROC", "MEMLOCK", "SIGPENDING"):
    try: resource.prlimit(1, getattr(resource, "RLIMIT_" + what, 11), (1, 1))
    except (OSError, ValueError): pass
while True: pass
""")
