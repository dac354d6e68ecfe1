"""Known wrong answers of lesson 08, each with the sentence its author should hear."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from autograder.judge import Mistakes
from autograder.judge.quiz import quiz_mistakes
from solutions.training import next_token_loss as right_loss
from solutions.training import sample_next as right_sample

next_token_loss = Mistakes("next_token_loss")
train_step = Mistakes("train_step")
evaluate_loss = Mistakes("evaluate_loss")
sample_next = Mistakes("sample_next")
generate = Mistakes("generate")


# next_token_loss


def loss_of(guesses=slice(None, -1), targets=slice(1, None), **settings):
    """A right loss, but for which places meet, and what is given otherwise."""

    def function(logits, token_ids, pad_id=0):
        said = {"ignore_index": pad_id, **settings}
        return F.cross_entropy(logits[:, guesses].transpose(1, 2), token_ids[:, targets], **said)

    return function


next_token_loss.add(
    "not_shifted",
    "You compared the logits at t with token t, which the model has just read: it learns to copy. "
    "They are for token t + 1: `logits[:, :-1]` meet `token_ids[:, 1:]`.",
    loss_of(slice(None), slice(None)),
    loss_of(slice(None, -1), slice(None, -1)),
    loss_of(slice(1, None), slice(1, None)),
)
next_token_loss.add(
    "shifted_twice",
    "You shifted by two: the logits at t are for token t + 1.",
    loss_of(slice(None, -2), slice(2, None)),
)
next_token_loss.add(
    "shifted_backwards",
    "You shifted the wrong way: the logits at t met token t - 1. They are for the next token.",
    loss_of(slice(1, None), slice(None, -1)),
)


@next_token_loss(
    "You rolled the ids round, so the last logits of a row meet its first token. They have no "
    "target: cut, `logits[:, :-1]` and `token_ids[:, 1:]`."
)
def rolled_round(logits, token_ids, pad_id=0):
    rolled = token_ids.roll(-1, dims=1)
    return F.cross_entropy(logits.transpose(1, 2), rolled, ignore_index=pad_id)


@next_token_loss(
    "You flattened first and shifted then, so the last logits of a row meet the first token of the "
    "next row. Shift each row, then flatten."
)
def rows_run_together(logits, token_ids, pad_id=0):
    flat = token_ids.flatten()[1:]
    return F.cross_entropy(logits.flatten(0, 1)[:-1], flat, ignore_index=pad_id)


@next_token_loss(
    "`F.cross_entropy` looks for the tokens of the vocabulary on axis 1, where you have the "
    "places. Give it `logits.transpose(1, 2)`, (B, V, T), or flatten both."
)
def vocabulary_last(logits, token_ids, pad_id=0):
    return F.cross_entropy(logits[:, :-1], token_ids[:, 1:], ignore_index=pad_id)


@next_token_loss(
    "You reshaped the logits to (B, V, T). That keeps the numbers in a row and mixes places with "
    "tokens: `transpose(1, 2)` swaps the axes."
)
def reshaped_for_transposed(logits, token_ids, pad_id=0):
    B, T, V = logits.shape
    guesses = logits[:, :-1].reshape(B, V, T - 1)
    return F.cross_entropy(guesses, token_ids[:, 1:], ignore_index=pad_id)


@next_token_loss(
    "You took the softmax over the places (`dim=1` of (B, T, V)). The shares of the vocabulary's "
    "tokens at one place sum to 1: take it over the last axis."
)
def softmax_over_the_places(logits, token_ids, pad_id=0):
    shares = logits[:, :-1].log_softmax(1).transpose(1, 2)
    return F.nll_loss(shares, token_ids[:, 1:], ignore_index=pad_id)


next_token_loss.add(
    "padding_counted",
    "You counted padding as a target, so the model would learn to write padding. Leave out the "
    "targets that are `pad_id`.",
    loss_of(ignore_index=-100),
)
next_token_loss.add(
    "summed",
    "You summed the losses of the targets. Take their mean, or the step grows with the batch.",
    loss_of(reduction="sum"),
)
next_token_loss.add(
    "a_loss_for_each",
    "You returned a loss for each target (`reduction='none'`). One number is asked for: their "
    "mean over the counted ones.",
    loss_of(reduction="none"),
    lambda logits, token_ids, pad_id=0: loss_of(reduction="none")(
        logits, token_ids, pad_id
    ).flatten(),
)
next_token_loss.add(
    "labels_smoothed",
    "You smoothed the labels. The plain cross-entropy is asked for.",
    loss_of(label_smoothing=0.1),
)


@next_token_loss(
    "You left out the places whose *input* is padding. It is the target that must not be padding: "
    "compare `token_ids[:, 1:]`."
)
def inputs_left_out(logits, token_ids, pad_id=0):
    counted = token_ids[:, :-1] != pad_id
    return F.cross_entropy(logits[:, :-1][counted], token_ids[:, 1:][counted])


@next_token_loss("You left out 0 whatever `pad_id` is. Compare the targets with `pad_id`.")
def pad_fixed_at_zero(logits, token_ids, pad_id=0):
    return right_loss(logits, token_ids)


def each(logits, token_ids):
    return F.cross_entropy(
        logits[:, :-1].transpose(1, 2), token_ids[:, 1:], reduction="none"
    )  # (B, T - 1)


@next_token_loss(
    "You set the loss of padding to 0 and then took the mean over all places. Divide the sum by "
    "the number of targets that count."
)
def divided_by_all(logits, token_ids, pad_id=0):
    return (each(logits, token_ids) * (token_ids[:, 1:] != pad_id)).mean()


next_token_loss.add(
    "first_column_counted",
    "You divided by the number of ids, the first column among them. That is no target: divide by "
    "`(token_ids[:, 1:] != pad_id).sum()`.",
    lambda logits, token_ids, pad_id=0: each(logits, token_ids).sum() / token_ids.numel(),
)


@next_token_loss(
    "You took the mean of each row and then the mean of the rows, so a token of a short row counts "
    "more. The mean is over all counted targets together."
)
def mean_of_row_means(logits, token_ids, pad_id=0):
    counted = token_ids[:, 1:] != pad_id
    rows = (each(logits, token_ids) * counted).sum(1) / counted.sum(1).clamp(min=1)
    return rows[counted.any(1)].mean()


def from_logits(name, sentence, change):
    next_token_loss.add(
        name,
        sentence,
        lambda logits, token_ids, pad_id=0: right_loss(change(logits), token_ids, pad_id),
    )


from_logits(
    "softmax_first",
    "You took a softmax before the cross-entropy, which takes one itself. The loss can then hardly "
    "move. Give it the logits.",
    lambda logits: logits.softmax(-1),
)
from_logits(
    "always_float32",
    "You returned float32 whatever the logits are. The loss has the dtype of the logits.",
    lambda logits: logits.float(),
)


def of_shares(held_up=0.0, logarithm=torch.log, masked=lambda costs, mask: costs[mask]):
    def function(logits, token_ids, pad_id=0):
        shares = logits[:, :-1].softmax(-1).gather(-1, token_ids[:, 1:, None])[..., 0]
        counts = token_ids[:, 1:] != pad_id
        return -masked(logarithm(shares + held_up), counts).sum() / counts.sum()

    return function


next_token_loss.add(
    "logarithm_of_a_softmax",
    "You took the logarithm of a softmax. Where a share rounds to 0 that is minus infinity, or the "
    "logarithm of what you added to it: use `F.cross_entropy` or `log_softmax`, which never form "
    "the share.",
    *(of_shares(held_up) for held_up in (0.0, 1e-8, 1e-9, 1e-10, 1e-12)),
    of_shares(masked=torch.mul),
)
next_token_loss.add(
    "logarithm_forgotten",
    "You took the share of the right token itself, as `F.nll_loss` of a softmax does. The cost is "
    "minus its logarithm: use `F.cross_entropy`, or `log_softmax`.",
    of_shares(logarithm=torch.clone),
)
next_token_loss.add(
    "gradient_cut",
    "You cut the logits off from their history (`.detach()`, `.data`, `torch.tensor(...)`), so "
    "nothing would be learned.",
    lambda logits, token_ids, pad_id=0: right_loss(logits.detach(), token_ids, pad_id),
    lambda logits, token_ids, pad_id=0: torch.tensor(right_loss(logits, token_ids, pad_id).item()),
)


def of_result(name, sentence, change):
    next_token_loss.add(
        name,
        sentence,
        lambda logits, token_ids, pad_id=0: change(right_loss(logits, token_ids, pad_id)),
    )


of_result(
    "a_float_returned",
    "You returned a float. Then nothing can run backward: return the tensor, without `.item()`.",
    lambda loss: loss.item(),
)
of_result(
    "perplexity",
    "You returned the exponential of the loss, the perplexity. The mean cost itself is asked for.",
    lambda loss: loss.exp(),
)
of_result(
    "in_bits",
    "You divided by ln 2, which gives bits. The natural logarithm is asked for, as torch takes it.",
    lambda loss: loss / math.log(2),
)
of_result("sign_missing", "The sign is wrong: a loss is minus the logarithm.", lambda loss: -loss)


def overwriting(first):
    def function(logits, token_ids, pad_id=0):
        ids = token_ids[:, first:]
        ids[ids == pad_id] = -100
        return F.cross_entropy(logits[:, :-1].transpose(1, 2), token_ids[:, 1:])

    return function


next_token_loss.add(
    "padding_overwritten",
    "You wrote into `token_ids`, which the caller still needs. Use `ignore_index`.",
    overwriting(0),
    overwriting(1),  # a slice is a view
)


@next_token_loss(
    "You made a tensor without `device=`, so it stays on the CPU, and a GPU refuses to mix them."
)
def weights_on_the_cpu(logits, token_ids, pad_id=0):
    weight = torch.ones(logits.shape[-1], dtype=logits.dtype)
    weight[pad_id] = 0
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), token_ids[:, 1:], weight)


# train_step


def clip(model, optimizer, max_norm):
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)


def step_of(clear=True, loss_of=right_loss, clip=clip, result=torch.Tensor.item, default=1.0):
    """A right step, but for what is given otherwise."""

    def function(model, token_ids, optimizer, max_norm=default):
        if clear:
            optimizer.zero_grad()
        loss = loss_of(model(token_ids), token_ids)
        loss.backward()
        clip(model, optimizer, max_norm)
        optimizer.step()
        return result(loss)

    return function


train_step.add(
    "gradients_never_cleared",
    "You never cleared the gradients. `backward` adds to what is in `.grad`, so each step also "
    "goes where the last batches pointed. Call `optimizer.zero_grad()` first.",
    step_of(clear=False),
)


@train_step(
    "You cleared the gradients after the step alone. What was in `.grad` before the first call "
    "still goes into it: clear before `backward`."
)
def cleared_after_the_step(model, token_ids, optimizer, max_norm=1.0):
    loss = step_of(clear=False)(model, token_ids, optimizer, max_norm)
    optimizer.zero_grad()
    return loss


def cleared_before_the_step(model, token_ids, optimizer, max_norm=1.0):
    loss = right_loss(model(token_ids), token_ids)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()


def no_step(model, token_ids, optimizer, max_norm=1.0):
    optimizer.zero_grad()
    loss = right_loss(model(token_ids), token_ids)
    loss.backward()
    return loss.item()


def no_backward(model, token_ids, optimizer, max_norm=1.0):
    optimizer.zero_grad()
    loss = right_loss(model(token_ids), token_ids)
    optimizer.step()
    return loss.item()


train_step.add(
    "nothing_moves",
    "No weight moves. The order is: clear the gradients, `loss.backward()`, which fills them, "
    "clip, and `optimizer.step()`, which reads them. One is missing, or the clearing comes late.",
    cleared_before_the_step,
    no_step,
    no_backward,
)


@train_step("You called `optimizer.step()` twice. One call makes one step.")
def two_steps(model, token_ids, optimizer, max_norm=1.0):
    loss = step_of()(model, token_ids, optimizer, max_norm)
    optimizer.step()
    return loss


@train_step(
    "You stepped by hand with plain gradient descent. How to step is the optimizer's business: "
    "`optimizer.step()`."
)
def stepped_by_hand(model, token_ids, optimizer, max_norm=1.0):
    optimizer.zero_grad()
    loss = right_loss(model(token_ids), token_ids)
    loss.backward()
    clip(model, optimizer, max_norm)
    with torch.no_grad():
        for group in optimizer.param_groups:
            for one in group["params"]:
                if one.grad is not None:
                    one -= group["lr"] * one.grad
    return loss.item()


def clips(name, sentence, *ways):
    train_step.add(name, sentence, *(step_of(clip=way) for way in ways))


def each_tensor(model, optimizer, max_norm):
    for one in model.parameters():
        nn.utils.clip_grad_norm_([one], max_norm)


def scaled(model, optimizer, max_norm):
    found = [one.grad for one in model.parameters() if one.grad is not None]
    norm = nn.utils.get_total_norm(found)
    for gradient in found:
        gradient *= max_norm / norm


def of_the_optimizer(model, optimizer, max_norm):
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], max_norm)


def of_all_with_a_gradient(model, optimizer, max_norm):
    norm = sum(one.grad.square().sum() for one in model.parameters()).sqrt()
    for one in model.parameters():
        one.grad *= (max_norm / norm).clamp(max=1.0)


def in_eval_mode(model, token_ids, optimizer, max_norm=1.0):
    model.eval()
    return step_of()(model, token_ids, optimizer, max_norm)


train_step.add(
    "dropout_switched_off",
    "You switched the model to eval mode, so it trains without dropout. Leave its mode alone.",
    in_eval_mode,
)


def by_hand(length):
    """Clipping by a length that is made from each gradient's own."""

    def way(model, optimizer, max_norm):
        norm = length(
            torch.stack([g.norm() for one in model.parameters() if (g := one.grad) is not None])
        )
        nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, norm)

    return way


def by_the_largest(model, optimizer, max_norm):
    nn.utils.clip_grad_norm_(model.parameters(), max_norm, norm_type=math.inf)


def clipped_before_backward(model, token_ids, optimizer, max_norm=1.0):
    optimizer.zero_grad()
    loss = right_loss(model(token_ids), token_ids)
    clip(model, optimizer, max_norm)
    loss.backward()
    optimizer.step()
    return loss.item()


train_step.add(
    "not_clipped",
    "The gradients are not clipped, or before `backward`, when there are none: one bad batch can "
    "throw the model far away. Clip between `backward` and the step.",
    step_of(clip=lambda model, optimizer, max_norm: None),
    clipped_before_backward,
)
clips(
    "each_tensor_clipped",
    "You clipped each parameter's gradient by itself, which turns the direction of the step. The "
    "length of all of them together counts, and one factor scales all.",
    each_tensor,
)
clips(
    "values_clipped",
    "You clipped each number of the gradients (`clip_grad_value_`). The length of all together is "
    "cut down: `clip_grad_norm_`.",
    lambda model, optimizer, max_norm: nn.utils.clip_grad_value_(model.parameters(), max_norm),
)
clips(
    "always_scaled",
    "You scaled the gradients to `max_norm` also where they are shorter. Then steps never get "
    "small. Scale only what is longer.",
    scaled,
)
clips(
    "limit_fixed",
    "You clipped at 1 whatever `max_norm` is.",
    lambda model, optimizer, max_norm: clip(model, optimizer, 1.0),
)
clips(
    "optimizer_s_part_measured",
    "You measured the gradients of the optimizer's parameters. The length is that of the whole "
    "model's: `model.parameters()`.",
    of_the_optimizer,
)
clips(
    "frozen_parameters_forgotten",
    "A frozen parameter has no gradient: its `.grad` is None, and your clipping stops there.",
    of_all_with_a_gradient,
)
clips(
    "largest_number_measured",
    "You measured the largest number of the gradients. The length is the root of the sum of "
    "squares, over all of them.",
    by_the_largest,
)
clips(
    "root_misplaced",
    "You left out the root of the sum of squares, or took one for each parameter. The length of "
    "all together is one root, of the sum of all squares.",
    by_hand(lambda norms: norms.square().sum()),
    by_hand(torch.sum),
)
train_step.add(
    "limit_of_another_size",
    "By default `max_norm` is 1.0.",
    *(step_of(default=limit) for limit in (0.1, 0.5, 5.0, math.inf)),
)


train_step.add(
    "a_tensor_returned",
    "You returned a tensor, which keeps the whole history of this batch in memory. Return "
    "`loss.item()`.",
    step_of(result=lambda loss: loss),
    step_of(result=torch.Tensor.detach),
)
train_step.add(
    "nothing_returned",
    "You returned nothing. The loss is asked for, as a float.",
    step_of(result=lambda loss: None),
)


@train_step("You returned the loss after the step. The one that the gradients came from is asked.")
def loss_after_the_step(model, token_ids, optimizer, max_norm=1.0):
    step_of()(model, token_ids, optimizer, max_norm)
    return right_loss(model(token_ids), token_ids).item()


train_step.add(
    "padding_counted",
    "You counted padding as a target. Use your `next_token_loss`.",
    step_of(loss_of=loss_of(ignore_index=-100)),
)
train_step.add(
    "not_shifted",
    "You compared each token's logits with the token itself. Use your `next_token_loss`, which "
    "shifts.",
    step_of(loss_of=loss_of(slice(None), slice(None))),
    step_of(loss_of=loss_of(slice(None), slice(None), ignore_index=-100)),
)
train_step.add(
    "shifted_twice",
    "You shifted the ids before `next_token_loss`, which shifts too. Give it all logits and ids.",
    step_of(loss_of=loss_of(slice(None, -2), slice(2, None))),
    step_of(loss_of=lambda logits, ids: right_loss(logits[:, :-1], ids)),
)


def zeroed_afterwards(model, token_ids, optimizer, max_norm=1.0):
    loss = step_of()(model, token_ids, optimizer, max_norm)
    token_ids.zero_()
    return loss


train_step.add(
    "ids_overwritten",
    "You wrote into `token_ids`, which the caller still needs, and `backward` too.",
    zeroed_afterwards,
    step_of(loss_of=overwriting(1)),
)


# evaluate_loss


def counted(ids):
    return (ids[:, 1:] != 0).sum().item()


def total_and_count(model, ids):
    count = counted(ids)
    return (right_loss(model(ids), ids).item() * count if count else 0.0), count


def measure(weigh=counted, skip=True, walk=iter, end=None, loss_of=right_loss):
    """A right mean, but for what is given otherwise."""

    def function(model, batches):
        modes = {module: module.training for module in model.modules()}
        model.eval()
        total = count = 0
        with torch.no_grad():
            for token_ids in walk(batches):
                if counted(token_ids) or not skip:
                    loss = loss_of(model(token_ids), token_ids).item()
                    total, count = total + loss * weigh(token_ids), count + weigh(token_ids)
        for module, mode in modes.items():
            module.training = mode
        return total / count if end is None else end(total, count)

    return function


evaluate_loss.add(
    "mean_of_means",
    "You took the mean of the batches' losses, so a target in a small batch counts more. Weigh "
    "each batch by its number of counted targets.",
    measure(weigh=lambda ids: 1),
)


def divided_by(count, weigh=counted, part=slice(None)):
    """The sum over a part of the batches, divided by what is counted in all."""

    def function(model, batches):
        number = sum(map(count, batches))
        return measure(weigh, end=lambda total, _: total / number)(model, batches[part])

    return function


evaluate_loss.add(
    "weight_forgotten",
    "You added up the batches' means and divided by the number of targets. A mean times its "
    "number of targets is their sum: multiply before you add.",
    divided_by(counted, weigh=lambda ids: 1),
)
evaluate_loss.add(
    "weighed_by_rows",
    "You weighed each batch by its rows. Rows have unequal lengths: weigh by counted targets.",
    measure(weigh=len),
)
evaluate_loss.add(
    "weighed_by_ids",
    "You counted all ids of a batch or all its targets, padding among them. Count the other "
    "targets: `(token_ids[:, 1:] != 0).sum()`.",
    *(
        way(count)
        for way in (measure, divided_by)
        for count in (torch.numel, lambda ids: ids[:, 1:].numel())
    ),
)
evaluate_loss.add(
    "first_column_counted",
    "You counted the real ids of a batch, the first column among them. That is no target: count "
    "in `token_ids[:, 1:]`.",
    *(
        way(count)
        for way in (measure, divided_by)
        for count in (
            lambda ids: (ids != 0).sum().item(),
            lambda ids: (ids[:, :-1] != 0).sum().item(),
        )
    ),
)
evaluate_loss.add(
    "padding_counted",
    "You counted padding as a target. Use your `next_token_loss`.",
    measure(loss_of=loss_of(ignore_index=-100)),
)
evaluate_loss.add(
    "shifted_twice",
    "You shifted the ids before `next_token_loss`, which shifts too. Give it all logits and ids.",
    measure(loss_of=loss_of(slice(None, -2), slice(2, None))),
)
evaluate_loss.add(
    "nan_from_padding",
    "A batch in which no target counts has the mean of nothing, NaN, and 0 times NaN is NaN: leave "
    "such a batch out.",
    measure(skip=False),
)
evaluate_loss.add(
    "batches_indexed",
    "You asked `batches` for its length or for an item. An iterator has neither: walk it with "
    "`for`.",
    measure(walk=lambda batches: (batches[place] for place in range(len(batches)))),
)
evaluate_loss.add(
    "last_batch_alone",
    "You kept the last batch's loss alone. Sum over all batches.",
    measure(walk=lambda batches: list(batches)[-1:]),
    divided_by(counted, part=slice(-1, None)),
)
first = measure(walk=lambda batches: list(batches)[:1])
evaluate_loss.add(
    "first_batch_alone",
    "You left the loop after the first batch (a `return` or `break` inside it), so only that one "
    "counts.",
    first,
    lambda model, batches: first(model.eval(), batches),
)
evaluate_loss.add(
    "summed",
    "You returned the sum. Divide it by the number of counted targets.",
    measure(end=lambda total, count: total),
)
evaluate_loss.add(
    "a_tensor_returned",
    "You returned a tensor. A float is asked for: `.item()`.",
    measure(end=lambda total, count: torch.tensor(total / count)),
)


def counted_first(model, batches):
    count = sum(map(counted, batches))
    return measure(end=lambda total, _: total / count)(model, batches)


def counted_last(model, batches):
    return measure(end=lambda total, _: total)(model, batches) / sum(map(counted, batches))


evaluate_loss.add(
    "walked_twice",
    "You walked `batches` twice, or after using it up. An iterator is empty the second time: count "
    "and sum in one loop.",
    counted_first,
    counted_last,
)


def moded(before, after, grad=torch.no_grad):
    """A right mean between what is done to the model before, and to its modes after."""

    def function(model, batches):
        modes = {module: module.training for module in model.modules()}
        before(model)
        with grad():
            pairs = [total_and_count(model, token_ids) for token_ids in batches]
        after(model, modes)
        return sum(total for total, _ in pairs) / sum(count for _, count in pairs)

    return function


def restore(model, modes):
    for module, mode in modes.items():
        module.training = mode


def whole_model(model, modes):
    model.train(modes[model])


def one_flag(model, modes):
    model.training = modes[model]


def its_children(model, modes):
    for module in model.children():
        module.training = modes[module]


def it_and_its_children(model, modes):
    one_flag(model, modes)
    its_children(model, modes)


evaluate_loss.add(
    "mode_left_alone",
    "Dropout still drops. `model.eval()` switches every submodule; `model.training = False` no "
    "one but the model itself.",
    moded(lambda model: None, restore),
    moded(lambda model: setattr(model, "training", False), restore),
)
evaluate_loss.add(
    "left_in_eval",
    "You left the model in eval mode: the training that goes on has no dropout. Put every mode "
    "back.",
    moded(nn.Module.eval, lambda model, modes: None),
)
evaluate_loss.add(
    "always_back_to_train",
    "You put the model into train mode at the end. It may have been in eval mode: keep that.",
    moded(nn.Module.eval, lambda model, modes: model.train()),
)
evaluate_loss.add(
    "one_mode_for_all",
    "You put all submodules into the model's own mode. One of them may have been in the other, "
    "such as a frozen part in eval mode: keep each one's.",
    moded(nn.Module.eval, whole_model),
)
evaluate_loss.add(
    "one_flag_restored",
    "You restored the mode of the model alone, or of its direct children. Those further inside are "
    "still in eval mode: walk `model.modules()`.",
    moded(nn.Module.eval, one_flag),
    moded(nn.Module.eval, its_children),
    moded(nn.Module.eval, it_and_its_children),
)
evaluate_loss.add(
    "gradients_computed",
    "You let torch keep a history for a backward pass that never comes. Run the model under "
    "`torch.no_grad()`.",
    moded(nn.Module.eval, restore, torch.enable_grad),
)


@evaluate_loss(
    "You switched gradients off for everything that follows (`torch.set_grad_enabled(False)`). As "
    "`with torch.no_grad():` it ends with the block."
)
def gradients_off_for_good(model, batches):
    loss = measure()(model, batches)
    torch.set_grad_enabled(False)
    return loss


def frozen(model, batches):
    model.requires_grad_(False)
    return measure()(model, batches)


def frozen_and_thawed(model, batches):
    loss = frozen(model, batches)
    model.requires_grad_(True)
    return loss


evaluate_loss.add(
    "parameters_frozen",
    "You changed `requires_grad` of the parameters, and some are now trained no more, or again. "
    "Leave them alone: `with torch.no_grad():`.",
    frozen,
    frozen_and_thawed,
)


@evaluate_loss("You cleared the model's gradients. Measuring leaves `.grad` as it is.")
def gradients_cleared(model, batches):
    loss = measure()(model, batches)
    model.zero_grad()
    return loss


@evaluate_loss("You ran `backward`. Measuring computes no gradients.")
def ran_backward(model, batches):
    batches = list(batches)
    loss = measure()(model, batches)
    right_loss(model(batches[0]), batches[0]).backward()
    return loss


# sample_next


def by_temperature(logits, temperature):
    return logits / temperature


def keep_k(logits, top_k):
    smallest = logits.topk(top_k).values[:, -1:]
    return logits.masked_fill(logits < smallest, -math.inf)


def keep_p(logits, top_p):
    shares, places = logits.softmax(-1).sort(-1, descending=True)
    out = shares.cumsum(-1) - shares >= top_p
    out[:, 0] = False
    return logits.masked_fill(torch.zeros_like(out).scatter(1, places, out), -math.inf)


def pick(logits, generator):
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]


ORDER = ("temperature", "top_k", "top_p")


def sampler(order=ORDER, pick=pick, **ways):
    """A right sampler, but for the order of its steps, and those that are given."""
    steps = {"temperature": by_temperature, "top_k": keep_k, "top_p": keep_p, **ways}

    def function(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
        if temperature == 0:
            return logits.argmax(-1)
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        for name in order:
            if given[name] is not None:
                logits = steps[name](logits, given[name])
        return pick(logits, generator)

    return function


sample_next.add(
    "temperature_multiplied",
    "You multiplied by the temperature. Divide: below 1 the differences grow.",
    sampler(temperature=lambda logits, temperature: logits * temperature),
)
sample_next.add(
    "temperature_ignored",
    "The temperature does nothing: shares that are all divided by it are the same shares. Divide "
    "the logits, before the softmax.",
    sampler(temperature=lambda logits, temperature: logits),
)
sample_next.add(
    "temperature_in_place",
    "You changed `logits` itself (`/=`, `div_`, an assignment to a part), which is the caller's.",
    sampler(temperature=lambda logits, temperature: logits.div_(temperature)),
)


def not_below(least, zero=False):
    def function(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
        if zero and temperature == 0:
            return logits.argmax(-1)
        return right_sample(logits, max(temperature, least), top_k, top_p, generator)

    return function


sample_next.add(
    "temperature_held_up",
    "You drew at a higher temperature where a low one was asked for. Divide by what is given, and "
    "at 0 take the largest.",
    not_below(0.1),
    not_below(0.1, zero=True),
    sampler(temperature=lambda logits, temperature: logits / max(temperature, 0.5)),
)


def not_renormalized(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(-1)
    shares, places = (logits / temperature).softmax(-1).sort(-1, descending=True)
    sums = shares.cumsum(-1)
    if top_k is not None:
        shares, sums = shares[:, :top_k], sums[:, :top_k]
    if top_p is not None:
        out = sums - shares >= top_p
        shares = shares.masked_fill(out, 0.0)
    return places.gather(1, torch.multinomial(shares, 1, generator=generator))[:, 0]


sample_next.add(
    "one_too_many",
    "You kept k + 1 tokens. `top_k` is how many are left.",
    sampler(top_k=lambda logits, k: keep_k(logits, min(k + 1, logits.shape[-1]))),
    lambda logits, temperature=1.0, top_k=None, top_p=None, generator=None: not_renormalized(
        logits, temperature, top_k and top_k + 1, top_p, generator
    ),
)


def least_likely(logits, k):
    kept = keep_k(-logits, k)
    return (-kept).masked_fill(kept == -math.inf, -math.inf)


sample_next.add(
    "least_likely_kept",
    "You kept the k least likely tokens.",
    sampler(top_k=lambda logits, k: -keep_k(-logits, k)),
    sampler(top_k=least_likely),
)
sample_next.add(
    "zeros_for_the_others",
    "You set the logits of the others to 0. The exponential of 0 is 1, so they are still drawn: "
    "fill with minus infinity.",
    sampler(top_k=lambda logits, k: keep_k(logits, k).nan_to_num(neginf=0.0)),
)
sample_next.add(
    "first_row_s_limit",
    "You used the first row's k-th largest for the whole batch. Each row has its own.",
    sampler(
        top_k=lambda logits, k: logits.masked_fill(
            logits < logits[:1].topk(k).values[:, -1:], -math.inf
        )
    ),
)
sample_next.add("top_k_ignored", "`top_k` does nothing.", sampler(top_k=lambda logits, k: logits))
sample_next.add("top_p_ignored", "`top_p` does nothing.", sampler(top_p=lambda logits, p: logits))


def cut(logits, out_of):
    """Leave out what `out_of(shares, sums)` says of the shares, the most likely first."""
    shares, places = logits.softmax(-1).sort(-1, descending=True)
    out = out_of(shares, shares.cumsum(-1))
    return logits.masked_fill(torch.zeros_like(out).scatter(1, places, out), -math.inf)


sample_next.add(
    "crossing_token_dropped",
    "You dropped the token with which the sum reaches p, the only one where p is small. It belongs "
    "to the set: compare the sum of the tokens *before* it with p.",
    sampler(top_p=lambda logits, p: cut(logits, lambda shares, sums: (sums > p) & (p < 1))),
    sampler(top_p=lambda logits, p: cut(logits, lambda shares, sums: (sums >= p) & (p < 1))),
)


def but_the_first(logits, p):
    def out_of(shares, sums):
        out = (sums > p) & (p < 1)
        out[:, 0] = False
        return out

    return cut(logits, out_of)


sample_next.add(
    "crossing_token_dropped_but_the_first",
    "You dropped the token with which the sum reaches p. The smallest set that *reaches* p has it.",
    sampler(top_p=but_the_first),
)
sample_next.add(
    "one_token_too_many",
    "You kept one token more than needed to reach p. The smallest set is asked for.",
    sampler(
        top_p=lambda logits, p: cut(
            logits, lambda shares, sums: sums - shares - shares.roll(1, -1) >= p
        )
    ),
)
sample_next.add(
    "share_compared_with_p",
    "You compared each token's own share with p. It is the sum of the shares, from the most likely "
    "on, that reaches p.",
    sampler(
        top_p=lambda logits, p: cut(logits, lambda shares, sums: (shares < 1 - p) & (sums > shares))
    ),
)


def rolled(logits, p):
    return cut(logits, lambda shares, sums: (sums > p).roll(1, -1) & (p < 1))


sample_next.add(
    "most_likely_dropped",
    "You left out the most likely token: to move a mask on by one with `roll` brings its last "
    "place round to the first. Set column 0 to False.",
    sampler(top_p=rolled),
)


def from_the_least(logits, p):
    shares, places = logits.softmax(-1).sort(-1)
    out = shares.cumsum(-1) - shares >= p
    return logits.masked_fill(torch.zeros_like(out).scatter(1, places, out), -math.inf)


sample_next.add(
    "sorted_upwards",
    "You began with the least likely token, and so dropped the most likely ones. Sort with "
    "`descending=True`.",
    sampler(top_p=from_the_least),
    sampler(top_p=from_the_least, top_k=least_likely),
)


def places_for_ids(logits, p):
    shares, _ = logits.softmax(-1).sort(-1, descending=True)
    return shares.log().masked_fill(shares.cumsum(-1) - shares >= p, -math.inf)


def pick_a_place(logits, generator):
    return pick(logits.sort(-1, descending=True).values, generator)


sample_next.add(
    "place_for_id",
    "You returned the place in the sorted order. The id that stands there is asked for: "
    "`ids.gather(1, places)`.",
    sampler(top_p=places_for_ids),
    sampler(pick=pick_a_place),
)
sample_next.add(
    "top_p_before_the_temperature",
    "You applied top-p before the temperature. The temperature comes first and changes the shares.",
    sampler(order=("top_p", "temperature", "top_k")),
    sampler(order=("top_k", "top_p", "temperature")),
)


# Both leave the same tokens: no draw can tell them apart.
sample_next.add(
    "top_p_of_all_shares",
    "Top-p looked at the shares of all tokens: it came before top-k, or the shares were not "
    "divided by their sum after top-k. It looks at the shares of what top-k has left.",
    sampler(order=("temperature", "top_p", "top_k")),
    not_renormalized,
)


def one_filter(sample, kept):
    def function(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
        if top_k is not None and top_p is not None:
            top_k, top_p = (top_k, None) if kept == "top_k" else (None, top_p)
        return sample(logits, temperature, top_k, top_p, generator)

    return function


sample_next.add(
    "one_filter_of_two",
    "With `top_k` and `top_p` both given, you applied one of them alone (`elif`, or one that "
    "overwrites what the other left). Both apply, top-k first.",
    *(one_filter(by, kept) for by in (right_sample, sampler()) for kept in ("top_k", "top_p")),
)


def picks(name, sentence, *ways):
    sample_next.add(name, sentence, *(sampler(pick=way) for way in ways))


def one_number_for_all(logits, generator):
    number = torch.rand(1, generator=generator, device=logits.device)
    return (logits.softmax(-1).cumsum(-1) < number).sum(-1).clamp(max=logits.shape[-1] - 1)


def one_number_in_order(logits, generator):
    ids = logits.argsort(-1, descending=True)
    places = one_number_for_all(logits.gather(1, ids), generator)
    return ids.gather(1, places[:, None])[:, 0]


def seeded(logits, generator):
    if generator is not None:
        torch.manual_seed(generator.initial_seed())
    return pick(logits, None)


picks(
    "always_the_largest",
    "You always took the largest. That is for temperature 0; otherwise draw, by the shares.",
    lambda logits, generator: logits.argmax(-1),
)
picks(
    "drawn_evenly",
    "You drew evenly among the tokens that are left. Each has its share.",
    lambda logits, generator: pick(
        logits.sign().abs().where(logits > -math.inf, -math.inf), generator
    ),
)
picks(
    "one_draw_for_all_rows",
    "You drew one random number for the whole batch. Each row needs its own.",
    one_number_for_all,
    one_number_in_order,
)
picks(
    "generator_ignored",
    "You did not hand `generator` on, so the draws come from torch's own random state. Pass "
    "`generator=generator`.",
    lambda logits, generator: pick(logits, None),
)
picks(
    "seeded_from_the_generator",
    "You seeded torch's own random state. Draw from `generator` itself: `generator=generator`.",
    seeded,
)
picks(
    "squeezed_too_far",
    "`squeeze()` removes every axis of length 1, the batch too where B is 1. Take column 0: "
    "`[:, 0]`.",
    lambda logits, generator: torch.multinomial(
        logits.softmax(-1), 1, generator=generator
    ).squeeze(),
)
picks(
    "a_column_returned",
    "You returned (B, 1), as `multinomial` gives it. (B,) is asked for: take column 0.",
    lambda logits, generator: pick(logits, generator)[:, None],
)


@sample_next(
    "At temperature 0 you divided by 0. There is nothing to draw: return the largest, "
    "`logits.argmax(dim=-1)`."
)
def divided_by_zero(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return pick(logits / 0.0, generator)
    return right_sample(logits, temperature, top_k, top_p, generator)


@sample_next("You moved the logits to the CPU, or made a tensor there. Stay on their device.")
def on_the_cpu(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    return right_sample(logits.cpu(), temperature, top_k, top_p, generator)


# generate


def cached(model, new, ids, caches):
    return model(new, caches=caches, use_cache=True)


def uncached(model, ids):
    return model(ids)


def choose(logits, temperature, generator):
    return right_sample(logits[:, -1], temperature, generator=generator)


def restored(model, training):
    model.train(training)


def writer(
    feed=cached,
    uncached=uncached,
    choose=choose,
    before=nn.Module.eval,
    after=restored,
    end=None,
    default=0.0,
):
    """A right `generate`, but for what is given otherwise."""

    @torch.no_grad()
    def function(
        model, prompt_ids, max_new_tokens, *, use_cache=True, temperature=default, generator=None
    ):
        training = model.training
        before(model)
        ids, new, caches = prompt_ids, prompt_ids, None
        for _ in range(max_new_tokens):
            if use_cache or feed is always_cached:
                logits, caches = feed(model, new, ids, caches)
            else:
                logits = uncached(model, ids)
            new = choose(logits, temperature, generator)[:, None]
            ids = torch.cat([ids, new], dim=1)
        after(model, training)
        return ids if end is None else end(ids, prompt_ids)

    return function


def always_cached(model, new, ids, caches):
    return cached(model, new, ids, caches)


def feeds(name, sentence, *ways):
    generate.add(name, sentence, *(writer(feed=way) for way in ways))


def all_new_again(model, new, ids, caches):
    begin, kept = caches or (0, None)
    logits, kept = cached(model, ids[:, begin:], ids, kept)
    return logits, (begin or ids.shape[1], kept)


feeds(
    "whole_text_into_the_cache",
    "You fed ids that are in the caches already, so their keys are there twice and more. With the "
    "caches feed the new token alone.",
    lambda model, new, ids, caches: model(ids, caches=caches, use_cache=True),
    all_new_again,
)
feeds(
    "cache_not_used",
    "With `use_cache` you still fed all ids at each step, so the cache saves nothing. Feed the new "
    "token alone, with the caches of the step before.",
    lambda model, new, ids, caches: (model(ids), None),
    lambda model, new, ids, caches: model(ids, use_cache=True),
)


def both_ways(model, new, ids, caches):
    model(ids)
    return cached(model, new, ids, caches)


feeds(
    "fed_both_ways",
    "With `use_cache` you fed all ids as well, and threw the result away: the cache saves nothing. "
    "Call the model once for each step.",
    both_ways,
)
feeds(
    "caches_dropped",
    "You fed the new token without the caches, so the model sees nothing of what stands before it. "
    "Pass on what the last call returned.",
    lambda model, new, ids, caches: model(new, use_cache=True),
)


def of_the_prompt(model, new, ids, caches):
    logits, newer = cached(model, new, ids, caches)
    return logits, newer if caches is None else caches


def all_new(model, new, ids, caches):
    if caches is None:
        logits, kept = cached(model, ids, ids, None)
        return logits, (ids.shape[1], kept)
    length, kept = caches
    return model(ids[:, length:], caches=kept, use_cache=True)[0], caches


feeds(
    "caches_of_the_prompt_kept",
    "You kept the caches of the prompt and never took the newer ones, so the tokens written since "
    "are missing. Each call returns the caches for the next.",
    of_the_prompt,
)
feeds(
    "all_new_tokens_fed",
    "You fed all new tokens at each step behind the prompt's caches. Take the newer caches from "
    "each call, and feed the newest token alone.",
    all_new,
)
feeds(
    "use_cache_ignored",
    "You used the cache also with `use_cache=False`. Without it each step feeds all ids.",
    always_cached,
)


def two_values(model, ids):
    logits, _ = model(ids)
    return logits


generate.add(
    "two_values_expected",
    "You took two values from the model also with `use_cache=False`. Then it returns the logits "
    "alone.",
    writer(uncached=two_values),
)


def chooses(name, sentence, *ways, **settings):
    generate.add(name, sentence, *(writer(choose=way, **settings) for way in ways))


def reseeded(seed):
    def way(logits, temperature, generator):
        if generator is not None:
            generator.manual_seed(seed(generator))
        return choose(logits, temperature, generator)

    return way


def divided(logits, temperature, generator):
    shares = (logits[:, -1] / temperature).softmax(-1)
    return torch.multinomial(shares, 1, generator=generator)[:, 0]


chooses(
    "first_place_read",
    "You read the logits of the first place. Those of the last are for the token that comes next: "
    "`logits[:, -1]`.",
    lambda logits, temperature, generator: choose(logits[:, :1], temperature, generator),
)
chooses(
    "first_row_for_all",
    "You wrote the first row's token into every row.",
    lambda logits, temperature, generator: choose(logits, temperature, generator)[:1].expand(
        len(logits)
    ),
)
chooses(
    "temperature_ignored",
    "You always took the largest. With a temperature above 0 draw with `sample_next`.",
    lambda logits, temperature, generator: choose(logits, 0.0, generator),
)
chooses(
    "always_drawn",
    "You drew although the temperature is 0. Then the largest is taken: hand `temperature` on to "
    "`sample_next`, which does so.",
    lambda logits, temperature, generator: choose(logits, temperature or 1.0, generator),
)
chooses(
    "drawn_at_another_temperature",
    "You drew at another temperature than the one given. Hand `temperature` on to `sample_next`, "
    "which divides the logits by it.",
    lambda logits, temperature, generator: choose(logits, temperature and 1.0, generator),
)
chooses(
    "temperature_of_one",
    "You drew although no temperature was given. By default it is 0.0: the largest is taken.",
    choose,
    default=1.0,
)
chooses(
    "generator_ignored",
    "You did not hand `generator` on to `sample_next`.",
    lambda logits, temperature, generator: choose(logits, temperature, None),
)
chooses(
    "generator_reseeded",
    "You seeded a generator, so each call draws the same numbers. The state of `generator` is the "
    "caller's: only draw from it.",
    reseeded(lambda generator: 0),
    reseeded(torch.Generator.initial_seed),
)
chooses(
    "divided_by_zero",
    "You divided by a temperature of 0. Then the largest is taken: `sample_next` does so.",
    divided,
)


def modes(name, sentence, **settings):
    generate.add(name, sentence, writer(**settings))


modes(
    "mode_left_alone",
    "You did not switch to eval mode, so dropout still drops while it writes: `model.eval()`.",
    before=lambda model: None,
)
modes(
    "left_in_eval",
    "You left the model in eval mode. Put it back into the mode it was in.",
    after=lambda model, training: None,
)
modes(
    "always_back_to_train",
    "You put the model into train mode at the end. It may have been in eval mode.",
    after=lambda model, training: model.train(),
)
modes(
    "one_flag_restored",
    "You restored `model.training` alone; its submodules are still in eval mode.",
    after=lambda model, training: setattr(model, "training", training),
)


def ends(name, sentence, *ways):
    generate.add(name, sentence, *(writer(end=way) for way in ways))


ends(
    "prompt_left_out",
    "You returned the new ids alone. The prompt stands before them.",
    lambda ids, prompt: ids[:, prompt.shape[1] :],
)
ends(
    "one_too_few",
    "One token is missing: there are `max_new_tokens` new ones.",
    lambda ids, _: ids[:, :-1],
    lambda ids, prompt: F.pad(ids[:, :-1], (0, 1)) if len(ids[0]) > len(prompt[0]) else ids,
)
generate.add(
    "one_too_many",
    "There is one token too many. The one behind the prompt counts too: `max_new_tokens` in all.",
    lambda model, prompt, count, **settings: writer()(model, prompt, count + 1, **settings),
)
ends(
    "a_list_returned",
    "You returned a list. A tensor of ids is asked for, (B, T + new).",
    lambda ids, prompt: ids.tolist(),
)


def over_the_prompt(ids, prompt):
    prompt[:, -1] = ids[:, -1]
    return ids


def on_the_cpu_first(model, new, ids, caches):
    logits, caches = cached(model, new, ids, caches)
    return logits.cpu(), caches


ends("prompt_overwritten", "You wrote into `prompt_ids`, which is the caller's.", over_the_prompt)
generate.add(
    "made_on_the_cpu",
    "You made a tensor without `device=` or moved one to the CPU, and a GPU refuses to mix them.",
    writer(feed=on_the_cpu_first),
    writer(feed=lambda model, new, ids, caches: cached(model, new.cpu(), ids, caches)),
    writer(end=lambda ids, prompt: ids.cpu()),
)


# training_quiz

SENTENCES = {
    1: {
        "a": "That is the token the model has just read; to copy it takes no learning.",
        "c": "The other way round: the model guesses what comes, not what was.",
        "d": "Each place guesses one token, the one that comes next.",
    },
    2: {
        "a": "A loss of 0 means that every guess is certain and right. This model knows nothing.",
        "b": "Nothing sets it to 1. It gives each of 100 tokens a share of about 1/100.",
        "c": "The cost is the logarithm of the number of tokens, not the number.",
    },
    3: {
        "b": "Clipping never makes gradients longer. Then steps could not get small near the end.",
        "c": "They are shorter than the limit, so nothing is cut.",
        "d": "They are scaled where they are too long, never set to zero.",
    },
    4: {
        "a": "That is the mean of the two means. Three quarters of the targets cost 4.",
        "b": "You weighed them the wrong way round: (30 · 2 + 10 · 4) / 40.",
        "d": "That is the sum of the two. A mean lies between them.",
    },
    5: {
        "a": "The first alone has 0.5, which does not reach 0.7.",
        "b": "Then top-p would leave nothing out. Tokens are taken until the sum reaches 0.7.",
        "c": "The first two have 0.8 together, which is enough. The third is not needed.",
    },
    6: {
        "a": "That is what a temperature above 1 does.",
        "c": "The order stays, and the shares move: the logits are divided by 0.5, so doubled.",
        "d": "It is one division for each token; it changes what is drawn.",
    },
    7: {
        "a": "Overfitting shows as a held-out loss above the training loss; nothing of it here.",
        "b": "Who knows how often each letter comes pays the unigram entropy, 3.2.",
        "d": "2.0 is far from too good: a text has longer patterns than pairs of letters.",
    },
}
training_quiz = quiz_mistakes("training_quiz", "bdacdbc", SENTENCES)
