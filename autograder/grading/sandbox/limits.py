"""How much one submission may use, and what is said when it has used more."""

from dataclasses import dataclass

from autograder.judge.subject import LinkLost

MIB = 2**20
FOLDERS = "/run/kernels"  # in the sandbox: folders of sockets, shared with Jupyter
FOLDER = "/run/kernel"  # a kernel's own


@dataclass(frozen=True)
class Limits:
    """What one submission may use; the defaults leave an honest notebook plenty of room."""

    cell_seconds: float = 30
    notebook_seconds: float = 180
    memory_bytes: int = 4096 * MIB
    processes: int = 64
    file_bytes: int = 64 * MIB
    tmp_bytes: int = 256 * MIB
    open_files: int = 256
    output_bytes: int = MIB  # of a whole notebook
    reply_bytes: int = 64 * MIB  # one answer of the agent


class Stopped(LinkLost):
    """The submission's kernel has ended or was ended; the message says why, for the CSV."""
