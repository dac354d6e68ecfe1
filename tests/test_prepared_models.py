"""What checks can do to a model before an answer is given it, and how two answers are compared."""

import pytest
import torch
from torch import nn

from autograder.judge import Failure, diagnose, recipe
from autograder.judge.agent import Agent
from autograder.judge.compare import alike
from autograder.judge.diagnose import OUTLINES, WHOLLY, likeness_of
from autograder.judge.messages import decode, encode
from autograder.judge.subject import LocalLink, Recorder, Subject

MODEL = recipe("Sequential", recipe("Linear", 2, 3), recipe("Dropout", 0.5))


def subject(answer):
    return Subject(LocalLink(Agent(answer)), "answer")


def test_recipes_may_be_nested_and_sent():
    made = decode(encode(MODEL)).make()
    assert isinstance(made, nn.Sequential) and made[0].out_features == 3 and made[1].p == 0.5


def test_a_made_model_is_prepared_given_and_read():
    answer = subject(lambda model: model[0].spare.weight.requires_grad)
    model = answer.make(MODEL)
    model.assign({"0.spare": recipe("Linear", 1, 1), "0.spare.weight.requires_grad": False})
    model.assign({"0.bias.grad": torch.ones(3)}).modes({"": True, "1": False})
    assert answer(model) is False
    assert model.attribute("0.bias.grad").tolist() == [1, 1, 1]
    assert model.attribute("0.weight.grad") is None
    assert model.attributes(["training", "1.training"]) == [True, False]


def test_a_module_comes_back_ready_for_what_a_check_does_with_it():
    answer, weight = subject(lambda: nn.Sequential(nn.Linear(2, 3))), torch.ones(3, 2)
    module = answer.call(rename=["0"], load={"0.0": weight}, train=False).value
    found = module.describe()
    assert set(found.parameters) == {"0.0", "0.1"} and found.modules["0"] == ("Linear", False)
    assert torch.equal(found.state["0.0"], weight)
    made = answer.make(MODEL, load={"0.weight": torch.ones(3, 2)}, train=False)
    assert made.attribute("training") is False and made.attribute("0.weight").sum() == 6
    for wrong in ({"1.weight": weight}, {"0.weight": weight.T}):
        with pytest.raises(Failure, match=r"weight"):
            answer.call(load=wrong)


def test_what_no_recipe_makes_is_found_where_the_answer_runs():
    answer = subject(lambda optimizer, batches: (len(optimizer.param_groups), *batches))
    model = answer.make(MODEL)
    parameters = model.call((), method="parameters").value
    optimizer = answer.find("torch.optim.SGD")(parameters, lr=0.5)
    assert answer(optimizer, answer.find("builtins.iter")([2, 3])) == (1, 2, 3)


def test_what_a_mock_saw_of_a_model_can_be_read():
    answer = subject(len)
    model, seen = answer.make(MODEL), answer.find("unittest.mock.Mock")(return_value=None)
    model.call((seen,), method="register_forward_hook")
    model(torch.ones(4, 2))
    assert seen.at("call_args", 0, 2, "requires_grad") is True
    assert seen.at("call_args", 0, 1, 0).shape == (4, 2)
    with pytest.raises(Failure, match="no part"):
        seen.at("call_args", 7)


def test_what_is_not_there_is_a_failure():
    with pytest.raises(Failure, match="no attribute 'Nothing'"):
        subject(len).find("torch.optim.Nothing")


def refuses(words):
    def answer(x):
        raise ValueError(words)

    return answer


def behaviour(answer, x):
    reply = Agent(answer).perform({"do": "call", "target": 0, "args": (x,)})
    return diagnose.behaviour(reply)


def test_own_errors_are_compared_by_their_numbers_and_torch_s_by_their_words():
    one = behaviour(refuses("x has shape (2, 3)"), 1)
    assert likeness_of(one, behaviour(refuses("[2, 3] is wrong"), 1)) == WHOLLY
    assert likeness_of(one, behaviour(refuses("x has shape (3, 2)"), 1)) == OUTLINES
    words, lists = behaviour(lambda x: x + "a", 1), behaviour(lambda x: x + [], 1)
    assert not likeness_of(words, lists)


def test_an_error_about_none_is_one_in_outlines_whatever_was_done_with_it():
    one, other = behaviour(lambda x: x.shape, None), behaviour(lambda x: x + 1, None)
    assert likeness_of(one, other) == OUTLINES
    assert not likeness_of(one, behaviour(lambda x: x.size, 1))


def test_what_an_argument_is_changed_to_is_no_part_of_the_outlines():
    def change(answer):
        recorder = Recorder(LocalLink(Agent(answer)))
        Subject(recorder, "answer").call((torch.ones(3),), after=True)
        return diagnose.behaviour(recorder.replies[0])

    added, doubled = (change(lambda x, by=by: x.add_(by) is None) for by in (1, 2))
    assert likeness_of(added, doubled) == OUTLINES
    assert likeness_of(added, change(lambda x: x.mul_(2) is None)) == WHOLLY
    assert not likeness_of(added, change(lambda x: False))


def test_nan_is_like_nan_alone():
    assert alike(float("nan"), float("nan"))
    assert not alike(float("nan"), 1.0) and not alike(1.0, float("nan"))


def test_what_an_answer_draws_is_the_same_in_every_run_and_new_at_each_call():
    def run():
        answer = Subject(Recorder(LocalLink(Agent(torch.rand))), "answer")
        return answer(3), answer(3)

    (one, other), again = run(), run()
    assert not torch.equal(one, other)
    assert torch.equal(one, again[0]) and torch.equal(other, again[1])
