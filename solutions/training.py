"""Lesson 08: the loss, the step, the measure, and writing one token after another."""

import torch
from torch import nn
from torch.nn import functional as F


def next_token_loss(logits, token_ids, pad_id=0):
    """The mean cost of guessing each next token: cross-entropy in nats, padding not counted.

    logits (B, T, V) for token_ids (B, T): those at place t are for the token at t + 1. Returns a
    tensor without axes.
    """
    ### BEGIN SOLUTION
    guesses, targets = logits[:, :-1], token_ids[:, 1:]
    return F.cross_entropy(guesses.transpose(1, 2), targets, ignore_index=pad_id)
    ### END SOLUTION


def train_step(model, token_ids, optimizer, max_norm=1.0):
    """One step of learning from token_ids (B, T); returns the loss before it, a float.

    All gradients of the model together are cut down to the length `max_norm` where they are longer.
    """
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    loss = next_token_loss(model(token_ids), token_ids)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return loss.item()
    ### END SOLUTION


def evaluate_loss(model, batches):
    """The mean cost of a target over all `batches`, id tensors (B, T), in eval mode; a float.

    Every submodule's mode is afterwards what it was.
    """
    ### BEGIN SOLUTION
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for token_ids in batches:
            counted = (token_ids[:, 1:] != 0).sum().item()
            if counted:  # the mean of no targets is NaN
                total += next_token_loss(model(token_ids), token_ids).item() * counted
                count += counted
    for module, mode in modes:
        module.training = mode
    return total / count
    ### END SOLUTION


def sample_next(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """Draw a token for each row of logits (B, V); returns (B,) ids.

    The logits are divided by `temperature` (0: take the largest), then all but the `top_k` most
    likely tokens are left out, then all but the smallest set whose share of what is left reaches
    `top_p`. Source: Holtzman and others, "The Curious Case of Neural Text Degeneration", 2019.
    """
    ### BEGIN SOLUTION
    if temperature == 0:
        return logits.argmax(dim=-1)
    shares, ids = torch.softmax(logits / temperature, dim=-1).sort(dim=-1, descending=True)
    if top_k is not None:
        shares = shares[:, :top_k] / shares[:, :top_k].sum(dim=-1, keepdim=True)
    if top_p is not None:
        left_out = shares.cumsum(dim=-1) - shares >= top_p  # those before it reach p already
        left_out[:, 0] = False
        shares = shares.masked_fill(left_out, 0.0)
    places = torch.multinomial(shares, 1, generator=generator)  # (B, 1), and it renormalizes
    return ids.gather(1, places)[:, 0]
    ### END SOLUTION


@torch.no_grad()
def generate(model, prompt_ids, max_new_tokens, *, use_cache=True, temperature=0.0, generator=None):
    """Write `max_new_tokens` tokens behind prompt_ids (B, T), one after another, in eval mode.

    model(ids, caches=..., use_cache=True) returns logits and caches, as DecoderOnlyLM does. Returns
    (B, T + max_new_tokens) ids.
    """
    ### BEGIN SOLUTION
    training = model.training
    model.eval()
    ids, new, caches = prompt_ids, prompt_ids, None
    for _ in range(max_new_tokens):
        if use_cache:
            logits, caches = model(new, caches=caches, use_cache=True)
        else:
            logits = model(ids)
        new = sample_next(logits[:, -1], temperature, generator=generator)[:, None]  # (B, 1)
        ids = torch.cat([ids, new], dim=1)
    model.train(training)
    return ids
    ### END SOLUTION


# Put one letter for each question, for example 1: "a".
training_quiz = {1: "", 2: "", 3: "", 4: "", 5: "", 6: "", 7: ""}
### BEGIN SOLUTION
training_quiz = {1: "b", 2: "d", 3: "a", 4: "c", 5: "d", 6: "b", 7: "c"}
### END SOLUTION
