"""What the answers of lesson 08 must do.

Expected values come from torch's own cross-entropy and optimizers, from steps made here on a twin
of the answer's model, or from a property. Draws are judged by bounds that hold for any sampler.
"""

import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F

from autograder.judge import (
    Drawn,
    Exercise,
    Failure,
    close,
    recipe,
    same,
    shape_of,
    short_name,
    type_of,
    untouched,
)
from autograder.judge.properties import agrees_in_gradients, keeps_dtypes, leaves_untouched
from autograder.judge.quiz import quiz
from solutions.stack import DecoderOnlyLM

next_token_loss = Exercise("next_token_loss")
train_step = Exercise("train_step")
evaluate_loss = Exercise("evaluate_loss")
sample_next = Exercise("sample_next")
generate = Exercise("generate")
training_quiz = quiz("training_quiz", "bdacdbc")


def right_loss(logits, token_ids, pad_id=0):
    """Torch's own cross-entropy, one target after another."""
    rows, targets = logits[:, :-1].flatten(0, 1), token_ids[:, 1:].flatten()
    return F.cross_entropy(rows[targets != pad_id], targets[targets != pad_id])


def padded(draw, batch, length, vocabulary):
    """Ids from 1 to `vocabulary` - 1 with padding: row 0 on the right, row 1 on the left."""
    ids = draw.integers(1, vocabulary, batch, length)
    ids[0, -2:] = 0
    ids[1, :3] = 0
    return ids


# next_token_loss


@next_token_loss.check(points=1)
def guessing_costs_the_logarithm(answer, reference, draw):
    """Equal logits for V tokens cost ln V: one number, a tensor without axes."""
    for batch, length, vocabulary in ((2, 5, 3), (1, 2, 50)):
        logits = torch.full((batch, length, vocabulary), 0.7, device=draw.device)
        ids = draw.integers(1, vocabulary, batch, length)
        expected = torch.tensor(math.log(vocabulary), device=draw.device)
        same(answer(logits, ids), expected, f"With {vocabulary} equal logits the loss")


@next_token_loss.check(points=2, needs=["guessing_costs_the_logarithm"])
def guesses_the_next_token(answer, reference, draw):
    """The logits at place t are for the token at t + 1, and all of them count the same."""
    for batch, length, vocabulary in ((3, 5, 7), (2, 2, 4), (4, 9, 3)):
        logits = 2 * draw.normal(batch, length, vocabulary)
        ids = draw.integers(1, vocabulary, batch, length)
        same(answer(logits, ids), right_loss(logits, ids), f"For {tuple(ids.shape)} ids the loss")


@next_token_loss.check(points=2, needs=["guesses_the_next_token"])
def leaves_padding_out(answer, reference, draw):
    """Targets that are padding are not counted, on either side, and the mean is over the others."""
    logits, ids = 2 * draw.normal(3, 6, 7), padded(draw, 3, 6, 7)
    ids[2, 2:] = 0
    same(answer(logits, ids), right_loss(logits, ids), "With padding on both sides the loss")
    ids[2] = 0
    same(answer(logits, ids), right_loss(logits, ids), "With a row of padding alone the loss")
    before = answer(logits, ids)
    logits[0, 3:], logits[2] = 40 * draw.normal(3, 7), 40 * draw.normal(6, 7)
    same(answer(logits, ids), before, "After other logits for padded targets the loss")


@next_token_loss.check(points=1, needs=["guesses_the_next_token"])
def takes_another_pad_id(answer, reference, draw):
    """With another `pad_id` that one is left out, and 0 is a token like any other."""
    logits, ids = 2 * draw.normal(3, 6, 7), draw.integers(0, 7, 3, 6)
    ids[0, 2:5], ids[1, :3] = 4, 0
    for pad_id in (4, 6):
        expected = right_loss(logits, ids, pad_id)
        same(answer(logits, ids, pad_id=pad_id), expected, f"With pad_id={pad_id} the loss")


@next_token_loss.check(points=1, needs=["guesses_the_next_token"])
def bears_large_logits(answer, reference, draw):
    """Logits of hundreds give a finite loss, and the right one."""
    logits, ids = 300 * draw.normal(3, 5, 7), padded(draw, 3, 5, 7)
    same(answer(logits, ids), right_loss(logits, ids), "For logits near 300 the loss")


@next_token_loss.check(points=1, needs=["guesses_the_next_token"])
def lets_gradients_flow(answer, reference, draw):
    """Gradients reach the logits of every target that counts, and no others."""
    logits, ids = 2 * draw.normal(3, 6, 7), padded(draw, 3, 6, 7)
    back = torch.tensor(1.5, device=draw.device)
    got = answer.backward(back, logits, ids).gradients[0]
    inputs = {"logits": logits}
    agrees_in_gradients([got], lambda logits: right_loss(logits, ids), inputs, back)


@next_token_loss.check(points=1, needs=["guesses_the_next_token"])
def keeps_the_dtype(answer, reference, draw):
    """The loss has the dtype of the logits: float64, float32, float16 or bfloat16."""
    ids = padded(draw, 3, 6, 7)
    keeps_dtypes(lambda logits: answer(logits, ids), draw.normal(3, 6, 7))


@next_token_loss.check(points=1, needs=["guesses_the_next_token"])
def leaves_its_inputs_untouched(answer, reference, draw):
    """Logits and ids are the same after the call, and all happens on their device."""
    leaves_untouched(answer, logits=draw.normal(3, 6, 7), token_ids=padded(draw, 3, 6, 7))
    answer.on_meta(draw.normal(3, 6, 7), padded(draw, 3, 6, 7))


# train_step

VOCABULARY, WIDTH = 7, 5
PLAIN = recipe("Sequential", recipe("Embedding", 7, 5), recipe("Linear", 5, 7))
DEEP = recipe(
    "Sequential",
    recipe("Embedding", 7, 5),
    recipe("Linear", 5, 4),
    recipe("GELU"),
    recipe("Linear", 4, 7),
)
ALL_DROPPED = recipe(
    "Sequential", recipe("Embedding", 7, 5), recipe("Dropout", 1.0), recipe("Linear", 5, 7)
)


class Twins:
    """A model on the answer's side, `there`, and the same one here, to do what is right."""

    def __init__(self, answer, made_from, draw, dtype=torch.float32):
        self.here = made_from.make().to(draw.device)
        with torch.no_grad():
            self.start = {
                name: one.copy_(draw.gain(*one.shape)).clone()
                for name, one in self.here.named_parameters()
            }
        self.there = answer.make(made_from, load=self.start)

    def freeze(self, name):
        self.there.assign({f"{name}.requires_grad": False})
        self.here.get_parameter(name).requires_grad_(False)

    def optimizers(self, kind="SGD", part="", **settings):
        """The same optimizer on either side, over all parameters or those of one part."""
        there = self.there.attribute(part) if part else self.there
        parameters = there.call((), method="parameters").value
        here = self.here.get_submodule(part).parameters()
        return there.find(f"torch.optim.{kind}")(parameters, **settings), getattr(
            torch.optim, kind
        )(here, **settings)

    def step(self, ids, optimizer, max_norm):
        """A right step here; returns the loss before it, and the norm of all gradients."""
        self.here.zero_grad()
        loss = right_loss(self.here(ids), ids)
        loss.backward()
        gradients = [one.grad for one in self.here.parameters() if one.grad is not None]
        norm = math.sqrt(sum(one.double().square().sum().item() for one in gradients))
        for one in gradients:
            one *= min(1.0, max_norm / norm)
        optimizer.step()
        return loss.item(), norm

    def same_weights(self, when):
        """Fail unless both models have the same weights."""
        found = self.there.describe().state
        for name, one in self.here.named_parameters():
            right = one.detach()
            same(found[name], right, f"{when} `{name}`", rtol=1e-4, atol=1e-4)


def a_float(value, right, what, note=""):
    """Fail unless `value` is a float and near `right`."""
    if not isinstance(value, float):
        shown = type_of(value)
        raise Failure(f"{what} is a {shown.replace('NoneType', 'None')}; a float was asked for.")
    number = torch.tensor([value, right], dtype=torch.float64)
    close(number[:1], number[1:], what, rtol=1e-4, atol=1e-5, note=note)


@train_step.check(points=2)
def returns_the_loss_before_the_step(answer, reference, draw):
    """It returns the loss of `model(token_ids)` before the step, as a float."""
    for made_from, length in ((PLAIN, 6), (DEEP, 4)):
        twins, ids = Twins(answer, made_from, draw), padded(draw, 3, length, 7)
        there, here = twins.optimizers(lr=0.7)
        loss = answer(twins.there, ids, there, 50.0)
        right, _ = twins.step(ids, here, 50.0)
        a_float(loss, right, f"For {tuple(ids.shape)} ids the result")
    twins, ids = Twins(answer, ALL_DROPPED, draw), padded(draw, 3, 5, 7)
    there, here = twins.optimizers(lr=0.7)
    loss, (right, _) = answer(twins.there, ids, there, 50.0), twins.step(ids, here, 50.0)
    a_float(loss, right, "For a model in train mode that drops every feature the result")


@train_step.check(points=2, needs=["returns_the_loss_before_the_step"])
def steps_along_the_gradient(answer, reference, draw):
    """The optimizer makes one step, with the gradient of this loss."""
    twins, ids = Twins(answer, DEEP, draw), padded(draw, 4, 6, 7)
    there, here = twins.optimizers(lr=0.3)
    answer(twins.there, ids, there, 1000.0)
    twins.step(ids, here, 1000.0)
    twins.same_weights("After a step of SGD")


@train_step.check(points=1, needs=["steps_along_the_gradient"])
def clears_the_gradients(answer, reference, draw):
    """What stands in `.grad` from an earlier batch has no part in the step."""
    twins, ids = Twins(answer, PLAIN, draw), padded(draw, 3, 6, 7)
    there, here = twins.optimizers(lr=0.3)
    given = {name: draw.gain(*twins.start[name].shape) for name in ("0.weight", "1.bias")}
    twins.there.assign({f"{name}.grad": one for name, one in given.items()})
    answer(twins.there, ids, there, 1000.0)
    twins.step(ids, here, 1000.0)
    twins.same_weights("With gradients of an earlier batch there, after a step")
    for _ in range(2):
        other = padded(draw, 3, 5, 7)
        answer(twins.there, other, there, 1000.0)
        twins.step(other, here, 1000.0)
    twins.same_weights("After three steps")


def clipped(answer, made_from, draw, share, part="", frozen=""):
    """One step with `max_norm` a `share` of the norm of all gradients."""
    twins, ids = Twins(answer, made_from, draw), padded(draw, 4, 6, 7)
    if frozen:
        twins.freeze(frozen)
    there, here = twins.optimizers(lr=0.5 / share, part=part)
    right_loss(twins.here(ids), ids).backward()
    gradients = [one.grad for one in twins.here.parameters() if one.grad is not None]
    max_norm = share * nn.utils.get_total_norm(gradients).item()
    answer(twins.there, ids, there, max_norm)
    twins.step(ids, here, max_norm)
    return twins


@train_step.check(points=2, needs=["steps_along_the_gradient"])
def clips_what_is_too_long(answer, reference, draw):
    """Where all gradients together are longer than `max_norm`, they are scaled down to it."""
    for share in (0.1, 0.7):
        clipped(answer, DEEP, draw, share).same_weights(
            f"With `max_norm` {share:g} of the gradients' length, after a step"
        )


@train_step.check(points=1, needs=["steps_along_the_gradient"])
def leaves_shorter_gradients(answer, reference, draw):
    """Gradients that are shorter than `max_norm` are left as they are; by default it is 1."""
    clipped(answer, DEEP, draw, 3.0).same_weights("With gradients a third of `max_norm`, after it,")
    twins, ids = Twins(answer, PLAIN, draw), padded(draw, 4, 6, 7)
    scale = {name: 3 * one for name, one in twins.start.items()}  # a longer gradient than 1
    twins.there.load(**scale)
    twins.here.load_state_dict(scale)
    there, here = twins.optimizers(lr=0.5)
    answer(twins.there, ids, there)
    _, norm = twins.step(ids, here, 1.0)
    twins.same_weights(f"Without `max_norm`, gradients of length {norm:.2f}: after a step")


@train_step.check(points=1, needs=["clips_what_is_too_long"])
def measures_the_whole_model(answer, reference, draw):
    """The length is that of the model's gradients, also where the optimizer has a part of them."""
    twins = clipped(answer, DEEP, draw, 0.4, part="3")
    twins.same_weights("With an optimizer for the last layer alone, after a step")
    twins = clipped(answer, DEEP, draw, 0.4, frozen="0.weight")
    twins.same_weights("With frozen embeddings, after a step")


@train_step.check(points=1, needs=["steps_along_the_gradient"])
def works_with_any_optimizer(answer, reference, draw):
    """Adam and momentum make the steps that they should."""
    for kind, settings in (
        ("AdamW", {"lr": 0.05, "weight_decay": 0.3}),
        ("SGD", {"lr": 0.2, "momentum": 0.9}),
    ):
        twins = Twins(answer, PLAIN, draw)
        there, here = twins.optimizers(kind, **settings)
        for length in (6, 4):
            ids = padded(draw, 3, length, 7)
            answer(twins.there, ids, there, 0.5)
            twins.step(ids, here, 0.5)
        twins.same_weights(f"After two steps of {kind}")


@train_step.check(points=1, needs=["steps_along_the_gradient"])
def leaves_the_ids_and_the_device(answer, reference, draw):
    """The ids are the same after the call, and all happens on their device."""
    twins, ids = Twins(answer, PLAIN, draw), padded(draw, 3, 6, 7)
    there, _ = twins.optimizers(lr=0.1)
    after = answer.call((twins.there, ids, there), after=True).arguments
    untouched(after[1], ids, "token_ids")
    model = answer.make(PLAIN).to(device="meta")
    parameters = model.call((), method="parameters").value
    answer.on_meta(model, ids, model.find("torch.optim.SGD")(parameters, lr=0.1))


# evaluate_loss

DROPPED = recipe(
    "Sequential",
    recipe("Embedding", 7, 5),
    recipe("Sequential", recipe("Identity"), recipe("Dropout", 0.9)),
    recipe("Linear", 5, 7),
)


def mean_loss(model, batches):
    """The mean over the targets of all batches, one by one."""
    with torch.no_grad():
        rows = torch.cat([model(ids)[:, :-1].flatten(0, 1) for ids in batches])
    targets = torch.cat([ids[:, 1:].flatten() for ids in batches])
    return F.cross_entropy(rows[targets != 0].double(), targets[targets != 0]).item()


def unequal(draw):
    """Three batches of unequal sizes and padding."""
    batches = [padded(draw, 3, 6, 7), draw.integers(1, 7, 1, 9), draw.integers(1, 7, 5, 3)]
    batches[1][0, 3:] = 0
    return batches


@evaluate_loss.check(points=1)
def measures_one_batch(answer, reference, draw):
    """For one batch it returns the loss of `model(token_ids)`, as a float."""
    twins, ids = Twins(answer, PLAIN, draw), padded(draw, 3, 6, 7)
    a_float(answer(twins.there, [ids]), mean_loss(twins.here, [ids]), "The loss of one batch")


@evaluate_loss.check(points=2, needs=["measures_one_batch"])
def counts_every_target_once(answer, reference, draw):
    """The mean is over all counted targets of all batches, however large each batch is."""
    twins, batches = Twins(answer, PLAIN, draw), unequal(draw)
    right = mean_loss(twins.here, batches)
    a_float(answer(twins.there, batches), right, "The loss of three unequal batches")


@evaluate_loss.check(points=1, needs=["counts_every_target_once"])
def bears_a_batch_of_padding(answer, reference, draw):
    """A batch in which no target counts changes nothing."""
    twins, batches = Twins(answer, PLAIN, draw), unequal(draw)
    right = mean_loss(twins.here, batches)
    batches.insert(1, torch.zeros_like(batches[0]))
    a_float(answer(twins.there, batches), right, "With a batch of padding among them, the loss")


@evaluate_loss.check(points=1, needs=["counts_every_target_once"])
def takes_any_iterable(answer, reference, draw):
    """`batches` may be any iterable: a tuple, or an iterator that can be walked once."""
    twins, batches = Twins(answer, PLAIN, draw), unequal(draw)
    right = mean_loss(twins.here, batches)
    once = twins.there.find("builtins.iter")(batches)
    a_float(answer(twins.there, once), right, "The loss of an iterator's batches")
    a_float(answer(twins.there, tuple(batches)), right, "The loss of a tuple of batches")


@evaluate_loss.check(points=1, needs=["measures_one_batch"])
def runs_in_eval_mode(answer, reference, draw):
    """The model runs in eval mode: nothing is dropped, whatever mode it was in."""
    twins, batches = Twins(answer, DROPPED, draw), unequal(draw)
    twins.here.eval()
    for training in (True, False):
        twins.there.train(training)
        right = mean_loss(twins.here, batches)
        mode = "train" if training else "eval"
        a_float(answer(twins.there, batches), right, f"With a model in {mode} mode the loss")


@evaluate_loss.check(points=2, needs=["measures_one_batch"])
def restores_every_mode(answer, reference, draw):
    """Afterwards every submodule is in the mode it was in, also where they differ."""
    ids, found = padded(draw, 3, 6, 7), []
    for training, others in (
        (True, ()),
        (False, ()),
        (True, ("1.1",)),
        (False, ("1", "1.0", "1.1", "2")),
    ):
        model = Twins(answer, DROPPED, draw).there
        model.modes({"": training, **dict.fromkeys(others, not training)})
        answer(model, [ids])
        modes = modes_of(model, ("", "0", "1", "1.1", "2"))
        found += [(name, training != (name in others), mode) for name, mode in modes.items()]
    for one in found:  # all are read before any is judged: they tell one mistake from another
        same_mode(*one)


def modes_of(model, names):
    """{name: whether it is in train mode} of submodules, "" for the whole."""
    paths = [f"{name}.training".removeprefix(".") for name in names]
    return dict(zip(names, model.attributes(paths), strict=True))


def same_mode(name, before, after):
    """Fail unless a submodule is in the mode it was in."""
    if after != before:
        words = {True: "train", False: "eval"}
        raise Failure(
            f"Afterwards {f'submodule `{name}`' if name else 'the model'} is in {words[after]} "
            f"mode; before it was in {words[before]} mode."
        )


@evaluate_loss.check(points=2, needs=["measures_one_batch"])
def computes_no_gradients(answer, reference, draw):
    """No gradients are computed, and `.grad`, the weights and the ids are left alone."""
    twins, ids = Twins(answer, PLAIN, draw), padded(draw, 3, 6, 7)
    kept = draw.gain(7)
    twins.there.assign({"1.bias.grad": kept})
    seen = twins.there.find("unittest.mock.Mock")(return_value=None)
    twins.there.call((seen,), method="register_forward_hook")
    after = answer.call((twins.there, [ids]), after=True).arguments
    untouched(after[1][0], ids, "the batch")
    same(twins.there.attribute("1.bias.grad"), kept, "A `.grad` that was there before")
    if twins.there.attribute("0.weight.grad") is not None:
        raise Failure("`0.weight` has a `.grad` after the call.")
    if seen.attribute("called") and seen.at("call_args", 0, 2, "requires_grad"):
        raise Failure(
            "The logits carry a history for a backward pass, which costs memory and time. "
            "Run the model under `torch.no_grad()`."
        )
    twins.same_weights("After the call")


@evaluate_loss.check(points=1, needs=["computes_no_gradients"])
def leaves_gradients_on(answer, reference, draw):
    """For what comes after the call, gradients are on as before, but for frozen parameters."""
    twins, ids = Twins(answer, PLAIN, draw), padded(draw, 3, 6, 7)
    twins.freeze("1.bias")
    row = Row(answer)
    call = row.later(answer, twins.there, [ids])
    _, on = row.run(call, answer.find("torch.is_grad_enabled"))
    if on is not True:
        raise Failure("After the call gradients are switched off for everything that follows.")
    for name, one in twins.here.named_parameters():
        if twins.there.attribute(f"{name}.requires_grad") != one.requires_grad:
            words = {True: "on", False: "off"}
            raise Failure(
                f"After the call `requires_grad` of `{name}` is {words[not one.requires_grad]}; "
                f"before it was {words[one.requires_grad]}."
            )


class Row:
    """Calls made one after another where the answer runs, without anything in between."""

    def __init__(self, answer):
        self._later, self._call, self._map, self._list = (
            answer.find(name)
            for name in ("functools.partial", "operator.call", "builtins.map", "builtins.list")
        )

    def later(self, function, *args, **kwargs):
        return self._later(function, *args, **kwargs)

    def run(self, *calls):
        """What each of them returns."""
        return self._list(self._map(self._call, list(calls)))


# sample_next

ROWS = 3000  # as many draws from one distribution
DOUBT = 1e-9  # the chance that a check refuses a right sampler
SHARES = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.06, 0.04], dtype=torch.float64)


def shuffled(draw, shares=SHARES):
    """Shares in an order of their own, and logits whose softmax they are."""
    shares = shares[draw.normal(len(shares)).argsort().cpu()]
    logits = (shares.log() + 3 * draw.normal(1).cpu()).float()
    return shares, logits.to(draw.device)


def left_over(shares, kept):
    """The shares of the `kept` largest, which sum to 1; the others 0."""
    smallest = shares.sort(descending=True).values[kept - 1]
    left = shares.where(shares >= smallest, 0.0)
    return left / left.sum()


def are_int64(ids):
    if ids.dtype != torch.int64:
        raise Failure(f"The ids have dtype {short_name(ids.dtype)}; torch.int64 was asked for.")


def ids_of(got, rows, vocabulary):
    """Fail unless `got` is (rows,) ids."""
    shape_of(got, (rows,), "The result")
    are_int64(got)
    if ((got < 0) | (got >= vocabulary)).any():
        raise Failure(f"An id is outside 0 to {vocabulary - 1}.")


def drawn_from(got, shares, what):
    """Fail where ids can't have been drawn with these shares, whoever drew them.

    By Chernoff's bound n draws give a share q of tokens that have the share p, or one further off,
    with a chance of at most exp(-n KL(q, p)): an exact bound, for every n.
    """
    n, limit = len(got), math.log(2 * len(shares) / DOUBT)
    counts = torch.bincount(got.cpu(), minlength=len(shares))
    for token, (count, p) in enumerate(zip(counts.tolist(), shares.tolist(), strict=True)):
        q = count / n
        if count and p == 0:
            raise Failure(f"{what}: token {token} was drawn, which is left out.")
        if p == 0:
            continue
        terms = [(q, p), (1 - q, 1 - p)]
        kl = sum(a * math.log(a / b) if b else math.inf for a, b in terms if a)
        if n * kl > limit:
            raise Failure(
                f"{what}: token {token} came in {q:.1%} of {n} draws; its share is {p:.1%}."
            )


def in_turns(turns=1):
    """What tells samplers apart: how often each id comes, in each of the distributions in turn."""

    def trait(value):
        drawn = isinstance(value, torch.Tensor) and not value.dtype.is_floating_point
        return Drawn(value, turns) if drawn else value

    return trait


def draws(answer, draw, *cases):
    """Judge ROWS draws for each case: what it is, how many tokens are left, and the settings.

    All are drawn before any is judged: what comes tells one mistake from another.
    """
    found = []
    for what, shares, kept, settings in cases:
        shares, logits = shuffled(draw, shares)
        heated = shares ** (1 / settings.get("temperature", 1.0))
        right = left_over(heated / heated.sum(), kept)
        with answer.known_by(in_turns()):
            found.append((answer(logits.repeat(ROWS, 1), **settings), right, what))
    for got, right, what in found:
        ids_of(got, ROWS, len(right))
        drawn_from(got, right, what)


@sample_next.check(points=1)
def takes_the_largest_at_zero(answer, reference, draw):
    """Temperature 0 takes the largest logit of each row: (B,) ids."""
    for batch, vocabulary in ((4, 9), (1, 5), (6, 3)):
        logits = draw.normal(batch, vocabulary) - 2
        other = (logits.argmax(-1, keepdim=True) + 1) % vocabulary  # nearly as large
        logits.scatter_(1, other, logits.amax(-1, keepdim=True) - 0.01)
        ids = answer(logits, temperature=0)
        ids_of(ids, batch, vocabulary)
        same(ids, logits.argmax(-1), "At temperature 0 the ids")
    same(answer(logits, 0.0, 2, 0.9), logits.argmax(-1), "With top_k and top_p too, the ids")


@sample_next.check(points=1)
def draws_by_the_shares(answer, reference, draw):
    """Without settings each token comes as often as its softmax says."""
    with answer.known_by(in_turns()):
        ids_of(answer(draw.normal(1, 6)), 1, 6)
    twelve = torch.arange(12, 24, dtype=torch.float64) / 210
    draws(
        answer, draw, *(("Without settings", one, len(one), {}) for one in (SHARES, *[twelve] * 3))
    )


@sample_next.check(points=1, needs=["draws_by_the_shares"])
def each_row_has_its_own(answer, reference, draw):
    """Each row is drawn from its own logits, and filtered by its own."""
    flat = torch.tensor([0.22, 0.2, 0.19, 0.17, 0.14, 0.08], dtype=torch.float64)
    (one, first), (other, second) = shuffled(draw), shuffled(draw, flat)
    logits = torch.stack([first, second]).repeat(ROWS, 1)
    cases: tuple[tuple[dict, tuple], ...] = (
        ({}, (6, 6)),
        ({"top_k": 2}, (2, 2)),
        ({"top_p": 0.7}, (3, 4)),
    )
    with answer.known_by(in_turns(2)):
        found = [answer(logits, **settings) for settings, _ in cases]
    for got, (settings, kept) in zip(found, cases, strict=True):
        ids_of(got, 2 * ROWS, 6)
        for place, shares in enumerate((one, other)):
            right = left_over(shares, kept[place])
            drawn_from(got[place::2], right, f"Two distributions in turns, {settings}")


@sample_next.check(points=1, needs=["draws_by_the_shares"])
def divides_by_the_temperature(answer, reference, draw):
    """The logits are divided by the temperature: below 1 the likely tokens come more often."""
    settings = [{"temperature": 0.5}, {"temperature": 2.0}]
    draws(answer, draw, *((f"With {one}", SHARES, 6, one) for one in settings))
    logits = (30 * draw.normal(4, 9)).clamp(max=90)
    logits[:, 2], logits[:, 5] = 99.6, 100.0  # token 2 has a chance of exp(-40)
    logits = logits.repeat(500, 1)
    right = torch.full((len(logits),), 5, device=draw.device)
    with answer.known_by(in_turns(4)):
        ids = answer(logits, temperature=0.01)
    same(ids, right, "For logits to 100 and temperature 0.01 the ids")


@sample_next.check(points=1, needs=["draws_by_the_shares"])
def keeps_the_k_most_likely(answer, reference, draw):
    """With `top_k` the k most likely tokens are drawn, by their shares of what is left."""
    draws(answer, draw, *((f"With top_k={k}", SHARES, k, {"top_k": k}) for k in (1, 2, 5, 6)))


@sample_next.check(points=2, needs=["draws_by_the_shares"])
def keeps_the_smallest_set(answer, reference, draw):
    """With `top_p` the smallest set that reaches p is drawn, by the shares of what is left."""
    cases = ((0.5, 2), (0.7, 3), (0.87, 4), (1.0, 6))
    draws(answer, draw, *((f"With top_p={p}", SHARES, kept, {"top_p": p}) for p, kept in cases))


@sample_next.check(points=1, needs=["draws_by_the_shares"])
def never_leaves_nothing(answer, reference, draw):
    """However small p is, the most likely token is left."""
    draws(answer, draw, *((f"With top_p={p}", SHARES, 1, {"top_p": p}) for p in (0.3, 0.001)))


@sample_next.check(points=2, needs=["draws_by_the_shares"])
def goes_in_order(answer, reference, draw):
    """Temperature comes first, then top-k, then top-p on the shares of what is left."""
    cases = (
        (1, {"temperature": 0.5, "top_p": 0.5}),
        (4, {"temperature": 2.0, "top_p": 0.7}),
        (2, {"top_k": 3, "top_p": 0.75}),
        (1, {"top_k": 3, "top_p": 0.45}),
        (2, {"temperature": 2.0, "top_k": 3, "top_p": 0.7}),
    )
    draws(answer, draw, *((f"With {settings}", SHARES, kept, settings) for kept, settings in cases))


@sample_next.check(points=2, needs=["draws_by_the_shares"])
def draws_from_the_generator(answer, reference, draw):
    """All randomness comes from `generator`: its state decides, and torch's own is left alone."""
    _, logits = shuffled(draw)
    logits = logits.repeat(200, 1)
    from_generator(answer, draw, (logits,), {"temperature": 1.5, "top_k": 5, "top_p": 0.95})


def from_generator(answer, draw, args, settings):
    """Fail unless what a call draws comes from `generator` alone, which moves on."""
    row, make = Row(answer), answer.find("torch.Generator")
    on_cpu = torch.device(draw.device).type == "cpu"
    state = answer.find("torch.get_rng_state" if on_cpu else "torch.cuda.get_rng_state")
    seed = int(draw.integers(0, 1000, 1))

    def calls(seed):
        generator = make(draw.device).call((seed,), method="manual_seed").value
        return [row.later(answer, *args, generator=generator, **settings)] * 2

    # All in one request, since each request has a global seed of its own.
    first, again, another = calls(seed), calls(seed), calls(seed + 1)
    with answer.known_by(lambda value: _generator_s_part(value) if _are_calls(value) else value):
        found = row.run(state, *first, state, *again, *another)
    left_alone, moves_on, decides, differs = _generator_s_part(found)
    if not left_alone:
        raise Failure("With `generator` given, torch's own random state moved.")
    if not moves_on:
        raise Failure("Two calls with one generator drew the same ids: it did not move on.")
    if not decides:
        raise Failure("From one and the same state of `generator` other ids were drawn.")
    if not differs:
        raise Failure("A generator with another seed drew the same ids.")


def _are_calls(value):
    return isinstance(value, list) and all(isinstance(one, torch.Tensor) for one in value)


def _generator_s_part(found):
    """Of the state, two calls, the state, the same two calls again, and two from another seed."""
    before, *first, after = found[:4]
    again, another = found[4:6], found[6:]
    return (
        torch.equal(before, after),
        not torch.equal(*first),
        all(map(torch.equal, first, again)),
        not torch.equal(first[0], another[0]),
    )


@sample_next.check(points=1, needs=["draws_by_the_shares"])
def leaves_the_logits(answer, reference, draw):
    """The logits are the same after the call, and all happens on their device."""
    logits = draw.normal(4, 9)
    for settings in ({"temperature": 0.5}, {"top_k": 3}, {"temperature": 2.0, "top_p": 0.7}):
        with answer.known_by(in_turns(4)):
            after = answer.call((logits,), settings, after=True).arguments
        untouched(after[0], logits, "logits")
    answer.on_meta(logits, 0.7, 3, 0.9)


# generate


OVER_TOKENS = recipe("Sequential", recipe("Softmax", 1), recipe("Linear", 8, 8))


class Writer:
    """A DecoderOnlyLM on the answer's side, `there`, and the same one here.

    With `watches` its first block adds what depends on how many tokens come in one call, so that
    the ids tell how the model was fed.
    """

    def __init__(self, draw, watches=False, dropout=0.0):
        self._sizes, self._watches = (11, 8, 2, 2, 6, dropout), watches
        self.here = DecoderOnlyLM(*self._sizes).to(draw.device).eval()
        if watches:
            self.here.blocks[0].feed_forward = OVER_TOKENS.make().to(draw.device)
        with torch.no_grad():
            for one in self.here.parameters():
                one.copy_(draw.gain(*one.shape))

    def sent_to(self, answer):
        self.there = answer.find("solutions.stack.DecoderOnlyLM")(*self._sizes)
        if self._watches:
            self.there.assign({"blocks.0.feed_forward": OVER_TOKENS})
        self.there.load(**{name: one.detach() for name, one in self.here.named_parameters()})
        return self

    @torch.no_grad()
    def written(self, prompt, count, way):
        """The greedy ids, with the model fed in one of WAYS."""
        ids, fed, kept = prompt, 0, None
        for step in range(count):
            new = ids[:, fed:]
            if way == "everything":
                logits = self.here(ids)
            else:
                caches = kept
                for piece in new.split(1, dim=1) if way == "one by one" else [new]:
                    logits, caches = self.here(piece, caches=caches, use_cache=True)
                if step == 0 or way != "all since the prompt":
                    fed, kept = ids.shape[1], caches
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
        return ids


# A prompt may be fed as a whole or token by token, and then one new token after another.
WAYS = ("at once", "one by one", "everything", "all since the prompt")


def continues(got, prompt, count):
    """Fail unless `got` is the prompt with `count` ids behind it."""
    shape_of(got, (len(prompt), prompt.shape[1] + count), "The result")
    are_int64(got)
    same(got[:, : prompt.shape[1]], prompt, "The beginning of the result, the prompt,")


@generate.check(points=1)
def puts_new_ids_behind_the_prompt(answer, reference, draw):
    """The result is the prompt with `max_new_tokens` ids behind it, (B, T + new)."""
    writer = Writer(draw).sent_to(answer)
    for batch, length, count, settings in (
        (3, 4, 5, {"temperature": 0.0}),
        (2, 1, 3, {"temperature": 0.0}),
        (2, 3, 0, {"temperature": 0.0}),
        (3, 3, 2, {"use_cache": False}),
        (1, 6, 1, {"temperature": 2.0}),
    ):
        prompt = draw.integers(1, 11, batch, length)
        continues(answer(writer.there, prompt, count, **settings), prompt, count)


def twice(draw):
    """A prompt of four rows, and the same four again."""
    return draw.integers(1, 11, 4, 5).repeat(2, 1)


def certain(value):
    """What tells greedy writers apart: the ids, or that the two halves differ, so were drawn."""
    if isinstance(value, torch.Tensor) and value.dim() == 2 and len(value) == 8:
        return value if torch.equal(value[:4], value[4:]) else "drawn"
    return value


@generate.check(points=2, needs=["puts_new_ids_behind_the_prompt"])
def writes_the_most_likely(answer, reference, draw):
    """Each new id is the one with the largest logit after all ids before it, in every row."""
    writer, prompt = Writer(draw).sent_to(answer), twice(draw)
    right = writer.written(prompt, 6, "everything")
    with answer.known_by(certain):
        got = answer(writer.there, prompt, 6, use_cache=False, temperature=0.0)
    same(got, right, "Without the cache the ids")


@generate.check(points=2, needs=["puts_new_ids_behind_the_prompt"])
def writes_the_same_with_the_cache(answer, reference, draw):
    """With the cache, which is the default, the ids are the same."""
    writer, prompt = Writer(draw).sent_to(answer), twice(draw)
    right = writer.written(prompt, 6, "everything")
    with answer.known_by(certain):
        got = answer(writer.there, prompt, 6)
    same(got, right, "With the cache the ids")


def telling(answer, draw, batch, length, count):
    """A writer that watches, a prompt, and what each way of feeding writes: all of it differs."""
    while True:
        writer, prompt = Writer(draw, watches=True), draw.integers(1, 11, batch, length)
        ids = {way: writer.written(prompt, count, way) for way in WAYS}
        if not any(
            torch.equal(ids[one], ids[other])
            for one, other in itertools.combinations(WAYS, 2)
            if length > 1 or {one, other} != {"at once", "one by one"}
        ):
            return writer.sent_to(answer), prompt, ids


@generate.check(points=2, needs=["writes_the_same_with_the_cache"])
def feeds_the_new_token_alone(answer, reference, draw):
    """With the cache each step feeds the model the new token alone."""
    note = "This model notices how many tokens it is fed at once; after the prompt it is one."
    found = []
    for length in (1, 4):
        writer, prompt, ids = telling(answer, draw, 20, length, 8)
        seen = answer.find("unittest.mock.Mock")(return_value=None)
        writer.there.call((seen,), method="register_forward_pre_hook")
        found.append((answer(writer.there, prompt, 8), ids, length, seen.attribute("call_count")))
    for got, ids, length, calls in found:
        if not any(torch.equal(got, ids[way]) for way in ("at once", "one by one")):
            same(got, ids["at once"], "With the cache the ids", note=note)
        if calls > length + 8:  # each token by itself, the last one too
            raise Failure(f"To write 8 tokens behind {length} it called the model {calls} times.")


@generate.check(points=1, needs=["writes_the_most_likely"])
def feeds_everything_without_the_cache(answer, reference, draw):
    """With `use_cache=False` each step feeds the model all ids so far, and keeps nothing."""
    note = "This model notices how many tokens it is fed at once: without the cache it is all."
    writer, prompt, ids = telling(answer, draw, 5, 4, 8)
    got = answer(writer.there, prompt, 8, use_cache=False)
    same(got, ids["everything"], "The ids", note=note)


@generate.check(points=1, needs=["puts_new_ids_behind_the_prompt"])
def writes_in_eval_mode(answer, reference, draw):
    """It writes in eval mode: nothing is dropped."""
    writer, prompt = Writer(draw, dropout=0.6).sent_to(answer), twice(draw)
    right = writer.written(prompt, 6, "everything")
    for use_cache in (True, False):
        model = writer.there.train()
        with answer.known_by(certain):
            got = answer(model, prompt, 6, use_cache=use_cache)
        same(got, right, f"For a model with dropout, in train mode, use_cache={use_cache}, the ids")


@generate.check(points=1, needs=["puts_new_ids_behind_the_prompt"])
def restores_the_mode(answer, reference, draw):
    """Afterwards the model is in the mode it was in, all of it."""
    writer, prompt = Writer(draw, dropout=0.5).sent_to(answer), draw.integers(1, 11, 2, 3)
    found = []
    for training, use_cache in ((True, True), (False, True), (True, False)):
        answer(writer.there.train(training), prompt, 2, use_cache=use_cache)
        modes = modes_of(writer.there, ("", "blocks", "blocks.1.feed_forward"))
        found += [(name, training, mode) for name, mode in modes.items()]
    for one in found:
        same_mode(*one)


@generate.check(points=1, needs=["writes_the_most_likely"])
def draws_at_a_temperature(answer, reference, draw):
    """With a temperature each id is drawn from softmax(logits / temperature)."""
    writer, prompt = Writer(draw).sent_to(answer), draw.integers(1, 11, 1, 3)
    for temperature, use_cache in ((3.0, True), (6.0, False)):
        with torch.no_grad():
            shares = (writer.here(prompt)[0, -1].double() / temperature).softmax(-1).cpu()
        settings = {"temperature": temperature, "use_cache": use_cache}
        many = prompt.repeat(ROWS // 2, 1)
        with answer.known_by(in_turns(4)):
            got = answer(writer.there, many, 1, **settings)
        continues(got, many, 1)
        drawn_from(got[:, -1], shares, f"With temperature {temperature:g}")


@generate.check(points=2, needs=["draws_at_a_temperature"])
def writes_from_the_generator(answer, reference, draw):
    """All randomness comes from `generator`; its state decides, with and without the cache."""
    writer, prompt = Writer(draw).sent_to(answer), draw.integers(1, 11, 6, 3)
    from_generator(answer, draw, (writer.there, prompt, 8), {"temperature": 4.0})
    make, ids = answer.find("torch.Generator"), []
    for use_cache in (True, False):
        generator = make(draw.device).call((7,), method="manual_seed").value
        settings = {"use_cache": use_cache, "temperature": 4.0, "generator": generator}
        ids.append(answer(writer.there, prompt, 8, **settings))
    same(ids[0], ids[1], "From one state of the generator, the ids with the cache")


@generate.check(points=1, needs=["puts_new_ids_behind_the_prompt"])
def leaves_the_prompt_and_the_device(answer, reference, draw):
    """The prompt is the same after the call, and all happens on its device."""
    writer, prompt = Writer(draw).sent_to(answer), draw.integers(1, 11, 2, 3)
    after = answer.call((writer.there, prompt, 2), after=True).arguments
    untouched(after[1], prompt, "prompt_ids")
    model = writer.there.to(device="meta")
    for use_cache in (True, False):
        answer.on_meta(model, prompt, 2, use_cache=use_cache)
