"""Lesson 02: the feed-forward network, a private computation per position."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def gelu(x):
    """x times the normal CDF at x: x / 2 * (1 + erf(x / sqrt(2))), number by number.

    Returns x's shape, dtype and device. Source: Hendrycks and Gimpel, "Gaussian Error Linear
    Units", 2016; equals `torch.nn.functional.gelu`.
    """
    ### BEGIN SOLUTION
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    ### END SOLUTION


def gelu_tanh(x):
    """The tanh form of GELU: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).

    Returns x's shape, dtype and device. Source: Hendrycks and Gimpel, 2016; equals
    `torch.nn.functional.gelu(x, approximate="tanh")`.
    """
    ### BEGIN SOLUTION
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))
    ### END SOLUTION


class FeedForward(nn.Module):
    """Dropout(output_projection(Dropout(GELU(input_projection(x))))), at each position alone.

    x (B, T, d_model); returns the same shape. Source: Vaswani and others, "Attention Is All You
    Need", 2017, with GELU in the place of ReLU.
    """

    def __init__(self, d_model, hidden_dim, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.input_projection = nn.Linear(d_model, hidden_dim)
        self.output_projection = nn.Linear(hidden_dim, d_model)
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        hidden = self.dropout(F.gelu(self.input_projection(x)))  # (B, T, hidden_dim)
        return self.dropout(self.output_projection(hidden))
        ### END SOLUTION


class SwiGLU(nn.Module):
    """output_projection(SiLU(gate_projection(x)) * up_projection(x)), without biases.

    x (B, T, d_model); returns the same shape. Source: Shazeer, "GLU Variants Improve
    Transformer", 2020.
    """

    def __init__(self, d_model, hidden_dim):
        super().__init__()
        ### BEGIN SOLUTION
        self.gate_projection = nn.Linear(d_model, hidden_dim, bias=False)
        self.up_projection = nn.Linear(d_model, hidden_dim, bias=False)
        self.output_projection = nn.Linear(hidden_dim, d_model, bias=False)
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        hidden = F.silu(self.gate_projection(x)) * self.up_projection(x)  # (B, T, hidden_dim)
        return self.output_projection(hidden)
        ### END SOLUTION


def feed_forward_parameters(d_model, hidden_dim, bias=True):
    """How many numbers a FeedForward trains: two matrices and, with `bias`, two biases."""
    ### BEGIN SOLUTION
    weights = 2 * d_model * hidden_dim
    return weights + hidden_dim + d_model if bias else weights
    ### END SOLUTION


def attention_parameters(d_model, bias=True):
    """How many numbers attention trains: four square projections, with `bias` a bias each."""
    ### BEGIN SOLUTION
    weights = 4 * d_model * d_model
    return weights + 4 * d_model if bias else weights
    ### END SOLUTION


# Put one letter for each question, for example 1: "a".
ffn_quiz = {1: "", 2: "", 3: "", 4: "", 5: "", 6: ""}
### BEGIN SOLUTION
ffn_quiz = {1: "c", 2: "b", 3: "d", 4: "a", 5: "b", 6: "c"}
### END SOLUTION
