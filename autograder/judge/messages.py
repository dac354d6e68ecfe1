"""Requests and replies as bytes: JSON for the structure, safetensors for the tensors, no pickle.

A message is 8 bytes of JSON length (big endian), the JSON, then a safetensors file. What is not
JSON's own stands in the JSON as an object with one key, its kind: {"tuple": [...]}, {"tensor": 3}.
A tensor whose axes lie in another order in memory, a transposed one, arrives like that.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import torch
from safetensors import SafetensorError, TensorSpec, serialize
from safetensors.torch import load

from autograder.judge.values import Handle, Recipe, Unfit

MAX_BYTES = 256 * 2**20
_DTYPES = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
}


def encode(value: Any) -> bytes:
    """`value` as a message; Unfit for what can't pass."""
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(_pack(value, tensors), allow_nan=False).encode()
    # JSON alone where there are no tensors: safetensors refuses an empty file.
    return struct.pack(">Q", len(text)) + text + (_save(tensors) if tensors else b"")


def decode(message: bytes) -> Any:
    """What `encode` was given; Unfit for a message that is malformed, too large or forged."""
    if len(message) > MAX_BYTES:
        raise Unfit(f"a message of {len(message):,} bytes; {MAX_BYTES:,} is the limit")
    try:
        (length,) = struct.unpack(">Q", message[:8])
        body = message[8 + length :]
        tensors = load(body) if body else {}
        return _unpack(json.loads(message[8 : 8 + length]), tensors)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise Unfit(f"a message that can't be read ({type(error).__name__})") from error
    except (struct.error, SafetensorError) as error:
        raise Unfit("a message that can't be read") from error


def _save(tensors: dict[str, torch.Tensor]) -> bytes:
    """A safetensors file, as safetensors.torch.save makes it in five times the time.

    Tensors that share memory are written twice, as in attention(x, x, x).
    """
    try:
        return serialize(
            {
                number: TensorSpec(
                    dtype=_name(tensor.dtype),
                    shape=tensor.shape,
                    data_ptr=tensor.data_ptr(),
                    data_len=tensor.nbytes,
                )
                for number, tensor in tensors.items()
            }
        )
    except SafetensorError as error:
        raise Unfit(f"a tensor that can't be sent ({error})") from error


def _pack(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        if value.device.type == "meta":
            return {"meta": [list(value.shape), _name(value.dtype)]}
        tensor, number = value.detach().cpu(), str(len(tensors))
        if tensor.is_contiguous():
            tensors[number] = tensor
            return {"tensor": number}
        tensor = tensor.clone()  # dense: what was cut out or expanded is contiguous now
        axes = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        tensors[number] = tensor.permute(axes).contiguous()
        return {"tensor": number if axes == sorted(axes) else [number, axes]}
    match value:
        case None | bool() | str():
            return value
        case int():
            return {"int": str(value)} if abs(value) > 2**53 else value
        case float():
            return {"float": repr(value)}
        case complex():
            return {"complex": [repr(value.real), repr(value.imag)]}
        case list():
            return [_pack(item, tensors) for item in value]
        case tuple():
            return {"tuple": [_pack(item, tensors) for item in value]}
        case dict():
            pairs = [[_pack(key, tensors), _pack(item, tensors)] for key, item in value.items()]
            return {"dict": pairs}
        case torch.dtype():
            return {"dtype": _name(value)}
        case torch.device():
            return {"device": str(value)}
        case Handle():
            return {"handle": [value.number, value.type]}
        case Recipe():
            return {"recipe": [value.module, _pack([value.args, value.kwargs], tensors)]}
    raise Unfit(f"a {type(value).__name__}")


def _unpack(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # half a surrogate pair can't be written
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("an object with one key was expected")
    ((kind, content),) = value.items()
    match kind:
        case "tensor" if isinstance(content, list):
            number, axes = content
            if sorted(axes) != list(range(tensors[number].dim())):
                raise ValueError("the axes of a tensor are missing")
            return tensors[number].permute([axes.index(axis) for axis in range(len(axes))])
        case "tensor":
            return tensors[content]
        case "meta":
            shape, dtype = content
            return torch.empty(shape, dtype=_DTYPES[dtype], device="meta")
        case "int":
            return int(content)
        case "float":
            return float(content)
        case "complex":
            return complex(*map(float, content))
        case "tuple":
            return tuple(_unpack(content, tensors))
        case "dict":
            return {
                _unpack(key, tensors): _unpack(item, tensors) for key, item in map(tuple, content)
            }
        case "dtype":
            return _DTYPES[content]
        case "device":
            return torch.device(content)
        case "handle":
            number, name = content
            if not (isinstance(number, int) and isinstance(name, str)):
                raise ValueError("a handle is a number and a name")
            return Handle(number, name[:100])
        case "recipe":
            module, parts = content
            args, kwargs = _unpack(parts, tensors)
            if not (isinstance(module, str) and module.isidentifier()):
                raise ValueError("a recipe names a module of torch.nn")
            return Recipe(module, args, kwargs)
    raise ValueError(f"no such kind: {kind}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
