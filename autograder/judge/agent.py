"""Runs a student's object and reports what it did, as plain data.

The agent is the half of the judge that lives where the student's code lives. It compares nothing
and knows no expected value: it is asked to call, load, read, and answers with tensors and words.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import io
import linecache
import os
import sysconfig
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from autograder.judge.renaming import Names
from autograder.judge.values import Handle, Recipe, Unfit, plain_tensor, walk
from autograder.judge.watch import CallsWatch, MetaDevice, operators_watched, threads_watched

PRINT_LIMIT = 2_000
MESSAGE_LIMIT = 400
PLAIN = (bool, int, float, complex, str, type(None))
NOT_THE_STUDENTS = (
    os.path.dirname(os.path.abspath(__file__)),
    os.path.dirname(torch.__file__),
    sysconfig.get_paths()["stdlib"],
    "<frozen",
)


class TooLong(BaseException):
    """Raised into an answer that runs past its time; no `except Exception` swallows it."""


class Agent:
    """Holds `root`, the student's object, as handle 0, and what its calls returned as others."""

    def __init__(
        self,
        root: Any,
        ruled_out: Iterable[str] = (),
        device: str = "cpu",
        watch_threads: bool = False,
    ):
        self._objects: dict[int, Any] = {0: root}
        self._loaded: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._names: defaultdict[int, Names] = defaultdict(Names)  # by handle
        self._ruled_out = frozenset(ruled_out)
        self._device = torch.device(device)
        self._watch_threads = watch_threads  # in a process that has one agent at a time

    def perform(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what `request["do"]` names; the reply has a `value` or an `error`, and `printed`.

        With `request["afresh"]`, forget first what earlier requests left.
        """
        if request.get("afresh"):
            self._reset()
        actions: dict[str, Callable[..., dict[str, Any]]] = {
            "assign": self._assign,
            "call": self._call,
            "describe": self._describe,
            "find": self._find,
            "load": self._load,
            "make": self._make,
            "mode": self._mode,
            "move": self._move,
            "read": self._read,
            "rename": self._rename,
            "reset": self._reset,
        }
        action = actions[request["do"]]
        arguments = {key: request[key] for key in request if key not in ("do", "afresh")}
        output = BoundedText(PRINT_LIMIT)
        found: dict[str, int | None] = {}
        reply: dict[str, Any] = {"value": None, "error": None}
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                with contextlib.ExitStack() as stack:
                    if self._ruled_out:
                        stack.enter_context(operators_watched(self._ruled_out, found))
                        if self._watch_threads:
                            stack.enter_context(threads_watched(self._ruled_out, found))
                        stack.enter_context(CallsWatch(self._ruled_out, found))
                    reply.update(action(**arguments))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                reply["error"] = _describe_error(error)
        reply["printed"] = _sayable(output.getvalue())
        reply["ruled_out"] = [[name, line] for name, line in found.items()]
        return reply

    def _call(
        self,
        target: int,
        args: Any = (),
        kwargs: Any = None,
        method: str | None = None,
        seed: int | None = None,
        backward: Any = None,
        meta: bool = False,
        grad: bool = True,
        after: bool = False,
        **prepared: Any,
    ) -> dict[str, Any]:
        """Call `target`, or its `method`; with `backward`, also run that gradient back through it.

        `backward` is the gradient of the one tensor that comes back, or a tuple of them for a
        tuple that comes back (None passes an item over), or a dict of them for attributes of what
        comes back. `gradients` in the reply has the arguments' gradients in the arguments' places,
        `parameters` those of a module. With `after`, `arguments` has the arguments as they are
        after the call. A module that comes back is `prepared` as in `_prepare`.
        """
        called = self._objects[target]
        args, kwargs = walk((args, kwargs or {}), lambda leaf: self._admit(leaf, backward, meta))
        function = called if method is None else getattr(called, method)
        with contextlib.ExitStack() as stack:
            if seed is not None:
                stack.enter_context(torch.random.fork_rng(devices=self._cuda_devices()))
                # torch.manual_seed would also note the whole stack for a GPU that may come.
                torch.default_generator.manual_seed(seed)
                if self._device.type == "cuda":
                    torch.cuda.manual_seed(seed)
            if meta:
                stack.enter_context(MetaDevice())
            stack.enter_context(torch.set_grad_enabled(grad))
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            value = function(*args, **kwargs)
            if inspect.iscoroutine(value):
                value.close()
                raise TypeError("it is an `async def`, so a call only makes a coroutine")
        if isinstance(value, nn.Module) and self._device.type != "cpu":
            value.to(self._device)
        reply: dict[str, Any] = {}
        if backward is not None:
            reply = self._run_back(target, value, backward, (args, kwargs))
        reply["value"] = self._prepare(self._export(value), **prepared)
        if after:
            reply["arguments"] = walk((args, kwargs), self._afterwards)
        return reply

    def _prepare(
        self,
        made: Any,
        rename: Sequence[str] = (),
        load: dict[str, torch.Tensor] | None = None,
        train: bool | None = None,
    ) -> Any:
        """Have parts of a module that was `made` renamed, values loaded into it, and set its mode.

        So a check has a module as it needs it for one question instead of four.
        """
        if isinstance(made, Handle) and isinstance(self._objects[made.number], nn.Module):
            if rename:
                self._rename(made.number, rename)
            if load is not None:
                self._load(made.number, load)
            if train is not None:
                self._mode(made.number, {"": train})
        return made

    def _run_back(self, target: int, value: Any, backward: Any, inputs: Any) -> dict[str, Any]:
        ends = _ends(value, backward)
        called, names = self._objects[target], self._names[target]
        module = called if isinstance(called, nn.Module) else nn.Module()
        parameters = dict(module.named_parameters(remove_duplicate=False))
        for parameter in parameters.values():
            parameter.grad = None
        torch.autograd.backward([one for one, _ in ends], [gradient for _, gradient in ends])
        found = {
            name: None if parameter.grad is None else plain_tensor(parameter.grad)
            for name, parameter in parameters.items()
        }
        for parameter in parameters.values():
            parameter.grad = None
        return {"gradients": walk(inputs, _gradient), "parameters": names.of_ours(found)}

    def _describe(self, target: int, values: bool = True) -> dict[str, Any]:
        """Names, shapes, dtypes, devices, sharing, `values` of parameters, buffers; submodules."""
        module, names = self._objects[target], self._names[target]
        bases = [base.__name__ for base in type(module).__mro__]
        if not isinstance(module, nn.Module):
            kind = "class" if inspect.isclass(module) else "value"
            if callable(module) and kind != "class":
                kind = "function"
            return {"value": {"module": False, "kind": kind, "bases": bases}}
        storages: dict[int, int] = {}
        parameters = _rows(module.named_parameters(remove_duplicate=False), storages)
        # Of a parameter that has one name of ours for two of its own, one row.
        named = names.of_ours({row[0]: row[1:] for row in parameters})
        state = {
            name: plain_tensor(one)
            for name, one in [*module.named_parameters(), *module.named_buffers()]
            if values and one.device.type != "meta"
        }
        return {
            "value": {
                "module": True,
                "kind": "module",
                "bases": bases,
                "parameters": [[name, *row] for name, row in named.items()],
                "buffers": _rows(module.named_buffers(remove_duplicate=False), storages),
                "modules": [
                    [name, type(one).__name__, one.training] for name, one in module.named_modules()
                ],
                "state": names.of_ours(state),
            }
        }

    def _rename(self, target: int, parts: Sequence[str]) -> dict[str, Any]:
        """Call the parameters inside each of `parts` by shape from now on, of this object alone."""
        module = self._objects[target]
        if isinstance(module, nn.Module):
            rows = _rows(module.named_parameters(remove_duplicate=False), {})
            self._names[target] = Names.inside(parts, rows)
        return {}

    def _load(self, target: int, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
        """Copy `tensors` into the parameters and buffers of these names; one may have several."""
        module = self._objects[target]
        named = dict(module.named_parameters(remove_duplicate=False))
        named |= dict(module.named_buffers(remove_duplicate=False))
        for name, tensor in self._names[target].of_its_own(tensors).items():
            if name not in named:
                has = ", ".join(named) or "none"
                raise LookupError(f"there is no parameter or buffer `{name}`; there are: {has}")
            if named[name].shape != tensor.shape:
                raise LookupError(
                    f"`{name}` has shape {tuple(named[name].shape)}, not {tuple(tensor.shape)}"
                )
            self._loaded.append((named[name], plain_tensor(named[name])))
            with torch.no_grad():
                named[name].copy_(tensor)
        return {}

    def _reset(self, target: int = 0) -> dict[str, Any]:
        """Forget every object but the root, and undo what was loaded: modules may share it."""
        with torch.no_grad():
            for tensor, before in reversed(self._loaded):
                tensor.copy_(before)
        self._loaded.clear()
        self._names.clear()
        self._objects = {0: self._objects[0]}
        return {}

    def _mode(self, target: int, modes: dict[str, bool]) -> dict[str, Any]:
        """Put submodules, "" for the whole, into train mode (True) or eval mode, in this order."""
        for name, train in modes.items():
            module = self._objects[target]
            (module.get_submodule(name) if name else module).train(train)
        return {}

    def _move(
        self, target: int, dtype: torch.dtype | None = None, device: str | None = None
    ) -> dict[str, Any]:
        # A copy is moved: what modules share by mistake, or the notebook still has, stays put.
        module = self._objects[target]
        with contextlib.suppress(Exception):
            module = copy.deepcopy(module)
        self._objects[target] = module.to(device=device, dtype=dtype)
        return {}

    def _read(self, target: int, paths: Sequence[Sequence[Sequence[Any]]]) -> dict[str, Any]:
        """The values at the ends of `paths`, of steps like ["item", 3], ["attribute", "length"]."""
        found = []
        for path in paths:
            one = self._objects[target]
            for kind, key in path:
                one = one[key] if kind == "item" else getattr(one, key)
            found.append(self._export(one))
        return {"value": found}

    def _find(self, target: int, name: str) -> dict[str, Any]:
        """What can be imported as `name`: "torch.optim.SGD", "builtins.iter"."""
        module, _, last = name.rpartition(".")
        return {"value": self._export(getattr(importlib.import_module(module), last))}

    def _make(self, target: int, recipe: Recipe, **prepared: Any) -> dict[str, Any]:
        """A module made from `recipe`, to be `prepared` before an answer is given it."""
        made = self._export(self._admit(recipe, None, False))
        return {"value": self._prepare(made, **prepared)}

    def _assign(self, target: int, values: dict[str, Any]) -> dict[str, Any]:
        """Set attributes by dotted names: to a number, a tensor, a module from a recipe."""
        for path, value in values.items():
            owner, names = self._objects[target], path.split(".")
            for name in names[:-1]:
                owner = getattr(owner, name)
            setattr(owner, names[-1], self._admit(value, None, False))
        return {}

    def _admit(self, leaf: Any, backward: Any, meta: bool) -> Any:
        """An argument as the answer gets it: handles become objects, tensors become its own."""
        if isinstance(leaf, Handle):
            return self._objects[leaf.number]
        if isinstance(leaf, Recipe):
            return leaf.make().to("meta" if meta else self._device)
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.detach().to("meta") if meta else leaf.detach().clone()
            return leaf.requires_grad_(backward is not None and leaf.is_floating_point())
        return leaf

    def _export(self, value: Any) -> Any:
        def leaf(one: Any) -> Any:
            if isinstance(one, torch.Tensor):
                return plain_tensor(one)
            if type(one) is str:
                return _sayable(one)
            if type(one) in PLAIN or isinstance(one, torch.dtype | torch.device):
                return one
            number = len(self._objects)
            self._objects[number] = one
            return Handle(number, type(one).__name__)

        return walk(value, leaf)

    def _afterwards(self, leaf: Any) -> Any:
        """What an argument is after a call: a tensor's values, or which object it is."""
        if isinstance(leaf, torch.Tensor):
            return plain_tensor(leaf)
        known = (Handle(n, type(one).__name__) for n, one in self._objects.items() if one is leaf)
        return next(known, None)

    def _cuda_devices(self) -> list[torch.device]:
        return [self._device] if self._device.type == "cuda" else []


class BoundedText(io.StringIO):
    """Text of which only the first `limit` characters are kept."""

    def __init__(self, limit: int):
        super().__init__()
        self._left = limit

    def close(self) -> None:
        pass  # an answer may close its output; what it printed is still wanted

    def write(self, text: str) -> int:
        super().write(text[: self._left])
        self._left = max(0, self._left - len(text))
        return len(text)


def _ends(value: Any, backward: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors of `value` to run back from, each with its gradient."""
    if isinstance(backward, dict):
        pairs = [(getattr(value, name), gradient) for name, gradient in backward.items()]
    elif not isinstance(backward, tuple):
        pairs = [(value, backward)]
    elif isinstance(value, tuple | list) and len(value) == len(backward):
        pairs = [pair for pair in zip(value, backward, strict=True) if pair[1] is not None]
    else:
        came = f"{len(value)} came" if isinstance(value, tuple | list) else "one value came"
        raise TypeError(f"{len(backward)} tensors are asked for, and {came} back")
    for one, _ in pairs:
        if not isinstance(one, torch.Tensor):
            raise TypeError(f"a tensor is asked for, and a {type(one).__name__} came back")
    return [(one, gradient.to(one.device, one.dtype)) for one, gradient in pairs]


def _rows(named: Iterable[tuple[str, torch.Tensor]], storages: dict[int, int]) -> list[list[Any]]:
    """What a description says of tensors; those in one storage have its number in `storages`."""
    return [
        [
            str(name),
            list(one.shape),
            str(one.dtype).removeprefix("torch."),
            one.device.type,
            one.requires_grad,
            storages.setdefault(
                one.untyped_storage()._cdata
                if one.device.type == "meta"
                else one.untyped_storage().data_ptr(),
                len(storages),
            ),
        ]
        for name, one in named
    ]


def _gradient(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.grad is not None:
        return plain_tensor(leaf.grad)
    return None


def _sayable(text: str) -> str:
    """Text that can be written to a file: half of a surrogate pair can't."""
    return text.encode("utf-8", "replace").decode()


def _describe_error(error: BaseException) -> dict[str, Any]:
    """Type, first line of the message, and the last line of the student's own code it passed."""
    kind, line, code, function = type(error).__name__, None, "", ""
    if isinstance(error, Unfit):
        kind = "Unfit"
    for frame, number in traceback.walk_tb(error.__traceback__):
        if not frame.f_code.co_filename.startswith(NOT_THE_STUDENTS):
            line, function = number, frame.f_code.co_qualname
            code = linecache.getline(frame.f_code.co_filename, number).strip()
    try:
        message = str(error)
    except BaseException as again:
        message = f"(its message can't be read: {type(again).__name__})"
    return {
        "type": kind,
        "bases": [base.__name__ for base in type(error).__mro__],
        "message": _sayable(message.strip()[:MESSAGE_LIMIT]),
        "line": line,
        "code": _sayable(code[:MESSAGE_LIMIT]),
        "function": function[:MESSAGE_LIMIT],
    }
