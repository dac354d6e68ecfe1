"""Submissions that reach for what lies outside; RMS norm and the quiz are answered honestly."""

import contextlib
import os
import threading

from tests.hostile import LESSON, POINTS, ROOT, VARIABLE, Work, case

SOME = {name: POINTS[name] for name in ("rms_norm", "norm_quiz")}
QUIETLY = """
def quietly(call, *arguments):
    try:
        return call(*arguments)
    except BaseException as error:
        print(type(error).__name__)
def read(path):
    with open(path, "rb") as file: print(file.read(10**6))
def write(path, mode="w"):
    with open(path, mode) as file: file.write("hostile")
"""


def tries(work: Work, code: str) -> None:
    work.stub(*SOME).first(QUIETLY + code)


@case(SOME)
def reads_another_submission(work: Work) -> None:
    """Under its path, through /proc, and by a link in its own folder."""
    tries(
        work,
        f"""
import os
path = {str(work.world.other)!r}
for one in (path, f"/proc/1/root{{path}}", f"/proc/self/root{{path}}", f"/proc/1/cwd{{path}}"):
    quietly(read, one)
quietly(os.symlink, path, "link")
quietly(read, "link")
""",
    )


@case(SOME)
def reads_the_system(work: Work) -> None:
    """Passwords, keys, homes, and the course."""
    tries(
        work,
        f"""
import os, sys
for path in ("/etc/passwd", "/etc/shadow", "/etc/hostname", {str(ROOT / "pyproject.toml")!r}):
    if os.path.exists(path): print("the-other-student-" + "wrote-this")
for folder in ("/root", "/home", "/work", "/mnt", "/var", {str(work.world.folder)!r}):
    known = (sys.prefix + "/", sys.base_prefix + "/")  # and nothing beside them is to be seen
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if not any(one.startswith(f"{{folder}}/{{name}}/") for one in known):
            print("the-other-student-" + "wrote-this", folder, name)
""",
    )


@case(SOME)
def reads_the_environment(work: Work) -> None:
    """Variables of the process that grades, in its own and in all others' memory."""
    tries(
        work,
        f"""
import os, glob
print(os.environ.get({VARIABLE!r}))
for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"): quietly(read, path)
""",
    )


@case(SOME)
def writes_and_deletes(work: Work) -> None:
    """A better mark into the gradebook, and then nothing at all anywhere."""
    tries(
        work,
        f"""
import os, shutil
quietly(write, {str(work.world.gradebook)!r})
quietly(write, {str(work.world.folder / "new")!r})
for place in ("/", "/etc", "/usr", "/run", "/course", "/work", "/home"):
    quietly(write, place + "/hostile")
quietly(shutil.rmtree, {str(work.world.folder)!r})
shutil.rmtree("/course", ignore_errors=True)
os.system("rm -rf {work.world.folder} /course/* 2>/dev/null")
""",
    )


@case(SOME)
def infects_the_environment(work: Work) -> None:
    """Code for every later Python: sitecustomize, .pth files, and the packages themselves."""
    tries(
        work,
        """
import os, site, sys, torch
for folder in (*site.getsitepackages(), sys.prefix, os.path.dirname(torch.__file__), "/course"):
    for name in ("sitecustomize.py", "hostile.pth", "__init__.py"):
        quietly(write, os.path.join(folder, name), "a")
        if os.path.exists(os.path.join(folder, "hostile.pth")):
            print("the-other-student-" + "wrote-this")
""",
    )


@case(SOME)
def telephones(work: Work) -> None:
    """By address and by name, to this machine and to others."""
    tries(
        work,
        f"""
import socket, urllib.request
for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "10.0.0.1", "1.1.1.1"):
    quietly(socket.create_connection, (host, {work.world.port}), 1)
abstract = socket.socket(socket.AF_UNIX)
quietly(abstract.connect, "\\0hostile-{work.world.port}")
raw = quietly(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)
quietly(urllib.request.urlopen, "http://127.0.0.1:{work.world.port}", None, 1)
""",
    )


@case(SOME)
def knocks_at_unix_sockets(work: Work) -> None:
    """Everything below /run and /tmp that listens."""
    tries(
        work,
        """
import glob, socket, stat, os
for path in glob.glob("/run/**", recursive=True) + glob.glob("/tmp/**", recursive=True):
    if stat.S_ISSOCK(os.stat(path).st_mode):
        quietly(socket.socket(socket.AF_UNIX).connect, path)
for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket"):
    quietly(socket.socket(socket.AF_UNIX).connect, path)
""",
    )


@case(SOME)
def stays(work: Work) -> None:
    """Processes in sessions of their own, twice forked, deaf to signals."""
    tries(
        work,
        f"""
import os, signal, subprocess
subprocess.Popen(["sleep", "{work.tag}1"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    for one in signal.valid_signals() - {{signal.SIGKILL, signal.SIGSTOP}}:
        signal.signal(one, signal.SIG_IGN)
    if os.fork() == 0:
        os.closerange(0, 256)
        os.execvp("sleep", ["sleep", "{work.tag}2"])
    os._exit(0)
os.system("(setsid nohup sleep {work.tag}3 >/dev/null 2>&1 &)")
""",
    )


@case(SOME)
def signals_everybody(work: Work) -> None:
    """Its parents and all others, with signals that stop, kill or confuse."""
    tries(
        work,
        """
import os, signal
own = {os.getpid(), *map(int, os.listdir("/proc/self/task"))}
for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    for pid in {os.getppid(), *range(1, 40), *map(int, filter(str.isdecimal, os.listdir("/proc")))}:
        if pid not in own: quietly(os.kill, pid, number)
    quietly(os.killpg, 1, number)
""",
    )


@case(SOME)
def reads_the_guard(work: Work) -> None:
    """Memory, files, links and threads of process 1, by /proc and by ptrace."""
    tries(
        work,
        f"""
import ctypes, os
for name in ("mem", "environ", "maps", "root/etc/passwd", "cwd", "exe", "fd", "fd/3", "stack"):
    quietly(read, f"/proc/1/{{name}}")
quietly(os.listdir, "/proc/1/fd")
libc = ctypes.CDLL(None, use_errno=True)
for request in (16, 0x4206):
    print(libc.ptrace(request, 1, 0, 0))
local = ctypes.create_string_buffer(100)
print(libc.process_vm_readv(1, local, 1, local, 1, 0), libc.pidfd_open(1, 0))
quietly(read, {str(work.world.other)!r})
""",
    )


@case(SOME)
def writes_to_every_handle(work: Work) -> None:
    """What the grader says and hears may pass through one of the open files."""
    tries(
        work,
        """
import os, socket
for number in map(int, os.listdir("/proc/self/fd")):
    try:
        one = socket.socket(fileno=os.dup(number))
        if one.type == socket.SOCK_STREAM and one.family == socket.AF_UNIX: continue  # the kernel's
    except OSError: pass
    if number > 2: quietly(os.fchdir, number)
    for up in ("..", "../..", "../../../../../../etc/passwd"):
        quietly(lambda: os.listdir(os.open(up, os.O_RDONLY, dir_fd=number)))
""",
    )


@case(SOME)
def makes_a_world_of_its_own(work: Work) -> None:
    """Namespaces, mounts, chroot, devices, other users, and rights."""
    tries(
        work,
        f"""
import ctypes, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
print(libc.unshare(0x10000000), libc.unshare(0x20000), libc.setns(0, 0))
print(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None), libc.pivot_root(b"/", b"/tmp"))
for call, *more in ((os.chroot, "/proc/1/root"), (os.setuid, 0), (os.setgid, 0),
                    (os.mknod, "/tmp/sda", 0o60600, os.makedev(8, 0)), (os.nice, -10)):
    quietly(call, *more)
for words in (["su", "-c", "id"], ["sudo", "-n", "id"], ["unshare", "-Ur", "id"], ["mount"],
              ["bwrap", "--ro-bind", "/", "/", "cat", {str(work.world.other)!r}]):
    quietly(lambda: print(subprocess.run(words, capture_output=True, timeout=3).stdout))
quietly(read, "/tmp/sda")
""",
    )


@case(SOME)
def changes_the_machine(work: Work) -> None:
    """Settings of the system, and a program for the moment when something crashes."""
    tries(
        work,
        """
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger",
             "/proc/1/oom_score_adj", "/sys/power/state", "/dev/mem", "/dev/kmsg", "/dev/sda",
             "/sys/fs/cgroup/cgroup.procs", "/proc/sys/kernel/hostname"):
    quietly(write, path)
    quietly(read, path)
""",
    )


@case({}, flagged=True)
def sends_a_pickle(work: Work) -> None:
    """Replies with what makes a file where it is unpickled."""
    work.stub(*SOME).first(f"""
import io, pickle
from autograder.grading.sandbox.inside.answers import Answers
class Opens:
    def __reduce__(self): return io.open, ({str(work.world.folder / "pickled")!r}, "w")
Answers.handle = lambda self, message: pickle.dumps(Opens())
""")


@case({}, flagged=True, says="link to a file outside")
def is_a_link_to_another_submission(work: Work) -> None:
    """01_norm.ipynb is a symbolic link to what somebody else has handed in."""
    work.path.symlink_to(work.world.other)


@case({}, flagged=True, says="link to a file outside")
def is_a_link_to_a_file(work: Work) -> None:
    """01_norm.ipynb is a symbolic link to what the judging process knows of itself."""
    work.path.symlink_to("/proc/self/environ")


@case({}, flagged=True, says="no ordinary file")
def is_a_pipe(work: Work) -> None:
    """01_norm.ipynb is a pipe; that somebody writes to it late keeps this test from waiting."""
    os.mkfifo(work.path)

    def write_nothing() -> None:
        with contextlib.suppress(OSError):  # nobody reads, which is right
            os.close(os.open(work.path, os.O_WRONLY | os.O_NONBLOCK))

    threading.Timer(10, write_nothing).start()


@case({}, flagged=True)
def is_a_folder(work: Work) -> None:
    """01_norm.ipynb is a folder."""
    work.path.mkdir()


@case(SOME)
def names_a_file_in_its_cells(work: Work) -> None:
    """Grade ids and attachments with paths, in which something may be looked up or written."""
    work.stub(*SOME)
    for path in ("../../../../gradebook", "/etc/passwd", LESSON.stem, "a/b"):
        cell = work.insert("layer_norm", "1")
        cell.metadata["nbgrader"] = {"grade_id": path, "solution": True, "grade": True}
        cell.metadata["name"] = path
        cell["attachments"] = {f"../../{path}.png": {"image/png": "aGk="}}
    work.notebook.metadata["kernelspec"] = {"name": "../../tmp/evil", "display_name": "x"}
