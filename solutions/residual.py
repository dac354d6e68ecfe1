"""Lesson 03: residual connections, where their norm stands, and what gradients pass them."""

import torch
from torch import nn


def residual(x, update):
    """x + update, for two tensors of one shape with any number of axes.

    ValueError where the shapes differ, since broadcasting would hide it; its message holds both.
    """
    ### BEGIN SOLUTION
    if x.shape != update.shape:
        raise ValueError(f"x has shape {tuple(x.shape)}, its update {tuple(update.shape)}")
    return x + update
    ### END SOLUTION


class PreNormResidual(nn.Module):
    """x + dropout(branch(norm(x))), for x (..., width).

    `branch` is a module that keeps the shape; further arguments of a call go to it. Source:
    Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
    """

    def __init__(self, width, branch, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.norm = nn.LayerNorm(width)
        self.branch = branch
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x, *args, **kwargs):
        ### BEGIN SOLUTION
        return residual(x, self.dropout(self.branch(self.norm(x), *args, **kwargs)))
        ### END SOLUTION


class PostNormResidual(nn.Module):
    """norm(x + dropout(branch(x))), for x (..., width).

    `branch` is a module that keeps the shape; further arguments of a call go to it. Source:
    Vaswani et al., "Attention Is All You Need", 2017.
    """

    def __init__(self, width, branch, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.norm = nn.LayerNorm(width)
        self.branch = branch
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x, *args, **kwargs):
        ### BEGIN SOLUTION
        return self.norm(residual(x, self.dropout(self.branch(x, *args, **kwargs))))
        ### END SOLUTION


def gradient_report(model, x):
    """{parameter's name: L2 norm of its gradient}, for one backward pass of the mean square.

    The loss is `model(x).square().mean()`, in the mode the model is in. Norms are floats, None
    where no gradient arrived. `.grad` and modes stay as they were. ValueError names the first
    parameter whose gradient is not finite.
    """
    ### BEGIN SOLUTION
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    loss = model(x).square().mean()
    found = {}
    if loss.requires_grad:
        # Unlike loss.backward(), this writes into no .grad.
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        found = dict(zip(trained, gradients, strict=True))
    report = {}
    for name, _ in model.named_parameters():
        gradient = found.get(name)
        if gradient is not None and not gradient.isfinite().all():
            raise ValueError(f"the gradient of {name} is not finite")
        report[name] = None if gradient is None else gradient.double().norm().item()
    return report
    ### END SOLUTION


# Put one letter for each question, for example 1: "a".
residual_quiz = {1: "", 2: "", 3: "", 4: "", 5: "", 6: ""}
### BEGIN SOLUTION
residual_quiz = {1: "c", 2: "a", 3: "d", 4: "b", 5: "d", 6: "a"}
### END SOLUTION
