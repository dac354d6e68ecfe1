"""Whether two values are the same, and if not, how to say where they first differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autograder.judge.subject import Failure, Subject

# Relative and absolute: what a different order of the same arithmetic can do to order-one values.
TOLERANCES = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-5, 2e-5),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
}
# A mistake may be written in many ways too, but its values are its own: two units in the last
# place where a check, which allows half-precision arithmetic throughout, is wider.
LIKENESS = {
    torch.float64: (1e-6, 1e-8),
    torch.float32: (5e-5, 1e-4),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
}


def same(
    got: Any,
    expected: torch.Tensor,
    what: str = "The result",
    *,
    rtol: float | None = None,
    atol: float | None = None,
    note: str = "",
) -> None:
    """Fail unless `got` is a tensor with `expected`'s shape, dtype, device and values.

    Tolerances are those of the dtype unless given; `note` is added to the message about values.
    """
    shape_of(got, expected.shape, what)
    if got.dtype != expected.dtype:
        raise Failure(
            f"{what} has dtype {short_name(got.dtype)}; {short_name(expected.dtype)} was asked for."
        )
    if got.device.type != expected.device.type:
        raise Failure(f"{what} is on `{got.device}`; the input was on `{expected.device}`.")
    close(got, expected, what, rtol=rtol, atol=atol, note=note)


def close(
    got: torch.Tensor,
    expected: torch.Tensor,
    what: str = "The result",
    *,
    rtol: float | None = None,
    atol: float | None = None,
    note: str = "",
) -> None:
    """Fail unless two tensors of one shape have the same values, whatever their dtypes."""
    shape_of(got, expected.shape, what)
    usual = TOLERANCES.get(expected.dtype, (0.0, 0.0))
    rtol, atol = (usual[0] if rtol is None else rtol), (usual[1] if atol is None else atol)
    wrong = ~torch.isclose(
        got.to(expected.device, torch.float64), expected.double(), rtol, atol, equal_nan=True
    )
    if not wrong.any():
        return
    index = tuple(wrong.nonzero()[0].tolist())
    count = int(wrong.sum())
    many = (
        f" came out wrong in {count} of {wrong.numel()} values: the first"
        if wrong.numel() > 1
        else ""
    )
    place = f", at index {list(index)}," if index else ""
    raise Failure(
        f"{what}{many}{place} is {_number(got[index])} and should be {_number(expected[index])}."
        + (f" {note}" if note else "")
    )


def shape_of(got: Any, shape: Sequence[int], what: str = "The result") -> None:
    """Fail unless `got` is a tensor of this shape."""
    if got is None:
        raise Failure(f"{what} is None. Did you forget to `return` it?")
    if not isinstance(got, torch.Tensor):
        name = type_of(got)
        name = "NumPy array" if name == "ndarray" else name
        raise Failure(f"{what} is a {name}; a tensor was asked for.")
    if got.shape != torch.Size(shape):
        raise Failure(f"{what} has shape {tuple(got.shape)}; {tuple(shape)} was asked for.")
    if got.is_complex():
        raise Failure(f"{what} has dtype {short_name(got.dtype)}; real numbers were asked for.")
    if got.device.type == "meta":
        raise Failure(f"{what} is on `meta`, where tensors have no values.")


def untouched(after: Any, before: torch.Tensor, what: str) -> None:
    """Fail unless the argument `what` still has the values it came with."""
    if was_changed(after, before):
        raise Failure(
            f"`{what}` itself was changed. In-place operations (`-=`, `/=`, `mul_`, `out=`) write "
            "into the caller's tensor; make a new one."
        )


def was_changed(after: Any, before: torch.Tensor) -> bool:
    """Whether `after` is not a tensor with the values of `before`."""
    if not (isinstance(after, torch.Tensor) and after.shape == before.shape):
        return True
    return not torch.equal(after.nan_to_num(7.0), before.nan_to_num(7.0))


@dataclass(frozen=True)
class Drawn:
    """Whole numbers that were drawn: alike where one and the same shares can give both.

    From `turns` distributions in turn: the first, the second, the first again.
    """

    numbers: torch.Tensor
    turns: int = 1

    def is_like(self, other: Drawn) -> bool:
        """By a likelihood ratio test of each number's share, in each distribution."""
        mine, yours = self.numbers, other.numbers
        if self.turns != other.turns or mine.shape != yours.shape or mine.dtype != yours.dtype:
            return False
        if mine.is_complex() or "meta" in (mine.device.type, yours.device.type):
            return alike(mine, yours)  # nothing of an answer's may stop the judge
        return all(
            _can_be_of_one(*(one.flatten()[turn :: self.turns].cpu() for one in (mine, yours)))
            for turn in range(self.turns)
        )


DOUBT = 12.0  # so sure that two shares differ: exp(-12) by chance


def _can_be_of_one(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether each number has a share, between the two, that both can come from."""
    n = len(ours)
    if n == 0:
        return True
    _, which = torch.cat((ours, theirs)).unique(return_inverse=True)
    one, other = (part.bincount(minlength=2 * n).double() / n for part in which.split(n))
    mean = (one + other) / 2
    parts = ((one, mean), (other, mean), (1 - one, 1 - mean), (1 - other, 1 - mean))
    divergence = [torch.xlogy(part, part / whole.clamp(min=1e-300)) for part, whole in parts]
    return bool((n * torch.stack(divergence).sum(dim=0) <= DOUBT).all())


def alike(one: Any, other: Any) -> bool:
    """Whether two replies of an agent show the same behaviour."""
    if isinstance(one, Drawn) and isinstance(other, Drawn):
        return one.is_like(other)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
            return False
        if one.device.type == "meta" or one.numel() == 0:
            return True
        if not (one.is_floating_point() or one.is_complex()):
            return torch.equal(one, other)
        return torch.allclose(one, other, *LIKENESS.get(one.dtype, (0, 0)), equal_nan=True)
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, float):
        # Made from float32, most likely, where a sum in another order is 1e-7 and not 0.
        near = abs(one - other) <= 1e-5 * abs(other) + 1e-5
        return one == other or near or (one != one and other != other)
    return hasattr(one, "number") or one == other  # two handles are alike whatever they hold


def type_of(value: Any) -> str:
    """The name of a value's type, where the answer keeps the value too."""
    return value.type_name if isinstance(value, Subject) else type(value).__name__


def short_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _number(value: torch.Tensor) -> str:
    if value.is_floating_point():
        return f"{value.item():.6g}"
    return str(value.item())
