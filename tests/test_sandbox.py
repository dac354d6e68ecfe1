"""Submissions that mean harm, or die, against the sandbox; and honest ones that notice nothing."""

import contextlib
import dataclasses
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from autograder import course, evaluate
from autograder.course import CourseError
from autograder.grading.sandbox import Kernel, KernelSource, Limits, Stopped, check_sandbox, outputs
from autograder.grading.sandbox import command as sandbox_command
from autograder.grading.sandbox.agent_line import AgentLine
from autograder.grading.sandbox.inside.frames import HEADER
from autograder.grading.sandbox.inside.outputs import Outputs
from autograder.grading.sandbox.kernel import _is_reply
from autograder.grading.sandbox.provisioner import SandboxProvisioner
from autograder.judge.evaluate import judge
from autograder.judge.exercise import Exercise

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

LESSON = course.lesson("norm")
LIMITS = Limits(memory_bytes=2 * 2**30, tmp_bytes=32 * 2**20, file_bytes=8 * 2**20, processes=40)
ANSWER = """\
import torch
from torch import nn

def twice(x, noisy=False):
    if noisy:
        print("a word")
    return 2 * x

class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.scale

quiz = {1: "b", 2: "a"}
"""


@pytest.fixture(scope="module")
def source() -> Iterator[KernelSource]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_TEST_SECRET", "do not tell")
        with KernelSource(LESSON, limits=LIMITS) as source:
            yield source


@pytest.fixture
def kernel(source: KernelSource) -> Iterator[Kernel]:
    with source.kernel() as kernel:
        yield kernel


def said(kernel: Kernel, code: str) -> str:
    """What `code` printed; a failure shows what went wrong."""
    run = kernel.run(code)
    assert not run.failed, run.outputs
    return "".join(one.text for one in run.outputs if one.output_type == "stream").strip()


def hurry(kernel: Kernel, seconds: float = 2) -> Kernel:
    kernel._limits = dataclasses.replace(LIMITS, cell_seconds=seconds)
    return kernel


def names(run: Any) -> list[str]:
    return [one.ename for one in run.outputs if one.output_type == "error"]


def processes_with(word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def test_honest_cells_run(kernel: Kernel) -> None:
    run = kernel.run("import sys; print('to out'); print('to err', file=sys.stderr); 6 * 7")
    assert not run.failed
    assert [one.output_type for one in run.outputs] == ["stream", "stream", "execute_result"]
    assert run.outputs[0].text == "to out\n" and run.outputs[1].name == "stderr"
    assert run.outputs[2].data["text/plain"] == "42"
    assert said(kernel, "import torch; print(torch.ones(3).sum().item())") == "3.0"
    failed = kernel.run("1 / 0")
    assert failed.failed and names(failed) == ["ZeroDivisionError"]
    assert names(kernel.run("input()")) == ["StdinNotImplementedError"]
    assert said(kernel, "%pwd\n!echo shell") == "shell"
    assert said(kernel, "print('Žofia 张 🙂')") == "Žofia 张 🙂"
    plot = kernel.run("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()")
    assert any("image/png" in one.get("data", {}) for one in plot.outputs)


def test_the_course_is_there_as_far_as_a_submission_may_see_it(kernel: Kernel) -> None:
    code = "from autograder import check, device; print(device(), check('layer_norm'))"
    assert said(kernel, code) == "cpu None"
    shown = kernel.run("from visuals import norm as pictures; pictures.before_and_after()")
    assert "text/html" in shown.outputs[0].data
    for module in (
        "solutions.norm",
        "autograder.checks",
        "autograder.mistakes.norm",
        "autograder.judge.evaluate",
        "autograder.course",
    ):
        assert names(kernel.run(f"import {module}")) == ["ModuleNotFoundError"], module
    assert names(kernel.run("from autograder import evaluate")) == ["ImportError"]


def test_nothing_of_the_machine_is_there(kernel: Kernel, tmp_path: Path) -> None:
    home = str(Path.home())
    # The environment itself is there, and the folders on the way to it.
    way = [str(one) for path in (sys.prefix, sys.base_prefix) for one in Path(path).parents]
    code = f"""
import os
print(os.path.exists({str(course.ROOT / "solutions")!r}))
print(os.path.exists({str(tmp_path)!r}))
print([one for one in ("/work", "/home", "/etc/passwd", "/etc/shadow", "/var", "/root/.ssh",
                       "/run/docker.sock", "/sys") if os.path.exists(one) and one not in {way}])
print([one for one in (os.listdir({home!r}) if os.path.isdir({home!r}) else [])
       if one not in (".pyenv",)])
print(os.environ.get("COURSE_TEST_SECRET"), "SSH_AUTH_SOCK" in os.environ)
"""
    assert said(kernel, code).splitlines() == ["False", "False", "[]", "[]", "None False"]
    read = """
import pathlib
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        print(b"do not tell" in path.read_bytes())
    except OSError as error:
        print(type(error).__name__)
"""
    assert "True" not in said(kernel, read)


def test_no_network(kernel: Kernel) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        run = kernel.run(f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)")
        assert run.failed and names(run)[0] in ("OSError", "ConnectionRefusedError")
        outside = kernel.run("socket.create_connection(('1.1.1.1', 53), 2)")
        assert outside.failed


def test_the_environment_is_read_only(kernel: Kernel) -> None:
    code = """
import os, sys, torch
places = [sys.prefix, sys.base_prefix, os.path.dirname(torch.__file__), "/usr/lib", "/course",
          "/course/autograder", "/", "/etc", "/run", "/run/kernels", "/dev", "/proc/sys/kernel"]
for place in places:
    try:
        open(os.path.join(place, "new"), "w")
        print("written", place)
    except OSError:
        pass
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory"):
    try:
        open(path, "w").write("x")
        print("written", path)
    except OSError:
        pass
for name in ("mount", "unshare"):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
print(libc.unshare(0x10000000), libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
print(os.system("unshare --user true 2>/dev/null") != 0)
"""
    assert said(kernel, code) == "-1 -1\nTrue"


def test_kernels_do_not_meet(source: KernelSource) -> None:
    with source.kernel() as one, source.kernel() as other:
        said(one, "open('/tmp/mine', 'w').write('x'); open('/dev/shm/mine', 'w').write('x')")
        look = "import os; print(os.path.exists('/tmp/mine'), os.path.exists('/dev/shm/mine'))"
        assert said(one, look) == "True True"
        assert said(other, look) == "False False"
        seen = "print(sorted(int(n) for n in os.listdir('/proc') if n.isdecimal()), os.getpid())"
        assert said(one, f"import os; {seen}") == said(other, seen) == "[1, 2] 2"
        said(one, "secret = 'unheard of'")
        code = """
import os, signal
mine = set(map(int, os.listdir("/proc/self/task")))  # a thread's number reaches its process
for pid in set(range(1, 3000)) - mine:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
try:
    open("/proc/1/mem", "rb")
    print("open")
except PermissionError:
    print("closed")
"""
        assert said(other, code) == "closed"  # process 1 takes no signals from within
        assert said(one, "print(secret)") == "unheard of"
        numbers = "import torch, random, numpy; print(torch.rand(1), random.random(), " + (
            "numpy.random.rand())"
        )
        first, second = said(one, numbers).split(), said(other, numbers).split()
        assert all(a != b for a, b in zip(first, second, strict=True))


def test_an_endless_loop_is_interrupted_and_the_kernel_lives(kernel: Kernel) -> None:
    run = hurry(kernel).run("x = 1\nwhile True: pass", name="Cell 3")
    assert run.failed
    assert run.outputs[-1].evalue == "Cell 3 took more than 2 s and was stopped."
    assert said(kernel, "print(x)") == "1"


def test_a_loop_that_cannot_be_interrupted_is_ended(kernel: Kernel) -> None:
    code = """
import itertools, signal
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
sum(itertools.repeat(0))
"""
    started = time.monotonic()
    with pytest.raises(Stopped, match="A cell took more than 1 s and could not be interrupted"):
        hurry(kernel, 1).run(code)
    assert time.monotonic() - started < 10
    with pytest.raises(Stopped, match="could not be interrupted"):
        kernel.run("1")
    with pytest.raises(Stopped, match="could not be interrupted"):
        kernel.open("x")


def test_the_notebook_has_a_limit_too(kernel: Kernel) -> None:
    kernel._left = 1.0
    run = kernel.run("import time; time.sleep(60)")
    assert "The notebook took more than" in run.outputs[-1].evalue
    kernel._left = 0.0
    with pytest.raises(Stopped, match="The notebook took more than"):
        kernel.run("1")


@pytest.mark.parametrize(
    "code, why",
    [
        ("import os; os._exit(3)", "exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("get_ipython().kernel.do_shutdown(True); import os; os.abort()", "ended its kernel"),
    ],
)
def test_a_kernel_that_dies_says_how(source: KernelSource, code: str, why: str) -> None:
    with source.kernel() as kernel:
        with pytest.raises(Stopped, match=why):
            kernel.run(code)


def test_a_closed_connection_is_an_end(kernel: Kernel) -> None:
    # Everything but the standard streams, the kernel's sockets and whatever else there is.
    with pytest.raises(Stopped):
        hurry(kernel, 1).run("import os; os.closerange(3, 256)")


def test_the_guard_has_no_other_end(kernel: Kernel) -> None:
    """Nothing that the kernel inherited leads out: whatever it writes, nobody takes it for a word.

    The sockets it has are those of its own messages.
    """
    code = """
import os, socket
linked = []
for name in os.listdir("/proc/self/fd"):
    try:
        one = socket.socket(fileno=os.dup(int(name)))
        if one.family == socket.AF_UNIX and not one.getsockname() and not one.getpeername():
            linked.append(name)
    except OSError:
        pass
    if int(name) > 2:
        try:
            os.write(int(name), b"E" + (4).to_bytes(8, "big") + b"fake")
        except OSError:
            pass
print(linked)
"""
    try:
        assert "fake" not in str(hurry(kernel).run(code))
    except Stopped as stopped:
        assert "fake" not in str(stopped)


def test_memory_is_bounded(source: KernelSource) -> None:
    with source.kernel() as kernel:
        run = kernel.run("import torch; torch.ones(6 * 2**28)")
        assert run.failed and said(kernel, "print('alive')") == "alive"
        assert names(kernel.run("hog = []\nwhile True: hog.append(bytearray(10**7))")) == [
            "MemoryError"
        ]
    many = """
import os, time
for _ in range(12):
    if os.fork() == 0:
        hold = bytearray(400 * 2**20)
        for place in range(0, len(hold), 4096):
            hold[place] = 1
        time.sleep(100)
time.sleep(100)
"""
    with source.kernel() as kernel, pytest.raises(Stopped, match="more than 2 GiB"):
        kernel.run(many)
    shared = """
import mmap
hold = []
while True:
    hold.append(mmap.mmap(-1, 100 * 2**20))
    hold[-1].write(b"x" * len(hold[-1]))
"""
    with source.kernel() as kernel, pytest.raises(Stopped, match="more than 2 GiB"):
        kernel.run(shared)
    with source.kernel() as kernel:
        assert names(kernel.run("import os; os.memfd_create('hold')")) == ["PermissionError"]


def test_a_fork_bomb_is_bounded(source: KernelSource) -> None:
    code = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
    with source.kernel() as other:
        with source.kernel() as kernel, contextlib.suppress(Stopped):
            assert hurry(kernel).run(code).failed  # or it could not be interrupted
        assert said(other, "print('alive')") == "alive"
    with source.kernel() as kernel:
        count = """
import os, time
started = 0
try:
    for _ in range(500):
        if os.fork() == 0:
            time.sleep(100)
            os._exit(0)
        started += 1
except OSError:
    pass
open("/tmp/started", "w").write(str(started))
"""
        with contextlib.suppress(Stopped):
            kernel.run(count)
            assert int(said(kernel, "print(open('/tmp/started').read())")) <= LIMITS.processes


def test_files_and_disk_are_bounded(kernel: Kernel) -> None:
    assert names(kernel.run("many = [open('/dev/null') for _ in range(1000)]")) == ["OSError"]
    said(kernel, "many = None")
    kernel.run("del many; import sys; sys.last_value = sys.last_traceback = None")
    big = "with open('/tmp/big', 'wb') as f:\n    for _ in range(20): f.write(bytes(10**6))"
    assert names(kernel.run(big)) == ["OSError"]
    full = """
import os
size = 0
try:
    for number in range(1000):
        with open(f"/tmp/{number}", "wb") as file:
            size += file.write(bytes(10**6))
except OSError as error:
    print(error.strerror, size <= 32 * 2**20)
"""
    assert said(kernel, full) == "No space left on device True"


@pytest.mark.parametrize(
    "code",
    [
        "for _ in range(100_000): print('x' * 1000)",
        "print('y' * 50_000_000)",
        "import os; os.write(1, b'z' * 20_000_000)",
        "from IPython.display import display\nfor _ in range(300): display({'text/plain': 'w' * "
        "100_000}, raw=True)",
        "print('\\x00' * 5_000_000)",
        "raise ValueError('v' * 30_000_000)",
    ],
)
def test_a_flood_of_output_is_cut(kernel: Kernel, code: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = kernel.run(code)
    assert len(json.dumps(run.outputs)) < 8 * LIMITS.output_bytes
    if "raise" not in code:
        assert "was cut" in run.outputs[-1].text
    assert said(kernel, "x = 1") == ""
    assert "alive" in str(kernel.run("raise ValueError('alive')").outputs)  # errors are still shown
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_what_a_submission_starts_ends_with_it(source: KernelSource) -> None:
    code = """
import os, subprocess
subprocess.Popen(["sleep", "98761"])
subprocess.Popen(["sleep", "98762"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 256)
        os.execvp("sleep", ["sleep", "98763"])
    os._exit(0)
"""
    with source.kernel() as kernel:
        kernel.run(code)
        time.sleep(0.2)
        assert len(processes_with("9876")) == 3
    assert processes_with("9876") == []


def call(*args: Any, **more: Any) -> dict[str, Any]:
    return {"do": "call", "target": 0, "args": args, **more}


def ask_everything(kernel: Kernel) -> list[Any]:
    kernel.run(ANSWER)
    assert [kernel.open(name) for name in ("twice", "Scale", "quiz")] == [True] * 3
    assert not kernel.open("missing")
    found = [kernel.ask("twice", call(torch.arange(3.0), True))]
    found.append(kernel.ask("Scale", call(3)))
    handle = found[-1]["value"].number
    found.append(kernel.ask("Scale", {"do": "describe", "target": handle}))
    weights = {"scale": torch.tensor([1.0, 2.0, 3.0])}
    kernel.ask("Scale", {"do": "load", "target": handle, "tensors": weights})
    x = torch.ones(2, 3)
    found.append(kernel.ask("Scale", {**call(x, backward=torch.ones(2, 3)), "target": handle}))
    found.append(kernel.ask("quiz", {"do": "read", "target": 0, "paths": [[["item", 1]]]}))
    found.append(kernel.ask("twice", call("a", "b", "c")))
    return found


def test_the_judge_can_ask(kernel: Kernel) -> None:
    twice, scale, description, backward, quiz, failed = ask_everything(kernel)
    assert torch.equal(twice["value"], torch.tensor([0.0, 2.0, 4.0]))
    assert twice["printed"] == "a word\n"
    assert scale["value"].type == "Scale"
    assert description["value"]["parameters"][0][:2] == ["scale", [3]]
    assert torch.equal(backward["parameters"]["scale"], torch.full((3,), 2.0))
    assert quiz["value"] == ["b"]
    assert failed["error"]["type"] == "TypeError"


def test_what_is_ruled_out_is_seen(kernel: Kernel) -> None:
    said(kernel, "from torch.nn import functional as F\ndef norm(x):\n    return F.relu(x)")
    kernel.open("norm", ["relu"])
    assert kernel.ask("norm", call(torch.ones(2)))["ruled_out"] == [["relu", 3]]


class Link:
    """The kernel's answer as the judge's subjects know it."""

    def __init__(self, kernel: Kernel, exercise: Exercise) -> None:
        self._kernel, self._name = kernel, exercise.name
        assert kernel.open(exercise.name, exercise.ruled_out.names if exercise.ruled_out else ())

    def perform(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._kernel.ask(self._name, request)


@pytest.mark.parametrize("exercise", LESSON.exercises, ids=lambda one: one.name)
def test_the_judge_says_the_same_of_a_sandboxed_answer(kernel: Kernel, exercise: Exercise) -> None:
    said(kernel, (course.ROOT / "solutions" / "norm.py").read_text("utf-8"))
    report = judge(exercise, Link(kernel, exercise), seed=3)
    assert report.passed
    assert report.data() == evaluate(exercise.name, exercise.reference, seed=3).data()


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


@pytest.mark.parametrize("sandbox, warm", [("none", True), ("bwrap", False)])
def test_other_ways_to_start_give_the_same(
    source: KernelSource, sandbox: Any, warm: bool, kernel: Kernel
) -> None:
    code = "import torch\ntorch.manual_seed(0)\nprint(torch.rand(2))\nprint(1)\n[3, 4]"
    with KernelSource(LESSON, sandbox, limits=LIMITS, warm=warm) as other:
        with other.kernel() as second:
            assert second.run(code) == kernel.run(code)
            assert plain(ask_everything(second)) == plain(ask_everything(kernel))
            sleeping = "import subprocess; p = subprocess.Popen(['sleep', '98771'], " + (
                "start_new_session=True)"
            )
            second.run(sleeping)
            assert processes_with("98771")
        assert processes_with("98771") == []
        with other.kernel() as third:
            with pytest.raises(Stopped, match="exit status 3"):
                third.run("import os; os._exit(3)")


def test_a_fresh_sandbox_keeps_the_same_things_out() -> None:
    with KernelSource(LESSON, limits=LIMITS, warm=False) as fresh, fresh.kernel() as kernel:
        test_the_environment_is_read_only(kernel)
        test_no_network(kernel)
        assert names(kernel.run("import solutions.norm")) == ["ModuleNotFoundError"]
        with pytest.raises(Stopped):
            kernel.run(
                "import os\nfor pid in range(1, 100):\n"
                "    if pid != os.getpid():\n"
                "        try: os.kill(pid, 9)\n        except OSError: pass\n"
                "import time; time.sleep(100)"
            )


FORGED = {
    "garbage": "b'garbage'",
    "nothing": "b''",
    "not a reply": "encode([1, 2])",
    "half a reply": "encode({'value': 1})",
    "a wrong error": "encode({'value': 1, 'error': 7, 'printed': '', 'ruled_out': []})",
    "wrong calls": "encode({'value': 1, 'error': None, 'printed': '', 'ruled_out': [3]})",
    "a wrong shape": r"raw(b'{\"meta\":[[-5],\"float32\"]}')",
    "a device": r"raw(b'{\"device\":\"warp\"}')",
    "a deep one": "raw(b'[' * 10**6)",
    "half a letter": r"raw(b'{\"dict\":[[\"value\",\"\\ud800\"],"
    r"[\"error\",null],[\"printed\",\"\"],[\"ruled_out\",[]]]}')",
    "a nested one": "raw(b'[' * 500 + b']' * 500)",
    "a long one": "raw(b'[' + b'[],' * 10**7 + b'1]')",
    "half a gigabyte": "bytes(500 * 2**20)",
    "a pickle": "__import__('pickle').dumps(print)",
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_reply_is_an_error_reply(kernel: Kernel, what: str) -> None:
    said(kernel, ANSWER)
    kernel.open("twice")
    patch = f"""
from autograder.judge.messages import encode
from autograder.grading.sandbox.inside import answers
def raw(text): return len(text).to_bytes(8, "big") + text
answers.Answers.handle = lambda self, message: {FORGED[what]}
"""
    said(kernel, patch)
    try:
        reply = kernel.ask("twice", call(torch.ones(1)))
    except Stopped:
        return
    assert _is_reply(reply) and reply["error"]["type"] == "Unfit"


def test_an_answer_that_never_ends(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autograder.grading.sandbox.kernel.SECONDS", 0.5)
    said(kernel, "def loop(x):\n    while True: pass")
    kernel.open("loop")
    reply = kernel.ask("loop", call(1))
    assert reply["error"]["type"] == "TooLong"
    said(kernel, "from autograder.grading.sandbox.inside import answers\nimport time")
    said(kernel, "answers.Answers.handle = lambda *_: [time.sleep(9), time.sleep(99)]")
    said(kernel, "import signal; signal.signal = lambda *_: None")
    with contextlib.suppress(Stopped):
        assert kernel.ask("loop", call(1))["error"]["type"] in ("TooLong", "Unfit")


def test_forged_messages_reach_nobody(source: KernelSource) -> None:
    """What a kernel's own sockets can send: wrong parents, wrong types, endless parts."""
    with source.kernel() as kernel:
        forged = """
kernel = get_ipython().kernel
send = kernel.session.send
parent = kernel.get_parent()
for content in ({}, {"name": 3, "text": 4}, {"name": "stdout"}, {"data": 5}, {"data": {"a": []}}):
    for kind in ("stream", "display_data", "execute_result", "error", "status", "nonsense"):
        send(kernel.iopub_socket, kind, content, parent)
print("still here")
"""
        run = kernel.run(forged)
        assert "still here" in str(run.outputs)
        assert said(kernel, "print('alive')") == "alive"
    with source.kernel() as kernel:
        endless = """
import zmq
socket = kernel.iopub_thread.socket if 0 else get_ipython().kernel.iopub_thread.socket
while True:
    socket.send(bytes(10**6), zmq.SNDMORE)
"""
        with contextlib.suppress(Stopped):
            hurry(kernel).run(endless)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 3 * 2**20  # kB


def test_the_line_to_the_agent_waits_for_nobody() -> None:
    ours, its = socket.socketpair()
    line = AgentLine(ours, limit=100)
    its.sendall(b"nobody asked for this")
    assert line.read() is None
    its.sendall(b"nor for this")
    line.ask(b"x" * 10**7)  # more than a socket holds, and nobody reads
    assert line.waits
    its.sendall(HEADER.pack(b"A", 3) + b"a")
    assert line.read() is None
    its.sendall(b"bc" + b"and more")
    assert line.read() == b"abc"
    line.ask(b"again")
    its.sendall(HEADER.pack(b"A", 1000) + b"y" * 600)
    assert line.read() == "too large"
    line.ask(b"again")
    its.sendall(b"y" * 400 + HEADER.pack(b"A", 2) + b"ok")
    assert line.read() == b"ok"
    its.close()
    with pytest.raises(EOFError):
        line.read()


def test_outputs_are_taken_for_what_they_are() -> None:
    stream = {"output_type": "stream", "name": "stdout", "text": "\ud800"}
    assert outputs.read(json.dumps({"outputs": [stream], "failed": 0}).encode())[0][0].text == "?"
    for body in (
        b"",
        b"[]",
        b"{}",
        b'{"outputs": [{}], "failed": true}',
        b'{"outputs": [{"output_type": "stream", "name": 1, "text": 2}], "failed": true}',
        b'{"outputs": ' + b"[" * 100_000,
    ):
        with pytest.raises(outputs.Malformed):
            outputs.read(body)


def test_streams_merge_and_displays_update() -> None:
    kept = Outputs(10_000)
    for part in ("a", "b"):
        kept.add("stream", {"name": "stdout", "text": part})
    kept.add("display_data", {"data": {"x": "1"}, "transient": {"display_id": "d"}})
    kept.add("update_display_data", {"data": {"x": "2"}, "transient": {"display_id": "d"}})
    assert [one.get("text") or one["data"] for one in kept.items()] == ["ab", {"x": "2"}]
    kept.add("clear_output", {"wait": True})
    assert len(kept.items()) == 2
    kept.add("stream", {"name": "stdout", "text": "c"})
    assert len(kept.items()) == 1


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check_sandbox()
    monkeypatch.setattr(sandbox_command.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CourseError, match="apt-get install bubblewrap"):
        check_sandbox()
    other = tmp_path / "bwrap"
    other.write_text("#!/bin/sh\necho 'Error: unknown option --unshare-all' >&2; exit 2\n")
    other.chmod(0o755)
    with pytest.raises(CourseError, match="too old.*pip uninstall bubblewrap"):
        check_sandbox()
    other.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1")
    with pytest.raises(CourseError, match="No permissions to create.*--sandbox none"):
        check_sandbox()


class ProvisionedManager(KernelManager):
    """Finds the provisioner where the package is not installed with its entry point."""

    @property
    def kernel_spec(self) -> KernelSpec:
        metadata = {"kernel_provisioner": {"provisioner_name": "course-sandbox"}}
        return KernelSpec(argv=[], display_name="", language="python", metadata=metadata)


@pytest.mark.parametrize("warm", [True, False])
def test_jupyter_starts_and_ends_kernels_in_it(monkeypatch: pytest.MonkeyPatch, warm: bool) -> None:
    own = KernelSource(LESSON, limits=LIMITS, warm=warm)
    monkeypatch.setattr("autograder.grading.sandbox.provisioner.source", lambda *_: own)

    def create(self: Any, kernel_id: str, kernel_spec: Any, parent: Any) -> SandboxProvisioner:
        return SandboxProvisioner(
            kernel_id=kernel_id, kernel_spec=kernel_spec, parent=parent, lesson="norm"
        )

    factory = "jupyter_client.provisioning.KernelProvisionerFactory.create_provisioner_instance"
    monkeypatch.setattr(factory, create)
    manager = ProvisionedManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=30)
        texts: list[Any] = []
        client.execute_interactive(
            "import os; print(os.getuid()); open('/run/kernel/x', 'w')" if warm else "print(1000)",
            timeout=30,
            output_hook=lambda message: texts.append(message["content"]),
        )
        assert {"name": "stdout", "text": "1000\n"} in texts
        assert "Read-only" in str(texts) or not warm
        assert manager.is_alive()
        client.execute("import os; os._exit(1)")
        deadline = time.monotonic() + 10
        while manager.is_alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not manager.is_alive()
        manager.restart_kernel(now=True)
        client.wait_for_ready(timeout=30)
        manager.shutdown_kernel(now=True)
        assert not manager.is_alive()
    finally:
        client.stop_channels()
        own.close()


def test_many_at_a_time(source: KernelSource) -> None:
    def work(number: int) -> str:
        with source.kernel() as kernel:
            said(kernel, f"x = {number}")
            return said(kernel, "import time; time.sleep(0.2); print(x)")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [str(number) for number in range(8)]


def test_kernels_start_quickly(source: KernelSource) -> None:
    with source.kernel():
        pass
    started = time.monotonic()
    with source.kernel() as kernel:
        kernel.run("import torch")
    assert time.monotonic() - started < 3  # 0.3 s on an idle machine; a fresh one takes 3 s
    assert os.path.isdir(source.folder)
