"""What may pass between a check and an answer: plain data, tensors, handles and recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

MAX_ELEMENTS = 20_000_000
MAX_ITEMS = 100_000
MAX_DEPTH = 20


class Unfit(Exception):
    """A value that can't pass; the message says why."""


@dataclass(frozen=True)
class Handle:
    """Stands for an object that stays with the answer: a module, a cache, anything not plain."""

    number: int
    type: str


@dataclass(frozen=True)
class Recipe:
    """How to make a stock torch module on the answer's side, for exercises that are given one."""

    module: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def make(self) -> torch.nn.Module:
        args = [one.make() if isinstance(one, Recipe) else one for one in self.args]
        return getattr(torch.nn, self.module)(*args, **dict(self.kwargs))


def recipe(module: str, *args: Any, **kwargs: Any) -> Recipe:
    """`recipe("Linear", 4, 4, bias=False)` is made where the answer runs; recipes may be nested."""
    return Recipe(module, args, tuple(kwargs.items()))


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A dense copy without history and without any subclass; Unfit when it is too large."""
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.numel() > MAX_ELEMENTS:
            raise Unfit(
                f"a tensor of shape {tuple(tensor.shape)}, which has {tensor.numel():,} elements: "
                f"too large to look at (the limit is {MAX_ELEMENTS:,})"
            )
        if tensor.layout != torch.strided:
            raise Unfit(f"a tensor with layout {tensor.layout}; an ordinary dense one is asked for")
        return tensor.detach().as_subclass(torch.Tensor).clone()


def walk(value: Any, leaf: Callable[[Any], Any], depth: int = 0) -> Any:
    """`value` with `leaf` applied to everything that is not a list, a tuple or a dict."""
    if depth > MAX_DEPTH:
        raise Unfit(f"containers nested more than {MAX_DEPTH} deep")
    if isinstance(value, list | tuple | Mapping) and len(value) > MAX_ITEMS:
        raise Unfit(f"a {type(value).__name__} of {len(value):,} items")
    if type(value) is list:
        return [walk(item, leaf, depth + 1) for item in value]
    # A named tuple is a tuple here, since only its items can pass; one with methods is an object.
    if type(value) is tuple or (isinstance(value, tuple) and not _has_methods(value)):
        return tuple(walk(item, leaf, depth + 1) for item in value)
    if isinstance(value, dict):
        return {_key(key): walk(item, leaf, depth + 1) for key, item in dict.items(value)}
    return leaf(value)


def _has_methods(value: tuple[Any, ...]) -> bool:
    """Whether its class adds public functions or properties to those of a tuple."""
    return any(
        isinstance(one, FunctionType | property) and not name.startswith("_")
        for kind in type(value).__mro__
        for name, one in vars(kind).items()
    )


def _key(key: Any) -> Any:
    if type(key) in (str, int, float, bool, type(None)):
        return key
    raise Unfit(f"a dict with a key of type {type(key).__name__}; strings and numbers can be read")
