"""What every exercise promises (curriculum.md), as checks that lessons share."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from autograder.judge.compare import close, same, shape_of, short_name, type_of, untouched
from autograder.judge.draw import Draw
from autograder.judge.subject import Description, Failure, Outcome, Subject

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def agrees_in_gradients(
    got: Sequence[Any],
    authority: Callable[..., torch.Tensor],
    inputs: dict[str, torch.Tensor],
    back: torch.Tensor,
) -> None:
    """Fail unless `got` are the gradients of `authority(**inputs)` with `back` run back."""
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in inputs.items()}
    expected = torch.autograd.grad(authority(**leaves), list(leaves.values()), back)
    for name, one, right in zip(leaves, got, expected, strict=True):
        if one is None:
            raise Failure(
                f"No gradient reaches `{name}`. Something on its way cuts it off: `.detach()`, "
                "`.data`, `.item()`, `torch.tensor(...)`, `no_grad`, or numpy."
            )
        same(one, right, f"The gradient of `{name}`", rtol=1e-4, atol=1e-4)


def in_dtype(dtype: torch.dtype) -> Callable[[Any], Any]:
    """A trait: the result, but of a tensor in another dtype not its values.

    They depend on how much was computed in which.
    """

    def trait(value: Any) -> Any:
        wrong = isinstance(value, torch.Tensor) and value.dtype != dtype
        return (value.dtype, value.shape) if wrong else value

    return trait


def keeps_dtypes(
    call: Callable[..., Any], *inputs: torch.Tensor, dtypes: Sequence[torch.dtype] = DTYPES
) -> None:
    """Fail unless `call` on inputs of each dtype returns that dtype, with about the same values."""
    plain = call(*inputs)
    for dtype in dtypes:
        with call.known_by(in_dtype(dtype)) if isinstance(call, Subject) else nullcontext():
            result = call(*(one.to(dtype) for one in inputs))
        shape_of(result, plain.shape)
        if result.dtype != dtype:
            short = short_name(dtype)
            raise Failure(
                f"For {short} inputs the result is {short_name(result.dtype)}; "
                f"{short} was asked for. Cast back with `.to(x.dtype)`."
            )
        # Wide enough for arithmetic that is carried out in half precision throughout.
        close(
            result,
            plain,
            f"The result for {short_name(dtype)} inputs",
            rtol=5e-2,
            atol=5e-2,
        )


def refuses(outcome: Outcome, when: str) -> str:
    """The message of the ValueError that an attempt ended in; Failure if it ended otherwise."""
    error, asked = outcome.error, f"{when}: a ValueError was asked for"
    if error is None:
        shape = getattr(outcome.value, "shape", None)
        came = "a result" if shape is None else f"a result of shape {tuple(shape)}"
        raise Failure(f"{asked}, and {came} came back.")
    if error["type"] == "NotImplementedError":
        raise Failure(f"{when}: the line `raise NotImplementedError()` still runs.")
    if "ValueError" not in error["bases"]:
        raise Failure(
            f"{asked}, and it stopped with {error['type']} ({error['message'][:120]}). Test for it "
            "and `raise ValueError(...)` yourself."
        )
    return str(error["message"])


def has_parameters(module: Subject, expected: dict[str, float], width: int) -> None:
    """Fail unless `module` trains exactly these vectors of `width`, filled with these values."""
    found = _described(module, expected, values=True)
    for name, value in expected.items():
        if name not in found.parameters:
            raise Failure(_missing(name, found))
        info = found.parameters[name]
        if info.shape != (width,):
            raise Failure(f"`{name}` has shape {info.shape}; ({width},) was asked for.")
        if not info.requires_grad:
            raise Failure(f"`{name}` has requires_grad=False, so it would never be trained.")
        start = found.state[name]
        same(start, torch.full_like(start, value), f"`{name}` of a new module")
    # A second name for an expected parameter trains nothing more.
    own = {found.parameters[name].storage for name in expected}
    if extra := trained_besides(own, found):
        raise Failure(f"It also trains {', '.join(extra)}, which no formula here has.")


def has_layers(module: Subject, layers: dict[str, tuple[int, int]], bias: bool = True) -> None:
    """Fail unless `module` trains these linear layers, (outputs, inputs) each, and nothing else."""
    if not isinstance(module, Subject):
        raise Failure(f"An nn.Module was asked for; this is a {type(module).__name__}.")
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (outputs, inputs) in layers.items():
        shapes[f"{name}.weight"] = (outputs, inputs)
        if bias:
            shapes[f"{name}.bias"] = (outputs,)
    found = _described(module, shapes, values=False)
    for name, shape in shapes.items():
        if name not in found.parameters:
            raise Failure(_missing_layer(name, found))
        info = found.parameters[name]
        if info.shape != shape:
            raise Failure(f"`{name}` has shape {info.shape}; {shape} was asked for.")
        if not info.requires_grad:
            raise Failure(f"`{name}` has requires_grad=False, so it would never be trained.")
    own = {found.parameters[name].storage for name in shapes}
    if len(own) < len(shapes):
        raise Failure("Two of its layers share a weight: each has weights of its own.")
    if extra := trained_besides(own, found):
        raise Failure(f"It also trains {', '.join(extra)}, which was not asked for.")


def _described(module: Subject, expected: Container[str], values: bool) -> Description:
    """A description in which no mistake is told from another by a name that was not `expected`.

    Nor by the values under such a name: it is wrong whatever it holds. How deep it stands tells.
    """

    def known(name: str) -> str:
        return name if name in expected else re.sub(r"\w+(?=\.)|^\w+$", "?", name)

    def trait(value: Any) -> Any:
        if not (isinstance(value, dict) and value.get("module")):
            return value
        rows = {
            part: [[known(row[0]), *row[1:]] for row in value[part]]
            for part in ("parameters", "buffers")
        }
        state = {name: one for name, one in value["state"].items() if name in expected}
        return {**value, **rows, "state": state}

    with module.known_by(trait):
        return module.describe(values)


def trained_besides(own: set[int], found: Description) -> list[str]:
    """The parameters that stand in no storage of `own` and are not frozen."""
    return [
        name
        for name, info in found.parameters.items()
        if info.storage not in own and info.requires_grad
    ]


def _missing_layer(name: str, found: Description) -> str:
    if found.parameters:
        return f"There is no `{name}`: the parameters are called {', '.join(found.parameters)}."
    layer = name.split(".")[0]
    return (
        f"There is no `{name}`, nor any other parameter, once `__init__` has run, so no optimizer "
        f"would find anything to train. Make it there: `self.{layer} = nn.Linear(...)`."
    )


def _missing(name: str, found: Description) -> str:
    if name in found.buffers:
        return (
            f"`{name}` is a buffer, which no optimizer trains. Make it a parameter: "
            f"`self.{name} = nn.Parameter(...)`."
        )
    if found.parameters:
        return f"There is no `{name}`: the parameters are called {', '.join(found.parameters)}."
    return (
        f"There is no `{name}`, nor any other parameter, once `__init__` has run, so no optimizer "
        f"would find anything to train. Make it there: `self.{name} = nn.Parameter(...)`."
    )


def on_the_cpu(module: Subject, draw: Draw) -> Subject:
    """`module` for look-ups that may go past the last row, which on a GPU stop all that follows."""
    return module if draw.device == "cpu" else module.to(device="cpu")


def same_at_every_call(module: Subject, x: torch.Tensor, other: torch.Tensor) -> None:
    """Fail if a call on `other`, or eval mode, changes what `module` makes of `x`."""
    before = module(x)
    shape_of(before, x.shape)
    module(other)
    same(module(x), before, "A second call on the same x")
    same(module.eval()(x), before, "The call in eval mode")


def owns_its_parameters(make: Callable[[], Subject], draw: Draw) -> None:
    """Fail if two modules share a parameter: loading one must leave the other as it was."""
    one, other = make(), make()
    shapes: dict[int, tuple[str, tuple[int, ...]]] = {}  # one name for each: some have two
    for name, info in other.describe(values=False).parameters.items():
        shapes.setdefault(info.storage, (name, info.shape))
    # Both are loaded: what a mistake's layers were drawn as must not matter.
    kept, loaded = ({name: draw.gain(*shape) for name, shape in shapes.values()} for _ in range(2))
    other.load(**kept)
    one.load(**loaded)
    found = other.describe().state
    for name, tensor in kept.items():
        same(found[name], tensor, f"`{name}` of one module, after another's was changed")


def leaves_untouched(answer: Subject, **inputs: torch.Tensor) -> None:
    """Fail if a call on `inputs`, in this order, changes one of them."""
    after = answer.call(tuple(inputs.values()), after=True).arguments
    for got, (name, given) in zip(after, inputs.items(), strict=True):
        untouched(got, given, name)


def is_count(got: Any, right: int, call: str, whose: str) -> None:
    """Fail unless `got`, what came of `call`, is the int `right`, which `whose` parameters are."""
    if got is None:
        raise Failure("The result is None. Did you forget to `return` it?")
    if type(got) is not int:
        raise Failure(f"{call} is a {type_of(got)}; an int was asked for.")
    if got != right:
        raise Failure(f"{call} is {got:,}; {whose} has {right:,}.")


def pair(result: Any, asked: str, what: str) -> Sequence[Any]:
    """The two that came back; Failure where it is not two. `asked` is like "(output, cache)"."""
    if not (isinstance(result, tuple | list) and len(result) == 2):
        raise Failure(f"{what}: {asked} was asked for, and a {type_of(result)} came back.")
    return result


def chunk_by_chunk(
    chunks: Sequence[int], step: Callable[[int, int, Any], tuple[torch.Tensor, Any]]
) -> tuple[torch.Tensor, Any]:
    """What `step(start, end, cache)` makes of chunks of tokens, joined, and the last cache.

    Each step returns its tokens' output and a cache, which the next one is given.
    """
    outputs, cache, end = [], None, 0
    for count in chunks:
        start, end = end, end + count
        output, cache = step(start, end, cache)
        outputs.append(output)
    return torch.cat(outputs, dim=1), cache
