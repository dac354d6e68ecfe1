"""Right answers of lesson 08 in other styles than the reference's. All must get full marks."""

import contextlib
import copy
import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F

# next_token_loss


def flattened(logits, token_ids, pad_id=0):
    vocabulary = logits.size(-1)
    return F.cross_entropy(
        logits[:, :-1].reshape(-1, vocabulary), token_ids[:, 1:].reshape(-1), ignore_index=pad_id
    )


def by_gather(logits, token_ids, pad_id=0):
    log_shares = logits.log_softmax(dim=-1)[:, :-1]
    targets = token_ids[:, 1:]
    costs = -log_shares.gather(2, targets.unsqueeze(2)).squeeze(2)
    counted = (targets != pad_id).to(logits.dtype)
    return (costs * counted).sum() / counted.sum()


def by_choosing(logits, token_ids, pad_id=0):
    targets = token_ids[:, 1:]
    counted = targets.ne(pad_id)
    return nn.CrossEntropyLoss()(logits[:, :-1][counted], targets[counted])


def by_rows(logits, token_ids, pad_id=0):
    costs = []
    for row, ids in zip(logits, token_ids, strict=True):
        for place in range(len(ids) - 1):
            if ids[place + 1] != pad_id:
                costs.append(torch.logsumexp(row[place], -1) - row[place, ids[place + 1]])
    return torch.stack(costs).mean()


def by_nll(logits, token_ids, pad_id=0):
    shares = F.log_softmax(logits[:, :-1].double(), dim=-1)
    targets = token_ids[:, 1:].clone()
    targets[targets == pad_id] = -100
    return F.nll_loss(shares.mT, targets).to(logits.dtype)


def by_one_hot(logits, token_ids, pad_id=0):
    targets = token_ids[:, 1:]
    weights = (targets != pad_id).to(logits.dtype)
    chosen = F.one_hot(targets, logits.shape[-1]).to(logits.dtype)
    costs = -torch.einsum("btv,btv->bt", logits[:, :-1].log_softmax(-1), chosen)
    return torch.einsum("bt,bt->", costs, weights) / weights.sum()


# train_step


def by_the_model_s_zero_grad(model, token_ids, optimizer, max_norm=1.0):
    model.zero_grad(set_to_none=False)
    logits = model(token_ids)
    loss = by_gather(logits, token_ids)
    before = loss.detach().clone()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(model.parameters()), max_norm, foreach=False)
    optimizer.step()
    return float(before)


def clipped_by_hand(model, token_ids, optimizer, max_norm=1.0):
    optimizer.zero_grad()
    loss = flattened(model(token_ids), token_ids)
    loss.backward()
    total = 0.0
    for one in model.parameters():
        if one.grad is not None:
            total += one.grad.double().pow(2).sum()
    norm = math.sqrt(total)
    if norm > max_norm:
        for one in model.parameters():
            if one.grad is not None:
                one.grad.mul_(max_norm / norm)
    optimizer.step()
    return loss.item()


def by_autograd_grad(model, token_ids, optimizer, max_norm=1.0):
    trained = [one for one in model.parameters() if one.requires_grad]
    loss = by_choosing(model(token_ids), token_ids)
    gradients = torch.autograd.grad(loss, trained)
    norm = torch.cat([one.flatten() for one in gradients]).norm()
    factor = torch.clamp(max_norm / (norm + 1e-12), max=1.0)
    for one, gradient in zip(trained, gradients, strict=True):
        one.grad = gradient * factor
    optimizer.step()
    return loss.tolist()


def by_a_closure(model, token_ids, optimizer, max_norm=1.0):
    def closure():
        optimizer.zero_grad(set_to_none=True)
        loss = by_nll(model.forward(token_ids), token_ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        return loss

    return optimizer.step(closure).item()


def cleared_twice(model, token_ids, optimizer, max_norm=1.0):
    with torch.enable_grad():
        for one in model.parameters():
            one.grad = None
        loss = by_one_hot(model(token_ids), token_ids)
        loss.backward()
        grads = [one.grad for one in model.parameters() if one.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, norm)
        optimizer.step()
        optimizer.zero_grad()
    return loss.cpu().item()


# evaluate_loss


@torch.no_grad()
def by_sums(model, batches):
    modes = {name: one.training for name, one in model.named_modules()}
    try:
        model.eval()
        total, count = 0.0, 0
        for ids in batches:
            targets = ids[:, 1:]
            logits = model(ids)[:, :-1]
            total += F.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=0, reduction="sum"
            ).item()
            count += int((targets != 0).sum())
        return total / count
    finally:
        for name, one in model.named_modules():
            one.training = modes[name]


def on_a_copy(model, batches):
    twin = copy.deepcopy(model).eval()
    costs = []
    with torch.inference_mode():
        for ids in batches:
            costs += each_cost(twin, ids).tolist()
    return sum(costs) / len(costs)


def each_cost(model, ids):
    counted = ids[:, 1:] != 0
    return F.cross_entropy(model(ids)[:, :-1][counted], ids[:, 1:][counted], reduction="none")


@contextlib.contextmanager
def evaluating(model):
    on = [one for one in model.modules() if one.training]
    model.train(False)
    yield
    for one in on:
        one.training = True


def in_a_context(model, batches):
    with evaluating(model), torch.no_grad():
        costs = torch.cat([each_cost(model, ids).double() for ids in batches])
    return costs.mean().item()


def by_generators(model, batches):
    enabled = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    modes = [one.training for one in model.modules()]
    model.eval()
    pairs = [(each_cost(model, ids).sum(), (ids[:, 1:] > 0).sum()) for ids in list(batches)]
    for one, mode in zip(model.modules(), modes, strict=True):
        one.training = mode
    torch.set_grad_enabled(enabled)
    return float(sum(cost for cost, _ in pairs) / sum(count for _, count in pairs))


# sample_next


def by_masks(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0.0:
        return torch.argmax(logits, dim=-1)
    logits = logits / temperature
    if top_k is not None:
        limit = torch.topk(logits, top_k, dim=-1).values[:, -1, None]
        logits = logits.masked_fill(logits < limit, float("-inf"))
    if top_p is not None:
        ordered, places = torch.sort(logits, descending=True)
        sums = ordered.softmax(-1).cumsum(-1)
        out = torch.cat([torch.zeros_like(sums[:, :1], dtype=torch.bool), sums[:, :-1] >= top_p], 1)
        logits = logits.masked_fill(torch.zeros_like(out).scatter(1, places, out), float("-inf"))
    return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)


def by_a_tiny_temperature(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    return by_masks(logits, max(temperature, 1e-5), top_k, top_p, generator)


def drawn_by(choose):
    """The filters in another way, and `choose(shares, generator)`."""

    def function(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
        if not temperature:
            return logits.max(dim=-1).indices
        shares = (logits.double() / temperature).softmax(-1)
        order = shares.argsort(-1, descending=True)
        rank = order.argsort(-1)
        if top_k:
            shares = shares.where(rank < top_k, 0.0)
            shares = shares / shares.sum(-1, keepdim=True)
        if top_p is not None:
            ordered = shares.gather(-1, order)
            before = (ordered.cumsum(-1) - ordered).gather(-1, rank)
            shares = shares.where((before < top_p) | (rank == 0), 0.0)
            shares = shares / shares.sum(-1, keepdim=True)
        return choose(shares, generator)

    return function


def gumbel(shares, generator):
    unit = torch.rand(shares.shape, generator=generator, device=shares.device, dtype=shares.dtype)
    return (shares.log() - (-unit.clamp(min=1e-12).log()).log()).argmax(-1)


def exponential_race(shares, generator):
    return (shares / torch.empty_like(shares).exponential_(generator=generator)).argmax(-1)


def inverse(shares, generator):
    unit = torch.rand(len(shares), 1, generator=generator, device=shares.device, dtype=shares.dtype)
    sums = shares.cumsum(-1)
    return torch.searchsorted(sums, unit * sums[:, -1:], right=True)[:, 0].clamp(
        max=shares.shape[1] - 1
    )


def row_by_row(shares, generator):
    rows = [torch.multinomial(row, 1, generator=generator) for row in shares]
    return torch.cat(rows)


# generate


def by_a_list(
    model, prompt_ids, max_new_tokens, *, use_cache=True, temperature=0.0, generator=None
):
    parts, caches, training = [prompt_ids], None, model.training
    model.eval()
    try:
        with torch.inference_mode():
            for _ in range(max_new_tokens):
                if use_cache:
                    logits, caches = model(parts[-1], None, caches=caches, use_cache=True)
                else:
                    logits = model(torch.cat(parts, -1))
                chosen = by_masks(logits[:, -1, :], temperature, generator=generator)
                parts.append(chosen.unsqueeze(-1))
    finally:
        model.train(training)
    return torch.cat(parts, dim=-1)


def token_by_token(
    model, prompt_ids, max_new_tokens, *, use_cache=True, temperature=0.0, generator=None
):
    """Feeds the prompt one token at a time too."""
    modes = [one.training for one in model.modules()]
    model.train(False)
    ids, caches, fed = prompt_ids.clone(), None, 0
    with torch.no_grad():
        while ids.shape[1] < prompt_ids.shape[1] + max_new_tokens:
            if use_cache:
                for place in range(fed, ids.shape[1]):
                    new = ids[:, place : place + 1]
                    logits, caches = model(new, caches=caches, use_cache=True)
                fed = ids.shape[1]
            else:
                logits = model(ids)
            last = logits.select(1, -1)
            chosen = drawn_by(gumbel)(last, temperature, generator=generator)
            ids = torch.hstack([ids, chosen[:, None]])
    for one, mode in zip(model.modules(), modes, strict=True):
        one.training = mode
    return ids


def into_a_buffer(
    model, prompt_ids, max_new_tokens, *, use_cache=True, temperature=0.0, generator=None
):
    batch, length = prompt_ids.shape
    ids = prompt_ids.new_zeros(batch, length + max_new_tokens)
    ids[:, :length] = prompt_ids
    with evaluating(model):
        caches, begin = None, 0
        for end in range(length, length + max_new_tokens):
            if use_cache:
                logits, caches = model(ids[:, begin:end], caches=caches, use_cache=True)
                begin = end
            else:
                logits, _ = model(ids[:, :end], use_cache=True)
            ids[:, end] = drawn_by(inverse)(
                logits[:, -1].detach(), temperature, generator=generator
            )
    return ids


def step_by_step(
    model, prompt_ids, max_new_tokens, *, use_cache=True, temperature=0.0, generator=None
):
    twin = copy.deepcopy(model).eval().requires_grad_(False)
    ids = prompt_ids
    caches = None
    for step in itertools.count():
        if step == max_new_tokens:
            return ids
        fed = ids if step == 0 or not use_cache else ids[:, -1:]
        if use_cache:
            logits, caches = twin(fed, caches=caches, use_cache=use_cache)
        else:
            logits = twin(fed)
        last = logits[:, -1]
        chosen = last.argmax(-1, keepdim=True)
        if temperature > 0:
            chosen = torch.multinomial((last / temperature).softmax(-1), 1, generator=generator)
        ids = torch.cat((ids, chosen), 1)


def last_fed_too(
    model, prompt_ids, max_new_tokens, *, use_cache=True, temperature=0.0, generator=None
):
    """Feeds each token by itself, the last one too, and keeps the logits for the next step."""
    ids, caches, last = prompt_ids[:, :0], None, None
    with evaluating(model):
        for place in range(prompt_ids.shape[1] + max_new_tokens):
            if place < prompt_ids.shape[1]:
                new = prompt_ids[:, place]
            else:
                new = by_masks(last, temperature, generator=generator)
            ids = torch.cat([ids, new[:, None]], 1)
            if use_cache:
                logits, caches = model(new[:, None], caches=caches, use_cache=True)
            else:
                logits = model(ids)
            last = logits[:, -1].detach()
    return ids


STYLES = {
    "next_token_loss": [flattened, by_gather, by_choosing, by_rows, by_nll, by_one_hot],
    "train_step": [
        by_the_model_s_zero_grad,
        clipped_by_hand,
        by_autograd_grad,
        by_a_closure,
        cleared_twice,
    ],
    "evaluate_loss": [by_sums, on_a_copy, in_a_context, by_generators],
    "sample_next": [
        by_masks,
        by_a_tiny_temperature,
        *map(drawn_by, (gumbel, exponential_race, inverse, row_by_row)),
    ],
    "generate": [by_a_list, token_by_token, into_a_buffer, step_by_step, last_fed_too],
    "training_quiz": [{1: "B", 2: " d", 3: "a", 4: "c", 5: "D", 6: "b", 7: "c", "note": "mine"}],
}
