"""Right answers of lesson 04 in other styles than the reference's. All must get full marks."""

import math

import numpy
import torch
from torch import nn
from torch.nn import functional as F

# sinusoidal_table


def by_exp(length, d_model):
    pe = torch.zeros(length, d_model)
    position = torch.arange(0, length, dtype=torch.float).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)[:, : pe[:, 1::2].shape[1]]
    return pe


def by_loops(length, d_model):
    table = torch.empty(length, d_model)
    for t in range(length):
        for c in range(d_model):
            angle = t / 10000 ** ((c - c % 2) / d_model)
            table[t, c] = math.cos(angle) if c % 2 else math.sin(angle)
    return table


def by_columns(length, d_model):
    column = torch.arange(d_model)
    angle = torch.arange(length).unsqueeze(1) / 10000 ** (2 * (column // 2) / d_model)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


def by_stacking(length, d_model):
    i = torch.arange((d_model + 1) // 2)
    angles = torch.outer(torch.arange(length).float(), 10000.0 ** (-2.0 * i / d_model))
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :d_model]


def by_phase(length, d_model):
    column = torch.arange(d_model, dtype=torch.float64)
    phase = column.remainder(2) * math.pi / 2
    angle = torch.arange(length)[:, None] * torch.pow(1e4, -(column - column % 2) / d_model)
    return torch.sin(angle + phase).to(torch.float32)


def by_numpy(length, d_model):
    angle = numpy.arange(length)[:, None] / numpy.power(
        10000, 2 * (numpy.arange(d_model)[None, :] // 2) / d_model
    )
    angle[:, 0::2] = numpy.sin(angle[:, 0::2])
    angle[:, 1::2] = numpy.cos(angle[:, 1::2])
    return torch.tensor(angle, dtype=torch.float32)


def by_turning(length, d_model):
    """Each row is the one before it, every pair turned by its frequency."""
    pairs = (d_model + 1) // 2
    step = torch.polar(
        torch.ones(pairs, dtype=torch.float64),
        1e4 ** (-2 * torch.arange(pairs, dtype=torch.float64) / d_model),
    )
    turns = torch.ones(length, pairs, dtype=torch.complex128)
    for t in range(1, length):
        turns[t] = turns[t - 1] * step
    return torch.stack([turns.imag, turns.real], -1).reshape(length, -1)[:, :d_model].float()


def by_columns_one_at_a_time(length, d_model):
    position = torch.linspace(0, length - 1, length)
    columns = []
    for c in range(d_model):
        wave = torch.sin if c % 2 == 0 else torch.cos
        columns.append(wave(position * 10000 ** -((c // 2) * 2 / d_model)))
    return torch.stack(columns, dim=-1)


def by_half_angles(length, d_model):
    half = torch.arange(length).double()[:, None] / 2
    half = half * 1e4 ** (-torch.arange(0, d_model, 2).double() / d_model)
    table = half.new_empty(length, d_model)
    table[:, 0::2] = 2 * half.sin() * half.cos()
    table[:, 1::2] = (1 - 2 * half.sin() ** 2)[:, : d_model // 2]
    return table.float()


# SinusoidalPositionalEncoding


class Tutorial(nn.Module):
    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        self.register_buffer("pe", by_exp(max_len, d_model).unsqueeze(0), persistent=False)

    def forward(self, x):
        _, T, C = x.shape
        if T > self.pe.size(1):
            raise ValueError("Sequence length exceeds max_len")
        if C != self.pe.size(-1):
            raise ValueError("Wrong width")
        total = x + self.pe[:, :T].requires_grad_(False)
        return self.dropout(total).type(x.dtype)


class CastsTheSum(nn.Module):
    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        self.d_model, self.max_len, self.p = d_model, max_len, dropout
        self.register_buffer("pe", by_columns(max_len, d_model).view(1, max_len, d_model))

    def forward(self, inputs, /):
        length, width = inputs.size(1), inputs.size(2)
        if not (length <= self.max_len and width == self.d_model):
            raise ValueError(f"x has {length} tokens of width {width}")
        total = torch.add(inputs, self.pe.narrow(1, 0, length)).to(inputs.dtype)
        return F.dropout(total, self.p, self.training)


class WideBuffer(nn.Module):
    """A float64 table, looked up by index."""

    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        self.register_buffer("pe", by_stacking(max_len, d_model)[None].double())
        self.drop = nn.Dropout(dropout) if dropout > 0 else nn.Identity()

    def forward(self, x):
        _, most, width = self.pe.shape
        if x.shape[-1] != width:
            raise ValueError("width")
        if x.shape[-2] > most:
            raise ValueError("length")
        rows = self.pe[0, torch.arange(x.shape[-2], device=x.device)]
        return self.drop((x + rows.expand(x.shape[0], -1, -1)).to(dtype=x.dtype))


class TooLongError(ValueError):
    pass


class Inherits(nn.Dropout):
    """The module is its own dropout."""

    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__(dropout)
        self.register_buffer("scratch", torch.zeros(1))
        self.register_buffer("pe", by_phase(max_len, d_model).reshape(1, max_len, -1))

    def forward(self, x):
        rows = self.pe[:, : x.shape[1]]
        if rows.shape[1:] != x.shape[1:]:
            raise TooLongError("does not fit")
        return super().forward(x.clone().add_(rows))


class ChoosesRows(nn.Module):
    """Rows chosen by a condition on their numbers, dropout as a layer of a longer chain."""

    def __init__(self, d_model, max_len=4096, dropout=0.0, base=10000):
        super().__init__()
        self.register_buffer("pe", torch.stack([by_half_angles(max_len, d_model)]))
        self.tail = nn.Sequential(nn.Identity(), nn.Dropout(dropout, inplace=True))

    def forward(self, x, scale=1.0):
        most, width = self.pe.shape[1:]
        if x.shape[1] > most or x.shape[2] != width:
            raise ValueError
        chosen = torch.arange(most, device=x.device) < x.shape[1]
        return self.tail(torch.add(x * scale, self.pe[:, chosen].to(x)))


def made_by_a_function(d_model, max_len=4096, dropout=0.0):
    return CastsTheSum(d_model, max_len=max_len, dropout=dropout)


# LearnedPositionalEncoding


class ByWeight(nn.Module):
    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.position_embedding = nn.Embedding(max_len, d_model)
        nn.init.normal_(self.position_embedding.weight, std=0.02)

    def forward(self, x):
        T = x.size(1)
        if T > self.position_embedding.weight.shape[0]:
            raise ValueError("too long")
        return self.dropout(x + self.position_embedding.weight[:T])


class WithPositions(nn.Module):
    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        self.position_embedding = nn.Embedding(num_embeddings=max_len, embedding_dim=d_model)
        self.register_buffer("positions", torch.arange(max_len)[None], persistent=False)
        self.p = dropout

    def forward(self, x):
        B, T, _ = x.shape
        if T > self.positions.shape[1]:
            raise ValueError("too long")
        rows = self.position_embedding(self.positions[:, :T].expand(B, T))
        return F.dropout(rows + x, p=self.p, training=self.training).to(x.dtype)


class FromZeros(nn.Module):
    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        self.max_len = max_len
        self.position_embedding = nn.Embedding(max_len, d_model)
        nn.init.zeros_(self.position_embedding.weight)
        self.drop = nn.Identity() if dropout == 0 else nn.Dropout(dropout)

    def forward(self, x):
        if self.max_len < x.shape[1]:
            raise TooLongError(x.shape)
        places = torch.ones(x.shape[:2], dtype=torch.long, device=x.device).cumsum(1) - 1
        return self.drop(torch.add(F.embedding(places, self.position_embedding.weight), x))


class ByOneHot(nn.Module):
    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        self.position_embedding = nn.Embedding(max_len, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        table = self.position_embedding.weight
        if x.shape[1] > len(table):
            raise ValueError
        chosen = torch.eye(x.shape[1], len(table), device=table.device, dtype=table.dtype)
        return self.dropout(x + chosen @ table)


class BeginsWithSinusoids(nn.Module):
    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        self.position_embedding = nn.Embedding.from_pretrained(
            by_columns(max_len, d_model), freeze=False
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        numbers = torch.arange(x.shape[1], device=x.device, dtype=torch.int32)
        if len(numbers) > len(self.position_embedding.weight):
            raise ValueError("too long")
        return self.dropout(self.position_embedding(numbers).unsqueeze(0).expand_as(x).add(x))


class Rebuilt(nn.Module):
    """The sum put together token by token."""

    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        self.position_embedding = nn.Embedding(max_len, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        if x.shape[1] > self.position_embedding.num_embeddings:
            raise ValueError("more tokens than positions")
        tokens = [
            x[:, t] + self.position_embedding(torch.tensor(t, device=x.device))
            for t in range(x.shape[1])
        ]
        return self.dropout(torch.stack(tokens, 1))


# apply_rope


def refuse_odd(x):
    if x.shape[-1] % 2 != 0:
        raise ValueError("D must be even")


def by_complex(x, positions, base=10000.0):
    refuse_odd(x)
    half = x.shape[-1] // 2
    frequencies = 1.0 / base ** (torch.arange(0, half, device=x.device).float() / half)
    turns = torch.polar(
        torch.ones(len(positions), half, device=x.device),
        torch.outer(positions.float(), frequencies),
    )
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], half, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


def by_rotate_every_two(x, positions, base=10000.0):
    refuse_odd(x)
    width = x.shape[-1]
    inverse = 1.0 / (base ** (torch.arange(0, width, 2, dtype=torch.float32) / width))
    angle = torch.einsum("t,f->tf", positions.float(), inverse.to(x.device))
    angle = angle.repeat_interleave(2, dim=-1)[None, None]
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    # The arithmetic is x's own; the angles were float32.
    return x * angle.cos().to(x.dtype) + turned * angle.sin().to(x.dtype)


def by_matrices(x, positions, base=10000.0):
    refuse_odd(x)
    width = x.shape[-1]
    i = torch.arange(width // 2, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * torch.pow(
        torch.tensor(float(base), device=x.device), -2 * i / width
    )
    cos, sin = angle.cos(), angle.sin()
    matrices = torch.stack([cos, -sin, sin, cos], -1).unflatten(-1, (2, 2))
    pairs = x.double().unflatten(-1, (-1, 2))
    return torch.einsum("tpij,bhtpj->bhtpi", matrices, pairs).flatten(-2).to(x.dtype)


def by_block_diagonal(x, positions, base=10000.0):
    refuse_odd(x)
    turned = []
    for t in range(x.shape[2]):
        blocks = []
        for i in range(x.shape[3] // 2):
            angle = positions[t].double() * base ** (-2 * i / x.shape[3])
            cos, sin = angle.cos(), angle.sin()
            blocks.append(torch.stack([torch.stack([cos, -sin]), torch.stack([sin, cos])]))
        matrix = torch.block_diag(*blocks)
        turned.append(x[:, :, t].double() @ matrix.T)
    return torch.stack(turned, 2).to(x.dtype)


def by_table(x, positions, base=10000.0):
    refuse_odd(x)
    width = x.size(-1)
    frequencies = torch.exp(
        -math.log(base) * torch.arange(0, width, 2, device=x.device, dtype=torch.float32) / width
    )
    places = torch.arange(int(positions.max()) + 1, device=x.device)
    table = places[:, None] * frequencies
    cos, sin = table.cos()[positions], table.sin()[positions]
    even, odd = x.float().unflatten(-1, (width // 2, 2)).unbind(-1)
    out = torch.empty(x.shape, device=x.device, dtype=torch.float32)
    out[..., 0::2] = even * cos - odd * sin
    out[..., 1::2] = odd * cos + even * sin
    return out.to(x.dtype)


def by_halves(x, positions, base=10000.0):
    """The half-split convention on permuted features."""
    refuse_odd(x)
    width = x.shape[-1]
    order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)]).to(x.device)
    frequency = base ** -(torch.arange(width // 2, device=x.device) / (width // 2))
    angle = torch.cat([positions.unsqueeze(1) * frequency] * 2, dim=1)
    halves = x[..., order]
    a, b = halves.chunk(2, dim=-1)
    result = halves * angle.cos() + torch.cat([-b, a], dim=-1) * angle.sin()
    return result[..., order.argsort()].to(x.dtype)


def by_own_memory(x, positions, base=10000.0):
    refuse_odd(x)
    out = x.to(torch.float64) if x.dtype != torch.float64 else x.clone()
    for i in range(x.shape[-1] // 2):
        angle = (positions.double() / base ** (2 * i / x.shape[-1])).view(1, 1, -1)
        a, b = out[..., 2 * i].clone(), out[..., 2 * i + 1].clone()
        out[..., 2 * i] = a * torch.cos(angle) - b * torch.sin(angle)
        out[..., 2 * i + 1] = a * torch.sin(angle) + b * torch.cos(angle)
    return out.to(x.dtype)


def by_swapping(x, positions, base=10000.0):
    """x · cos + (x @ J) · sin, J the matrix that takes (a, b) to (-b, a)."""
    refuse_odd(x)
    quarter = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], device=x.device, dtype=x.dtype)
    swap = torch.kron(torch.eye(x.shape[-1] // 2, device=x.device, dtype=x.dtype), quarter)
    column = torch.arange(x.shape[-1], device=x.device)
    angle = positions[:, None] * float(base) ** (-(column - column % 2) / x.shape[-1])
    return (x * angle.cos() + (x @ swap) * angle.sin()).to(x.dtype)


def by_length_and_angle(x, positions, base=10000.0):
    refuse_odd(x)
    a, b = x.double()[..., ::2], x.double()[..., 1::2]
    i = torch.arange(a.shape[-1], device=x.device)
    angle = torch.atan2(b, a) + positions[:, None] * float(base) ** (-2.0 * i / x.shape[-1])
    length = torch.hypot(a, b)
    return torch.stack([length * angle.cos(), length * angle.sin()], -1).flatten(-2).to(x)


# alibi_bias


def get_slopes(n):
    def of_a_power(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n).is_integer():
        return of_a_power(n)
    closest = 2 ** math.floor(math.log2(n))
    return of_a_power(closest) + get_slopes(2 * closest)[0::2][: n - closest]


def by_recursion(num_heads, length):
    context = torch.arange(length)[:, None]
    memory = torch.arange(length)[None, :]
    distance = torch.abs(memory - context).unsqueeze(0).expand(num_heads, -1, -1)
    return torch.tensor(get_slopes(num_heads)).view(-1, 1, 1) * -distance


def by_the_next_power(num_heads, length):
    power = 2 ** math.ceil(math.log2(num_heads))
    slopes = 2.0 ** -(torch.arange(1, power + 1) * 8.0 / power)
    if power != num_heads:
        slopes = torch.cat([slopes[1::2], slopes[::2]])[:num_heads]
    line = torch.arange(length).float()
    return torch.einsum("h,ij->hij", -slopes, torch.cdist(line[:, None], line[:, None], p=1))


def by_nested_loops(num_heads, length):
    slopes = get_slopes(num_heads)
    bias = torch.zeros(num_heads, length, length)
    for h in range(num_heads):
        for i in range(length):
            for j in range(length):
                bias[h, i, j] = -slopes[h] * abs(i - j)
    return bias


def by_arrays(num_heads, length):
    power = 1
    while 2 * power <= num_heads:
        power *= 2
    first = numpy.exp2(-8 * numpy.arange(1, power + 1) / power)
    rest = numpy.exp2(-4 * numpy.arange(1, 2 * power, 2) / power)
    slopes = numpy.concatenate([first, rest])[:num_heads]
    distance = numpy.abs(numpy.subtract.outer(numpy.arange(length), numpy.arange(length)))
    return torch.from_numpy(-slopes[:, None, None] * distance).float()


def by_two_triangles(num_heads, length):
    below = (torch.arange(length).unsqueeze(1) - torch.arange(length)).clamp(min=0)
    distance = torch.maximum(below, below.T)
    slopes = torch.tensor(get_slopes(num_heads), dtype=torch.float64)
    return (-distance.repeat(num_heads, 1, 1) * slopes.reshape(num_heads, 1, 1)).float()


def by_sliding_window(num_heads, length):
    line = torch.arange(1 - length, length).abs()
    slopes = [2.0 ** -(8 * h / 128) for h in range(1, 129)]
    power = 1 << (num_heads.bit_length() - 1)
    step = 128 // power
    chosen = slopes[step - 1 :: step] + slopes[step // 2 - 1 :: step] if power < 128 else slopes
    heads = torch.tensor(chosen[:num_heads]).reshape(-1, 1, 1)
    return line.unfold(0, length, 1).flip(0).mul(-heads)


tables = [
    by_exp,
    by_loops,
    by_columns,
    by_stacking,
    by_phase,
    by_numpy,
    by_turning,
    by_columns_one_at_a_time,
    by_half_angles,
]
STYLES = {
    "sinusoidal_table": tables,
    "SinusoidalPositionalEncoding": [
        Tutorial,
        CastsTheSum,
        WideBuffer,
        Inherits,
        ChoosesRows,
        made_by_a_function,
    ],
    "LearnedPositionalEncoding": [
        ByWeight,
        WithPositions,
        FromZeros,
        ByOneHot,
        BeginsWithSinusoids,
        Rebuilt,
    ],
    "apply_rope": [
        by_complex,
        by_rotate_every_two,
        by_matrices,
        by_block_diagonal,
        by_table,
        by_halves,
        by_own_memory,
        by_swapping,
        by_length_and_angle,
    ],
    "alibi_bias": [
        by_recursion,
        by_the_next_power,
        by_nested_loops,
        by_arrays,
        by_two_triangles,
        by_sliding_window,
    ],
    "positions_quiz": [{1: "C", 2: " a", 3: "d", 4: "B", 5: "c", 6: "a", 7: "x"}],
}
