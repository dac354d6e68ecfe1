"""Right answers of lesson 01 in other styles than the reference's. All must get full marks."""

import torch
from torch import nn
from torch.nn import functional as F

# layer_norm


def by_var_mean(x, scale, shift, eps=1e-5):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return torch.addcmul(shift, (x - mean) * torch.rsqrt(variance + eps), scale)


def by_loops(x, scale, shift, eps=1e-5):
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        mean = sum(row) / len(row)
        variance = sum((value - mean) ** 2 for value in row) / len(row)
        rows.append((row - mean) / (variance + eps) ** 0.5 * scale + shift)
    return torch.stack(rows).reshape(x.shape)


def by_einsum(x, scale, shift, eps=1e-5):
    width = x.shape[-1]
    centred = x - torch.einsum("...c->...", x)[..., None] / width
    variance = torch.einsum("...c,...c->...", centred, centred)[..., None] / width
    return torch.einsum("...c,c->...c", centred / (variance + eps).sqrt(), scale) + shift


def by_moments(x, scale, shift, eps=1e-5):
    wide = x.double()
    mean = wide.mean(-1, keepdim=True)
    variance = (wide * wide).mean(-1, keepdim=True) - mean * mean
    return ((wide - mean) / (variance + eps).sqrt() * scale + shift).to(x.dtype)


def by_centring_matrix(x, scale, shift, eps=1e-5):
    width = x.shape[-1]
    centring = torch.eye(width, dtype=x.dtype, device=x.device) - 1 / width
    centred = x @ centring
    return centred * (centred.pow(2).sum(-1, keepdim=True) / width + eps).pow(-0.5) * scale + shift


def by_batch_norm(x, scale, shift, eps=1e-5):
    columns = x.reshape(-1, x.shape[-1]).T
    return F.batch_norm(columns, None, None, training=True, eps=eps).T.reshape(x.shape) * scale + (
        shift
    )


def by_vmap(x, scale, shift, eps=1e-5):
    def one(row):
        centred = row - row.mean()
        return centred / torch.sqrt((centred**2).mean() + eps) * scale + shift

    return torch.vmap(one)(x.reshape(-1, x.shape[-1])).reshape(x.shape)


def by_own_memory(x, scale, shift, eps=1e-5):
    out = x.clone()
    out -= out.mean(-1, keepdim=True)
    out = out / out.square().mean(-1, keepdim=True).add(eps).sqrt()
    return out.mul(scale).add(shift)


# rms_norm


def rms_by_rsqrt(x, scale, eps=1e-6):
    return scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def rms_by_length(x, scale, eps=1e-6):
    width = x.shape[-1]
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.sqrt(length.square() / width + eps) * scale


def rms_by_loops(x, scale, eps=1e-6):
    rows = [
        torch.stack(
            [
                value / torch.sqrt(sum(other * other for other in row) / len(row) + eps)
                for value in row
            ]
        )
        for row in x.reshape(-1, x.shape[-1])
    ]
    return torch.stack(rows).view(x.shape) * scale


def rms_by_einsum(x, scale, eps=1e-6):
    wide = x.to(torch.float64)
    mean_square = torch.einsum("...i,...i->...", wide, wide).unsqueeze(-1) / x.size(-1)
    return (wide / (mean_square + eps) ** 0.5 * scale).type_as(x)


def rms_by_matrix(x, scale, eps=1e-6):
    average = x.new_full((x.shape[-1], 1), 1 / x.shape[-1])
    return x / torch.sqrt((x * x) @ average + eps) * scale


# Modules


def layer_norm_module(function):
    class Module(nn.Module):
        def __init__(self, width, eps=1e-5):
            super().__init__()
            self.eps = eps
            self.weight = nn.Parameter(torch.empty(width))
            self.bias = nn.Parameter(torch.empty(width))
            nn.init.ones_(self.weight)
            nn.init.zeros_(self.bias)

        def forward(self, x):
            return function(x, self.weight, self.bias, self.eps)

    return Module


class WithBuffers(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.register_buffer("eps", torch.tensor(eps), persistent=False)
        self.register_parameter("bias", nn.Parameter(torch.zeros(width)))
        self.register_parameter("weight", nn.Parameter(torch.ones(width)))

    def forward(self, inputs, /):
        centred = inputs - inputs.mean(-1, keepdim=True)
        spread = (centred.square().mean(-1, keepdim=True) + self.eps).sqrt()
        return centred / spread * self.weight + self.bias


class Inherits(WithBuffers):
    def __init__(self, width, eps=1e-5):
        super().__init__(width=width, eps=eps)


class LlamaOrder(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = eps

    def forward(self, hidden):
        dtype = hidden.dtype
        hidden = hidden.to(torch.float32)
        variance = hidden.pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(variance + self.variance_epsilon)
        return (self.weight * hidden.to(dtype)).to(dtype)


class WeightInWide(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.width, self.eps = width, eps
        self.weight = nn.Parameter(torch.ones((width,)))

    def forward(self, x):
        wide = x.double()
        length = wide.norm(dim=-1, keepdim=True)
        normalized = wide / (length**2 / self.width + self.eps).sqrt()
        return (normalized * self.weight.double()).to(x)


class ByNormalize(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.register_parameter("weight", nn.Parameter(torch.ones(width)))
        self.eps = eps

    def forward(self, x):
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        # A column of sqrt(C eps) makes the row's length the root that RMS norm divides by.
        extra = wide.new_full((*wide.shape[:-1], 1), (self.eps * x.shape[-1]) ** 0.5)
        unit = F.normalize(torch.cat([wide, extra], -1), dim=-1, eps=0.0)[..., :-1]
        return (unit * x.shape[-1] ** 0.5 * self.weight).to(x.dtype)


class ByChunks(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.full([width], 1.0))
        self.eps = eps

    def forward(self, x):
        def one(row):
            wide = row.float()
            return (wide / ((wide @ wide) / len(wide) + self.eps).sqrt() * self.weight).to(x.dtype)

        return torch.stack([one(row) for row in x.reshape(-1, x.shape[-1])]).reshape(x.shape)


layer_norms = [
    by_var_mean,
    by_loops,
    by_einsum,
    by_moments,
    by_centring_matrix,
    by_batch_norm,
    by_vmap,
    by_own_memory,
]
STYLES = {
    "layer_norm": layer_norms,
    "ManualLayerNorm": [*map(layer_norm_module, layer_norms), WithBuffers, Inherits],
    "rms_norm": [rms_by_rsqrt, rms_by_length, rms_by_loops, rms_by_einsum, rms_by_matrix],
    "RMSNorm": [LlamaOrder, WeightInWide, ByNormalize, ByChunks],
    "norm_quiz": [{1: "B", 2: " d ", 3: "a", 4: "C", 5: "b", 6: "d", "note": "mine"}],
}
