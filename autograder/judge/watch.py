"""What is seen of an answer while it runs: torch functions it must not use, mixed devices."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.autograd.profiler import ProfilerConfig, ProfilerState
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_TORCH = os.path.dirname(torch.__file__)
_JUDGE = os.path.dirname(os.path.abspath(__file__))


def students_line() -> int | None:
    """The line, in the student's own file or cell, that is being executed now."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_JUDGE):
            return None  # back in the judge: the student's object was torch's own function
        if not file.startswith(_TORCH):
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


class CallsWatch(TorchFunctionMode):
    """Notes calls of torch functions called `names`, under whatever alias, and their lines."""

    def __init__(self, names: Iterable[str], found: dict[str, int | None]):
        super().__init__()
        self.names, self.found = frozenset(names), found

    def __torch_function__(self, func, types, args=(), kwargs=None):
        # An operator's overload comes behind a dot: "rms_norm.default".
        name = getattr(func, "__name__", "").split(".")[0]
        if name in self.names:
            self.found.setdefault(name, students_line())
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def operators_watched(names: Iterable[str], found: dict[str, int | None]) -> Iterator[None]:
    """Note operators called `names` at the dispatcher: scripted code and overloads are seen too.

    This is the profiler that torch.autograd.profiler_legacy wraps, less its parsing of the events.
    """
    flags = (False, False, False, False, False)  # no shapes, memory, stack, flops, modules
    config = ProfilerConfig(ProfilerState.CPU, *flags, torch._C._profiler._ExperimentalConfig())
    torch.autograd._enable_profiler_legacy(config)
    try:
        yield
    finally:
        names = {f"aten::{name}" for name in names}
        for thread in torch.autograd._disable_profiler_legacy():
            for event in thread:
                if event.name() in names and not found:
                    found[event.name().removeprefix("aten::")] = None


@contextlib.contextmanager
def threads_watched(names: Iterable[str], found: dict[str, int | None]) -> Iterator[None]:
    """Have threads that are started now watched as well: both watches are a thread's own."""
    begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def watched(thread: threading.Thread) -> None:
        with operators_watched(names, found), CallsWatch(names, found):
            begin(thread)

    threading.Thread._bootstrap_inner = watched  # type: ignore[attr-defined]
    try:
        yield
    finally:
        threading.Thread._bootstrap_inner = begin  # type: ignore[attr-defined]


class MixedDevices(RuntimeError):
    """An operator got tensors that lie on different devices."""


class MetaDevice(TorchDispatchMode):
    """Runs `meta` tensors as a GPU would: mixing them with CPU tensors is an error.

    The meta kernels themselves let a CPU weight through (matmul, einsum, embedding), and refuse to
    copy to the CPU, which a GPU does. So: operands on two devices raise MixedDevices, with the
    exceptions CUDA makes too (zero-dimensional CPU tensors, CPU indices, copies), and a copy to
    the CPU holds stand-in values: ones, or zeros where the dtype is an integer's. The mask of a
    `masked_fill` is no exception on CUDA either, not even a zero-dimensional one.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first call imports torch._dynamo, which takes a second

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name, makes_new_values = _known(func)
        if name == "copy_":
            return self._copy(func, args, kwargs)
        tensors = _tensors((*args, *kwargs.values()))
        if not any(tensor.is_meta for tensor in tensors):
            return self._make(func, args, kwargs)
        self._refuse_mixture(name, args, tensors)
        device = kwargs.get("device")
        if name == "_to_copy" and device is not None and torch.device(device).type != "meta":
            return func(_stand_in(args[0]), **kwargs)
        if not makes_new_values or device is not None:
            return func(*args, **kwargs)
        # On stand-ins the CPU kernels run: several meta kernels first import torch._dynamo, which
        # takes a second.
        named = {key: _each(_stand_in, one) for key, one in kwargs.items()}
        result = func(*_each(_stand_in, args), **named)
        return result if name == "_local_scalar_dense" else _each(_as_meta, result)

    @staticmethod
    def _make(func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that has no operand on meta; what it makes there is made on the CPU."""
        device = kwargs.get("device")
        if device is None or torch.device(device).type != "meta":
            return func(*args, **kwargs)
        return _each(_as_meta, func(*args, **{**kwargs, "device": torch.device("cpu")}))

    @staticmethod
    def _copy(func: Any, args: Any, kwargs: Any) -> Any:
        into, source = args[:2]
        if source.device.type == "meta" and into.device.type != "meta":
            return into.copy_(_stand_in(source))
        return func(*args, **kwargs)

    @staticmethod
    def _refuse_mixture(name: str, args: Any, tensors: list[torch.Tensor]) -> None:
        if name.startswith(("index", "_index", "_unsafe_index")) and args[0].device.type == "meta":
            indices = {id(leaf) for leaf in _tensors(args[1:2])}
            tensors = [tensor for tensor in tensors if id(tensor) not in indices]
        strict = args[1:2] if name.startswith("masked_fill") else ()
        for tensor in tensors:
            exempt = tensor.dim() == 0 and not any(tensor is one for one in strict)
            if tensor.device.type != "meta" and not exempt:
                raise MixedDevices(
                    f"`{name}` got a tensor of shape {tuple(tensor.shape)} that stayed on "
                    f"{tensor.device} beside the input's device"
                )


@functools.cache
def _known(operator: Any) -> tuple[str, bool]:
    """An operator's name, and whether all it returns is new: no argument, nor a view of one."""
    schema = operator._schema
    aliases = schema.is_mutable or any(result.alias_info for result in schema.returns)
    return schema.name.removeprefix("aten::"), not aliases


# An operator's arguments are tensors, lists of them and what is no tensor, so these are enough;
# torch.utils._pytree, which walks through anything, takes longer than most operators.


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for one in values:
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, list | tuple):
            found += _tensors(one)
    return found


def _each(change: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """`value` with `change` applied to its tensors."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)([_each(change, one) for one in value])
    return value


def _stand_in(leaf: torch.Tensor) -> torch.Tensor:
    """A CPU tensor in the place of a meta one; another as it is."""
    if not leaf.is_meta:
        return leaf
    value = 1 if leaf.is_floating_point() or leaf.is_complex() or leaf.dtype == torch.bool else 0
    return torch.full(leaf.shape, value, dtype=leaf.dtype, device="cpu")


def _as_meta(leaf: torch.Tensor) -> torch.Tensor:
    return leaf.to("meta")
