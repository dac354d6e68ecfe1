"""Right answers of lesson 03 in other styles than the reference's. All must get full marks."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

# residual


def by_torch_add(x, update):
    if tuple(x.shape) != tuple(update.shape):
        raise ValueError(f"cannot add {x.shape} and {update.shape}")
    return torch.add(x, update)


def by_clone(x, update):
    if list(x.size()) != list(update.size()):
        raise ValueError("update has shape " + str(list(update.shape)) + f", x {list(x.shape)}")
    out = x.clone()
    out += update
    return out


def by_stack(x, update):
    same = x.dim() == update.dim() and list(map(int, x.shape)) == list(map(int, update.shape))
    if not same:
        raise ShapeError(x.shape, update.shape)
    return torch.stack([x, update]).sum(0)


class ShapeError(ValueError):
    pass


def by_einsum(x, update):
    if not x.shape == update.shape:
        message = "Shapes differ: "
        message += str(x.shape) + " and " + str(update.shape)
        raise ValueError(message)
    return torch.einsum("...->...", x) + torch.einsum("...->...", update)


def by_wide(x, update):
    try:
        assert x.shape == update.shape
    except AssertionError:
        raise ValueError(f"{tuple(x.shape)=} {tuple(update.shape)=}") from None
    return (x.double() + update.double()).to(x.dtype)


def by_loop(x, update):
    if x.shape != update.shape:
        raise ValueError(f"expected {list(x.shape)}, got {list(update.shape)}")
    flat = [a + b for a, b in zip(x.reshape(-1), update.reshape(-1), strict=True)]
    return torch.stack(flat).reshape(x.shape)


def by_addcmul(x, update):
    if x.dim() != update.dim() or any(map(int.__ne__, x.shape, update.shape)):
        raise ValueError("these differ", x.shape, update.shape)
    return torch.addcmul(x, update, torch.ones_like(update))


# PreNormResidual, PostNormResidual


class PreInOneLine(nn.Module):
    def __init__(self, width, branch, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        self.branch = branch
        self.norm = nn.LayerNorm((width,))

    def forward(self, hidden, *extra, **named):
        return hidden + self.dropout(self.branch(self.norm(hidden), *extra, **named))


class PreByHand(nn.Module):
    """The norm's weights used by hand, dropout through F, an own buffer."""

    def __init__(self, width, branch, dropout=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-5, elementwise_affine=True, bias=True)
        self.add_module("branch", branch)
        self.add_module("dropout", nn.Dropout(dropout))
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x, *args, **kwargs):
        normed = F.layer_norm(x, (x.shape[-1],), self.norm.weight, self.norm.bias, self.norm.eps)
        update = self.branch(normed, *args, **kwargs)
        update = F.dropout(update, p=self.dropout.p, training=self.training)
        if update.shape != x.shape:
            raise ValueError((update.shape, x.shape))
        return torch.add(update, x)


class Base(nn.Module):
    def __init__(self, width, branch, dropout=0.0):
        super().__init__()
        self.norm, self.branch, self.dropout = nn.LayerNorm(width), branch, nn.Dropout(dropout)

    def sub(self, x, args, kwargs):
        return self.dropout(self.branch(x, *args, **kwargs))


class PreFromBase(Base):
    def forward(self, x, /, *args, **kwargs):
        return self.sub(self.norm(x), args, kwargs) + x


class PostFromBase(Base):
    def forward(self, x, /, *args, **kwargs):
        return self.norm(self.sub(x, args, kwargs) + x)


class PreSteps(Base):
    def forward(self, x, *args, **kwargs):
        shortcut = x
        x = self.norm(x)
        x = self.branch(x, *args, **kwargs)
        x = self.dropout(x)
        return by_wide(shortcut, x)


class PostSteps(Base):
    def forward(self, x, *args, **kwargs):
        shortcut = x
        x = self.branch(x, *args, **kwargs)
        x = self.dropout(x)
        x = x + shortcut
        return self.norm(x)


class PreResidualWithoutZeroDropout(nn.Module):
    def __init__(self, width, branch, dropout=0.0):
        super().__init__()
        self.width = width
        self.norm = nn.LayerNorm(width)
        self.branch = branch
        self.dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()

    def forward(self, x, *args, **kwargs):
        y = x.clone()
        y += self.dropout(self.branch(self.norm(x), *args, **kwargs))
        return y


class PreWithOwnMask(nn.Module):
    """Dropout drawn by hand, a norm with another eps, a persistent buffer."""

    def __init__(self, width, branch, dropout=0.0, eps=1e-6):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps)
        self.branch = branch
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("kept", torch.tensor(1 - dropout))

    def forward(self, x, *args, **kwargs):
        update = self.branch(self.norm(x), *args, **kwargs)
        if self.training and self.kept < 1:
            mask = torch.rand_like(update) < self.kept
            update = torch.where(mask, update / self.kept.clamp(min=1e-9), 0.0).to(x.dtype)
        return torch.stack((x, update), -1).sum(-1)


class PostByHand(nn.Module):
    def __init__(self, width, branch, dropout=0.0):
        super().__init__()
        self.branch = branch
        self.norm = nn.LayerNorm([width])
        self.dropout = nn.Dropout(dropout, inplace=False)

    def forward(self, x, *args, **kwargs):
        total = torch.stack([x, self.dropout(self.branch(x, *args, **kwargs))]).sum(dim=0)
        return F.layer_norm(total, total.shape[-1:], self.norm.weight, self.norm.bias)


class PostInWide(Base):
    def forward(self, x, *args, **kwargs):
        update = self.sub(x, args, kwargs)
        return self.norm((x.double() + update.double()).type_as(x))


class PostWithOwnStatistics(Base):
    def forward(self, x, *args, **kwargs):
        total = x + self.sub(x, args, kwargs)
        variance, mean = torch.var_mean(total, -1, correction=0, keepdim=True)
        unit = (total - mean) * torch.rsqrt(variance + self.norm.eps)
        return unit * self.norm.weight + self.norm.bias


# gradient_report


def by_backward_and_restoring(model, x):
    before = {name: parameter.grad for name, parameter in model.named_parameters()}
    modes = {module: module.training for module in model.modules()}
    try:
        model.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        report = {}
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            if gradient is None:
                report[name] = None
                continue
            if not torch.isfinite(gradient).all():
                raise ValueError(f"{name}: gradient is not finite")
            report[name] = float(gradient.norm())
        return report
    finally:
        for name, parameter in model.named_parameters():
            parameter.grad = before[name]
        for module, mode in modes.items():
            module.training = mode


def by_clearing(model, x):
    model.zero_grad()
    try:
        model(x).pow(2).mean().backward()
        for name, p in model.named_parameters():
            if p.grad is not None and (p.grad.isnan().any() or p.grad.isinf().any()):
                raise ValueError("non-finite gradient in " + name)
        return {
            name: None if p.grad is None else p.grad.pow(2).sum().sqrt().item()
            for name, p in model.named_parameters()
        }
    finally:
        model.zero_grad()


def by_a_copy(model, x):
    twin = copy.deepcopy(model)
    for p in twin.parameters():
        p.grad = None
    output = twin(x.clone())
    (output * output).mean().backward()
    report = {}
    for name, p in twin.named_parameters():
        if p.grad is not None:
            values = [float(value) for value in p.grad.flatten()]
            if not all(map(math.isfinite, values)):
                raise ValueError(f"gradient of {name!r} is not finite: {values[:3]}")
            report[name] = math.sqrt(sum(value * value for value in values))
        else:
            report[name] = None
    return report


def by_one_at_a_time(model, x):
    loss = F.mse_loss(output := model(x), torch.zeros_like(output))
    report = {}
    for name, p in model.named_parameters():
        if not p.requires_grad:
            report[name] = None
            continue
        (g,) = torch.autograd.grad(loss, p, retain_graph=True, allow_unused=True)
        report[name] = g if g is None else torch.linalg.vector_norm(g).item()
        if g is not None and not math.isfinite(report[name]):
            raise ValueError(f"{name} has a non-finite gradient")
    return report


def by_hooks(model, x):
    caught, hooks = {}, []
    for name, p in model.named_parameters():
        if p.requires_grad:
            hooks.append(p.register_hook(lambda g, name=name: caught.__setitem__(name, g.clone())))
    try:
        torch.mean(model(x) ** 2).backward()
    finally:
        for hook in hooks:
            hook.remove()
        for p in model.parameters():
            p.grad = None
    bad = [n for n, _ in model.named_parameters() if n in caught and not caught[n].isfinite().all()]
    if bad:
        raise ValueError(f"non-finite gradients: {', '.join(bad)}")
    return {
        n: caught[n].norm(p=2).item() if n in caught else None for n, _ in model.named_parameters()
    }


def by_functional_call(model, x):
    leaves = {
        name: p.detach().clone().requires_grad_(p.requires_grad)
        for name, p in model.named_parameters()
    }
    torch.func.functional_call(model, leaves, (x,)).square().mean().backward()
    for name, leaf in leaves.items():
        if leaf.grad is not None and not leaf.grad.isfinite().all():
            raise ValueError(f"`{name}`.grad holds NaN or infinity")
    return {n: None if leaf.grad is None else leaf.grad.norm().item() for n, leaf in leaves.items()}


class Undisturbed:
    """Takes the gradients out of a model, and puts them back."""

    def __init__(self, model):
        self.kept = [(parameter, parameter.grad) for parameter in model.parameters()]

    def __enter__(self):
        for parameter, _ in self.kept:
            parameter.grad = None

    def __exit__(self, *error):
        for parameter, gradient in self.kept:
            parameter.grad = gradient


def by_a_context(model, x):
    report = dict.fromkeys(name for name, _ in model.named_parameters())
    with Undisturbed(model), torch.enable_grad():
        trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
        torch.autograd.backward(model(x).square().mean(), inputs=list(trained.values()))
        arrived = {name: one.grad for name, one in trained.items() if one.grad is not None}
        for name, norm in zip(arrived, torch._foreach_norm(list(arrived.values())), strict=True):
            if not norm.isfinite():
                raise ValueError("not finite", name)
            report[name] = norm.tolist()
    return report


STYLES = {
    "residual": [by_torch_add, by_clone, by_stack, by_einsum, by_wide, by_loop, by_addcmul],
    "PreNormResidual": [
        PreInOneLine,
        PreByHand,
        PreFromBase,
        PreSteps,
        PreResidualWithoutZeroDropout,
        PreWithOwnMask,
        lambda width, branch, dropout=0.0: PreFromBase(width, branch, dropout),
    ],
    "PostNormResidual": [
        PostFromBase,
        PostSteps,
        PostByHand,
        PostInWide,
        PostWithOwnStatistics,
    ],
    "gradient_report": [
        by_backward_and_restoring,
        by_clearing,
        by_a_copy,
        by_one_at_a_time,
        by_hooks,
        by_functional_call,
        by_a_context,
    ],
    "residual_quiz": [{1: "C", 2: " a ", 3: "d", 4: "B", 5: "d", 6: "a", "note": "mine"}],
}
