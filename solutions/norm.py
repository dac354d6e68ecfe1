"""Lesson 01: layer normalization and RMS normalization, written as arithmetic."""

import torch
from torch import nn


def layer_norm(x, scale, shift, eps=1e-5):
    """(x - mean) / sqrt(variance + eps) * scale + shift, over the last axis.

    x (..., C), scale (C,), shift (C,); returns (..., C) in x's dtype and on its device.
    The variance divides by C. Source: Ba, Kiros and Hinton, "Layer Normalization", 2016;
    equals `torch.nn.functional.layer_norm`.
    """
    ### BEGIN SOLUTION
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred / torch.sqrt(variance + eps) * scale + shift
    ### END SOLUTION


class ManualLayerNorm(nn.Module):
    """Layer normalization over the last axis, with a trainable `weight` and `bias`.

    width is C; the input is (..., C) and so is the output. Equals `torch.nn.LayerNorm`.
    """

    def __init__(self, width, eps=1e-5):
        super().__init__()
        ### BEGIN SOLUTION
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        return layer_norm(x, self.weight, self.bias, self.eps)
        ### END SOLUTION


def rms_norm(x, scale, eps=1e-6):
    """x / sqrt(mean of squares + eps) * scale, over the last axis.

    x (..., C), scale (C,); returns (..., C) in x's dtype and on its device. No mean is
    subtracted. Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019;
    equals `torch.nn.functional.rms_norm`.
    """
    ### BEGIN SOLUTION
    mean_square = x.square().mean(dim=-1, keepdim=True)
    return x / torch.sqrt(mean_square + eps) * scale
    ### END SOLUTION


class RMSNorm(nn.Module):
    """RMS normalization over the last axis, with a trainable `weight`.

    width is C. The mean of squares is taken in float32 or wider, and the result has the input's
    dtype whatever the weight's. Equals `torch.nn.RMSNorm` where the dtypes agree.
    """

    def __init__(self, width, eps=1e-6):
        super().__init__()
        ### BEGIN SOLUTION
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return rms_norm(wide, self.weight, self.eps).to(x.dtype)
        ### END SOLUTION


# Put one letter for each question, for example 1: "a".
norm_quiz = {1: "", 2: "", 3: "", 4: "", 5: "", 6: ""}
### BEGIN SOLUTION
norm_quiz = {1: "b", 2: "d", 3: "a", 4: "c", 5: "b", 6: "d"}
### END SOLUTION
