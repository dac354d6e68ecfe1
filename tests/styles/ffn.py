"""Right answers of lesson 02 in other styles than the reference's. All must get full marks."""

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

# gelu


def by_ndtr(x):
    return x * torch.special.ndtr(x)


def by_normal(x):
    return x * torch.distributions.Normal(0.0, 1.0).cdf(x)


def by_erfc(x):
    return torch.erfc(-x * math.sqrt(0.5)).mul(x).div(2)


def by_log(x):
    return x * torch.exp(torch.special.log_ndtr(x.double())).to(x)


def by_wide(x):
    wide = x.to(torch.float64)
    return (wide / 2 * (torch.erf(wide / torch.tensor(2.0).sqrt()) + 1)).to(x.dtype)


def by_gamma(x):
    """erf is an incomplete gamma function."""
    wide = x.double()
    erf = torch.sign(wide) * torch.special.gammainc(
        torch.tensor(0.5, dtype=torch.float64, device=x.device), wide.square() / 2 + 1e-300
    )
    return (wide * (1 + erf) / 2).to(x.dtype)


def by_quadrature(x):
    """The area under the bell curve from 0 to x, by Gauss and Legendre's rule."""
    wide = x.double().unsqueeze(-1)
    places = (torch.arange(400, device=x.device, dtype=torch.float64) + 0.5) / 400
    bell = torch.exp(-(wide * places).square() / 2) / math.sqrt(2 * math.pi)
    return ((0.5 + (bell * wide).mean(-1)) * wide.squeeze(-1)).to(x.dtype)


def by_approximated_erf(x):
    """Abramowitz and Stegun, 7.1.26: right to 1.5e-7."""
    z = x.double().abs() / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    factors = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    series = sum(factor * t ** (power + 1) for power, factor in enumerate(factors))
    erf = (1 - series * torch.exp(-z * z)) * torch.where(x < 0, -1.0, 1.0)
    return (0.5 * x * (1 + erf)).to(x.dtype)


def by_loops(x):
    values = [value * 0.5 * (1 + (value / 2**0.5).erf()) for value in x.flatten()]
    return torch.stack(values).view(x.shape)


def by_two_halves(x):
    right = x - x * 0.5 * torch.erfc(x / math.sqrt(2))
    return torch.where(x > 0, right, x * 0.5 * torch.erfc(-x / math.sqrt(2)))


class GELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


class WithBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return by_ndtr(x)

    @staticmethod
    def backward(ctx, back):
        (x,) = ctx.saved_tensors
        bell = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
        return back * (torch.special.ndtr(x) + x * bell)


def by_own_memory(x):
    share = x / math.sqrt(2)
    share.erf_().add_(1).mul_(0.5)
    return share * x


def by_lerp(x):
    return torch.lerp(torch.zeros_like(x), x, torch.special.ndtr(x))


# gelu_tanh


def by_torch(x):
    return F.gelu(x, approximate="tanh")


def by_sigmoid(x):
    return x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x.pow(3)))


def by_horner(x):
    return 0.5 * x * (1 + torch.tanh(x * 0.79788456 * (1 + 0.044715 * x * x)))


def by_exponentials(x):
    z = (math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))).double()
    return (x * (1 - 1 / (torch.exp(2 * z) + 1))).to(x.dtype)


def tanh_by_loops(x):
    def one(value):
        inner = (2 / math.pi) ** 0.5 * (value + 0.044715 * value * value * value)
        return value * (1 + inner.tanh()) / 2

    return torch.stack([one(value) for value in x.reshape(-1)]).reshape(x.shape)


def by_constants(x):
    root = torch.sqrt(torch.tensor(2.0, device=x.device, dtype=x.dtype) / torch.pi)
    return x.mul(0.5).mul(1 + torch.tanh(root * torch.add(x, x**3, alpha=0.044715)))


def by_rounded_constants(x):
    return 0.5 * x * (1 + torch.tanh(0.7978846 * (x + 0.044715 * x**3)))


# FeedForward


class InASequential(nn.Module):
    """The layers stand in a Sequential first and get their names afterwards."""

    def __init__(self, d_model, hidden_dim, dropout=0.0):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_model, hidden_dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, d_model),
            nn.Dropout(dropout),
        )
        self.input_projection, self.output_projection = self.net[0], self.net[3]

    def forward(self, x):
        return self.net(x)


class SequentialLast(nn.Module):
    def __init__(self, d_model: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_projection = nn.Linear(hidden_dim, d_model)
        self.input_projection = nn.Linear(d_model, hidden_dim)
        drop = nn.Dropout(dropout, inplace=True)
        self.steps = nn.Sequential(
            self.input_projection, nn.GELU(), drop, self.output_projection, drop
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.steps(inputs)


class ByEinsum(nn.Module):
    def __init__(self, d_model, hidden_dim, dropout=0.0):
        super().__init__()
        self.input_projection = nn.Linear(d_model, hidden_dim)
        self.output_projection = nn.Linear(hidden_dim, d_model)
        self.hidden_dropout, self.output_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.register_buffer("one_half", torch.tensor(0.5), persistent=False)

    def forward(self, x):
        into, out = self.input_projection, self.output_projection
        hidden = torch.einsum("btc,fc->btf", x, into.weight) + into.bias
        hidden = self.one_half * hidden * (1 + torch.erf(hidden * 0.5**0.5))
        result = torch.einsum("btf,cf->btc", self.hidden_dropout(hidden), out.weight)
        return self.output_dropout(result + out.bias)


class ByFunctions(nn.Module):
    def __init__(self, d_model, hidden_dim, dropout=0.0):
        super().__init__()
        self.dropout = dropout
        self.activation = partial(F.gelu, approximate="none")
        for name, sizes in (("input", (d_model, hidden_dim)), ("output", (hidden_dim, d_model))):
            self.add_module(f"{name}_projection", nn.Linear(*sizes))
        nn.init.normal_(self.input_projection.weight, std=0.02)
        nn.init.zeros_(self.output_projection.bias)

    def drop(self, tensor):
        return F.dropout(tensor, self.dropout, self.training)

    def forward(self, x, *_):
        batch, length, width = x.shape
        tokens = x.reshape(-1, width)
        hidden = self.drop(self.activation(self.input_projection(tokens)))
        return self.drop(self.output_projection(hidden)).reshape(batch, length, width)


class ByTokens(nn.Module):
    def __init__(self, d_model, hidden_dim, dropout=0.0):
        super().__init__()
        self.input_projection = nn.Linear(d_model, hidden_dim, bias=True)
        self.output_projection = nn.Linear(hidden_dim, d_model, bias=True)
        self.p = float(dropout)

    def drop(self, tensor):
        if not self.training or self.p == 0:
            return tensor
        kept = torch.rand_like(tensor) > self.p
        return tensor * kept / (1 - self.p)

    def one(self, tokens):
        return self.drop(self.output_projection(self.drop(by_erfc(self.input_projection(tokens)))))

    def forward(self, x):
        return torch.stack([self.one(x[:, place]) for place in range(x.shape[1])], dim=1)


class Inherits(ByEinsum):
    def __init__(self, d_model, hidden_dim, dropout=0.0):
        super().__init__(d_model=d_model, hidden_dim=hidden_dim, dropout=dropout)


class HookAndFrozenNumber(nn.Module):
    """GELU is a hook of the first layer; a number that is not trained stands by."""

    def __init__(self, d_model, hidden_dim, dropout=0.0):
        super().__init__()
        self.input_projection = nn.Linear(d_model, hidden_dim)
        self.input_projection.register_forward_hook(lambda layer, args, result: F.gelu(result))
        self.output_projection = nn.Linear(hidden_dim, d_model)
        self.dropout = nn.Dropout(dropout)
        self.version = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x):
        return self.dropout(self.output_projection(self.dropout(self.input_projection(x))))


class UnitByUnit(ByEinsum):
    def forward(self, x):
        into = self.input_projection
        units = [
            self.hidden_dropout(F.gelu(x @ weight + bias))
            for weight, bias in zip(into.weight, into.bias, strict=True)
        ]
        return self.output_dropout(self.output_projection(torch.stack(units, dim=-1)))


def as_a_function(d_model, hidden_dim, dropout=0.0):
    return SequentialLast(d_model, hidden_dim, dropout)


# SwiGLU


class LlamaStyle(nn.Module):
    def __init__(self, d_model, hidden_dim):
        super().__init__()
        self.gate_projection = nn.Linear(d_model, hidden_dim, bias=False)
        self.up_projection = nn.Linear(d_model, hidden_dim, bias=False)
        self.output_projection = nn.Linear(hidden_dim, d_model, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.output_projection(self.act_fn(self.gate_projection(x)) * self.up_projection(x))


class BySigmoid(nn.Module):
    def __init__(self, d_model, hidden_dim, bias=False):
        super().__init__()
        self.output_projection = nn.Linear(hidden_dim, d_model, bias)
        self.up_projection = nn.Linear(d_model, hidden_dim, bias)
        self.gate_projection = nn.Linear(d_model, hidden_dim, bias)

    def forward(self, x):
        gate, up = self.gate_projection(x), self.up_projection(x)
        return self.output_projection(up * gate / (1 + torch.exp(-gate)))


class OneMatrixProduct(LlamaStyle):
    def forward(self, x):
        both = torch.cat([self.gate_projection.weight, self.up_projection.weight])
        gate, up = F.linear(x, both).chunk(2, dim=-1)
        return torch.matmul(F.silu(gate, inplace=False).mul(up), self.output_projection.weight.mT)


class ByGLU(LlamaStyle):
    def forward(self, x):
        gate = self.gate_projection(x)
        hidden = F.glu(torch.cat([gate * self.up_projection(x), gate], dim=-1), dim=-1)
        return self.output_projection(hidden)


class EinsumSwiGLU(LlamaStyle):
    def forward(self, x):
        gate = torch.einsum("btc,fc->btf", x, self.gate_projection.weight)
        up = torch.einsum("btc,fc->btf", x, self.up_projection.weight)
        return torch.einsum(
            "btf,btf,btf,cf->btc", gate, gate.sigmoid(), up, self.output_projection.weight
        )


class SumOfUnits(LlamaStyle):
    def forward(self, x):
        result = torch.zeros_like(x)
        for gate, up, out in zip(
            self.gate_projection.weight,
            self.up_projection.weight,
            self.output_projection.weight.mT,
            strict=True,
        ):
            result = result + (F.silu(x @ gate) * (x @ up))[..., None] * out
        return result


class ModuleDict(nn.Module):
    def __init__(self, d_model, hidden_dim):
        super().__init__()
        self.layers = nn.ModuleDict(
            {
                "gate": nn.Linear(d_model, hidden_dim, bias=False),
                "up": nn.Linear(d_model, hidden_dim, bias=False),
                "output": nn.Linear(hidden_dim, d_model, bias=False),
            }
        )
        for name, layer in self.layers.items():
            setattr(self, f"{name}_projection", layer)

    def forward(self, x):
        hidden = F.silu(self.layers["gate"](x)) * self.layers["up"](x)
        return self.layers["output"](hidden)


# Counting


def by_layers(d_model, hidden_dim, bias=True):
    layers = nn.Linear(d_model, hidden_dim, bias), nn.Linear(hidden_dim, d_model, bias)
    return sum(parameter.numel() for layer in layers for parameter in layer.parameters())


def by_module(d_model, hidden_dim, bias=True):
    module = LlamaStyle(d_model, hidden_dim) if not bias else InASequential(d_model, hidden_dim)
    if bias:
        return sum(parameter.numel() for parameter in module.parameters())
    return sum(parameter.numel() for parameter in module.parameters()) * 2 // 3


def by_factors(c, f, bias=True):
    return (c + bias) * f + (f + bias) * c


def by_matrices(d_model, hidden_dim, bias=True):
    total = 0
    for inputs, outputs in ((d_model, hidden_dim), (hidden_dim, d_model)):
        total += inputs * outputs
        if bias:
            total += outputs
    return total


def by_floats(d_model, hidden_dim, bias=True):
    return int(2.0 * d_model * hidden_dim + (d_model + hidden_dim) * float(bias))


def by_attention(d_model, bias=True):
    return sum(one.numel() for one in nn.MultiheadAttention(d_model, 1, bias=bias).parameters())


def by_four_layers(d_model, bias=True):
    layers = [nn.Linear(d_model, d_model, bias=bias) for _ in range(4)]
    return sum(math.prod(one.shape) for layer in layers for one in layer.parameters())


def by_product(d_model, bias=True):
    return 4 * d_model * (d_model + int(bias))


def by_fused(d_model, bias=True):
    fused = d_model * 3 * d_model + (3 * d_model if bias else 0)
    return fused + d_model**2 + (d_model if bias else 0)


def by_half_a_network(d_model, bias=True):
    return by_layers(d_model, 2 * d_model, False) + 4 * d_model * bias


STYLES = {
    "gelu": [
        by_lerp,
        by_ndtr,
        by_normal,
        by_erfc,
        by_log,
        by_wide,
        by_gamma,
        by_quadrature,
        by_approximated_erf,
        by_loops,
        by_two_halves,
        GELU(),
        WithBackward.apply,
        by_own_memory,
        torch.vmap(by_erfc),
    ],
    "gelu_tanh": [
        by_torch,
        nn.GELU("tanh"),
        by_sigmoid,
        by_horner,
        by_exponentials,
        tanh_by_loops,
        by_constants,
        by_rounded_constants,
    ],
    "FeedForward": [
        InASequential,
        SequentialLast,
        ByEinsum,
        ByFunctions,
        ByTokens,
        Inherits,
        HookAndFrozenNumber,
        UnitByUnit,
        as_a_function,
    ],
    "SwiGLU": [
        LlamaStyle,
        BySigmoid,
        OneMatrixProduct,
        ByGLU,
        EinsumSwiGLU,
        SumOfUnits,
        ModuleDict,
    ],
    "feed_forward_parameters": [by_layers, by_module, by_factors, by_matrices, by_floats],
    "attention_parameters": [
        by_attention,
        by_four_layers,
        by_product,
        by_fused,
        by_half_a_network,
    ],
    "ffn_quiz": [{1: "C", 2: " b ", 3: "d", 4: "A", 5: "b", 6: "c", "note": "mine"}],
}
