"""Lets Jupyter's own KernelManager start kernels in the sandbox, forked from the warm process.

A kernelspec asks for it in its metadata:
{"kernel_provisioner": {"provisioner_name": "course-sandbox", "config": {"lesson": "norm"}}}
"""

import asyncio
import atexit
import contextlib
import functools
import shutil
import signal
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import KernelProvisionerBase
from traitlets import Enum, Unicode

from autograder.course import lesson
from autograder.grading.sandbox.kernel import Kernel
from autograder.grading.sandbox.limits import FOLDER, Stopped
from autograder.grading.sandbox.source import KernelSource

PORTS = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")


@functools.cache
def source(lesson_name: str, sandbox: Any) -> KernelSource:
    """The one source of this process for a lesson, kept warm until the process ends."""
    found = KernelSource(lesson(lesson_name), sandbox)
    atexit.register(found.close)
    return found


class SandboxProvisioner(KernelProvisionerBase):
    """A kernel in the sandbox as Jupyter sees it: started, polled, signalled, ended."""

    lesson = Unicode(help="The lesson whose notebooks these are.").tag(config=True)
    sandbox = Enum(["bwrap", "none"], "bwrap", help="What runs the kernel.").tag(config=True)
    _open: contextlib.ExitStack | None = None
    _kernel: Kernel | None = None
    _folder: Path | None = None

    @property
    def has_process(self) -> bool:
        return self._kernel is not None

    async def poll(self) -> int | None:
        if self._kernel is None or self._kernel.ended():
            return 0
        return None

    async def wait(self) -> int | None:
        while await self.poll() is None:
            await asyncio.sleep(0.05)
        return 0

    async def send_signal(self, signum: int) -> None:
        if signum == signal.SIGKILL:
            await self.kill()
        elif signum != 0 and self._kernel is not None:
            with contextlib.suppress(Stopped):
                self._kernel.signal(signum)

    async def kill(self, restart: bool = False) -> None:
        if self._open is not None:
            self._open.close()
        self._open = self._kernel = None

    async def terminate(self, restart: bool = False) -> None:
        await self.kill(restart)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Name sockets in a folder that the kernel sees too, whatever the manager had in mind."""
        if self._folder is None:  # a restart keeps its sockets, so that clients find them again
            self._folder = source(self.lesson, self.sandbox).new_folder()
        manager: Any = self.parent
        manager.transport, manager.ip = "ipc", str(self._folder / "k")
        for number, name in enumerate(PORTS, 1):
            setattr(manager, name, number)
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        return await super().pre_launch(cmd=[], **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        assert self._folder is not None
        inside = FOLDER if self.sandbox == "bwrap" else str(self._folder)
        key = self.connection_info["key"]
        connection = {
            **{name: number for number, name in enumerate(PORTS, 1)},
            "transport": "ipc",
            "ip": f"{inside}/k",
            "key": key.decode() if isinstance(key, bytes) else key,
            "signature_scheme": "hmac-sha256",
            "folder": inside,
        }
        self._open = contextlib.ExitStack()
        started = source(self.lesson, self.sandbox).jupyter_kernel(connection, self._folder)
        self._kernel = self._open.enter_context(started)
        return self.connection_info

    async def cleanup(self, restart: bool = False) -> None:
        await self.kill(restart)
        if self._folder is not None and not restart:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
