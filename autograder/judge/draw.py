"""Random inputs for checks, the same on every device."""

from __future__ import annotations

import hashlib
import math

import torch


class Draw:
    """A seeded source of tensors; each draw is made on the CPU and moved to `device`."""

    def __init__(self, *seed: int | str, device: str = "cpu"):
        digest = hashlib.sha256(repr(seed).encode()).digest()
        self._generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        self.device = device

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Standard normal values."""
        drawn = torch.randn(shape, generator=self._generator, dtype=torch.float64)
        return drawn.to(self.device, dtype)

    def gain(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Values of order one and away from 0 and 1: 0.5 to 0.9 or 1.2 to 2, of either sign."""
        unit = torch.rand(shape, generator=self._generator, dtype=torch.float64)
        size = torch.where(unit < 0.5, 0.5 + 0.8 * unit, 0.4 + 1.6 * unit)
        sign = torch.randint(0, 2, shape, generator=self._generator) * 2 - 1
        return (size * sign).to(self.device, dtype)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Integers from `low` to `high` - 1, as int64."""
        return torch.randint(low, high, shape, generator=self._generator).to(self.device)

    def number(self, low: float, high: float) -> float:
        """One float, drawn evenly on a logarithmic scale; both ends above 0."""
        unit = torch.rand((), generator=self._generator, dtype=torch.float64).item()
        return math.exp(math.log(low) + unit * (math.log(high) - math.log(low)))
