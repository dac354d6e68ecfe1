"""The course's kernels and the device they say."""

import json
import os
import subprocess
import sys

import pytest
import torch
from jupyter_client.manager import start_new_kernel

from autograder import device, kernels


def test_both_kernels_are_this_python_and_say_their_device(tmp_path):
    folders = kernels.install(str(tmp_path))
    specs = {folder.name: json.loads((folder / "kernel.json").read_text()) for folder in folders}
    assert {name: spec["env"] for name, spec in specs.items()} == {
        "course-cpu": {"COURSE_DEVICE": "cpu"},
        "course-cuda": {"COURSE_DEVICE": "cuda"},
    }
    assert specs["course-cpu"]["display_name"] == "Block by Block (CPU)"
    assert specs["course-cuda"]["display_name"] == "Block by Block (CUDA)"
    assert all(spec["argv"][0] == sys.executable for spec in specs.values())


def test_installing_twice_changes_nothing(tmp_path):
    once = kernels.install(str(tmp_path))
    assert kernels.install(str(tmp_path)) == once


def test_kernels_can_be_installed_without_torch():
    program = "import sys; sys.modules['torch'] = None; from autograder import kernels, device"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("said", [None, "", "cpu"])
def test_the_cpu_is_the_default(monkeypatch, said):
    monkeypatch.delenv("COURSE_DEVICE", raising=False)
    if said is not None:
        monkeypatch.setenv("COURSE_DEVICE", said)
    assert device() == torch.device("cpu")


def test_cuda_without_a_device_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setenv("COURSE_DEVICE", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="no CUDA device here.*Block by Block .CPU."):
        device()


def test_a_device_that_is_none_is_an_error(monkeypatch):
    monkeypatch.setenv("COURSE_DEVICE", "tpu")
    with pytest.raises(RuntimeError, match="'cpu' or 'cuda'"):
        device()


def test_the_cuda_kernel_without_a_device_refuses_every_cell(tmp_path, monkeypatch):
    kernels.install(str(tmp_path))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    manager, client = start_new_kernel(kernel_name="course-cuda", env=hidden)
    try:
        for source in ("ran = True", "ran"):  # neither asks for the device
            # An error would have the kernel abort what comes shortly after it.
            answer = client.execute(source, stop_on_error=False, reply=True, timeout=60)
            reply = answer["content"]
            assert reply["status"] == "error"
            assert "no CUDA device here" in reply["evalue"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
