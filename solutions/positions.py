"""Lesson 04: four ways to tell a transformer where a token stands."""

import torch
from torch import nn


def sinusoidal_table(length, d_model):
    """Row t holds sin(t · f) on even and cos(t · f) on odd columns, f = 10000^(-2i/C) for pair i.

    Returns (T, C), float32; for an odd C the last column is a sine. Source: Vaswani and others,
    "Attention Is All You Need", 2017.
    """
    ### BEGIN SOLUTION
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    position = torch.arange(length, dtype=torch.float64)
    angles = position[:, None] * 10000.0 ** (-even / d_model)  # (T, number of sines)
    table = torch.zeros(length, d_model, dtype=torch.float32)
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles[:, : d_model // 2])
    return table
    ### END SOLUTION


class SinusoidalPositionalEncoding(nn.Module):
    """Adds row t of the sinusoidal table to token t, then applies dropout.

    x (B, T, C), and so is the result, in x's dtype. The table is the buffer `pe`, (1, max_len, C).
    ValueError where T is past `max_len` or the width is another.
    """

    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.pe: torch.Tensor
        self.register_buffer("pe", sinusoidal_table(max_len, d_model)[None])
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        length, width = x.shape[-2:]
        if length > self.pe.shape[1] or width != self.pe.shape[2]:
            raise ValueError(f"x is {tuple(x.shape)}, the table is {tuple(self.pe.shape)}")
        return self.dropout(x + self.pe[:, :length].to(x.dtype))
        ### END SOLUTION


class LearnedPositionalEncoding(nn.Module):
    """Adds row t of a trained table to token t, then applies dropout.

    x (B, T, C), and so is the result. The table is `position_embedding`, an nn.Embedding of
    `max_len` rows. ValueError where T is past `max_len`.
    """

    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.position_embedding = nn.Embedding(max_len, d_model)
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        length = x.shape[1]
        if length > self.position_embedding.num_embeddings:
            raise ValueError(f"{length} tokens, {self.position_embedding.num_embeddings} positions")
        positions = torch.arange(length, device=x.device)
        return self.dropout(x + self.position_embedding(positions))
        ### END SOLUTION


def apply_rope(x, positions, base=10000.0):
    """Turn the pair (x[2i], x[2i+1]) of each token by position · base^(-2i/D), in radians.

    x (B, H, T, D), positions (T,) integers; returns (B, H, T, D) in x's dtype. ValueError for an
    odd D. Source: Su and others, "RoFormer", 2021.
    """
    ### BEGIN SOLUTION
    width = x.shape[-1]
    if width % 2:
        raise ValueError(f"the features are turned in pairs, and there are {width}")
    wide = torch.promote_types(x.dtype, torch.float32)
    even = torch.arange(0, width, 2, device=x.device, dtype=wide)
    angles = positions[:, None].to(wide) * base ** (-even / width)  # (T, D/2)
    a, b = x[..., 0::2], x[..., 1::2]
    turned = (a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos())
    return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)
    ### END SOLUTION


def alibi_bias(num_heads, length):
    """Minus slope times distance, for each head: what is added to attention scores.

    Returns (H, T, T), float32. The slopes are 2^(-8h/H), h = 1…H, where H is a power of two.
    Otherwise they are those of the next lower power P, then every other one of 2P's, from its
    first. Source: Press, Smith and Lewis, "Train Short, Test Long", 2021.
    """
    ### BEGIN SOLUTION
    power = 2 ** (num_heads.bit_length() - 1)
    exponents = [8 * h / power for h in range(1, power + 1)]
    exponents += [4 * h / power for h in range(1, 2 * power + 1, 2)][: num_heads - power]
    slopes = 0.5 ** torch.tensor(exponents, dtype=torch.float32)
    position = torch.arange(length, dtype=torch.float32)
    distance = (position[:, None] - position).abs()
    return -slopes[:, None, None] * distance
    ### END SOLUTION


# Put one letter for each question, for example 1: "a".
positions_quiz = {1: "", 2: "", 3: "", 4: "", 5: "", 6: ""}
### BEGIN SOLUTION
positions_quiz = {1: "c", 2: "a", 3: "d", 4: "b", 5: "c", 6: "a"}
### END SOLUTION
