"""What a check can run back through, and what it can do to what came back."""

from collections import namedtuple
from typing import NamedTuple

import pytest
import torch

from autograder.judge import Failure
from autograder.judge.agent import Agent
from autograder.judge.subject import LocalLink, Subject


def subject(answer):
    return Subject(LocalLink(Agent(answer)), "answer")


class Pair:
    def __init__(self, one, other):
        self.one, self.other = one, other

    def doubled(self, x):
        return Pair(self.one * x, torch.zeros(3))


ONE, OTHER = torch.tensor([2.0, 3.0, 5.0]), torch.tensor([7.0, 11.0, 13.0])


def test_gradients_run_back_from_each_item_of_a_tuple():
    answer = subject(lambda x, y: (x * y, [x + y][0]))
    found = answer.backward((ONE, torch.ones(3)), ONE, OTHER).gradients
    assert found[0].tolist() == (ONE * OTHER + 1).tolist()
    assert found[1].tolist() == (ONE * ONE + 1).tolist()
    assert answer.backward((ONE, None), ONE, OTHER).gradients[1].tolist() == (ONE * ONE).tolist()


def test_gradients_run_back_from_attributes():
    answer = subject(lambda x, y: Pair(3 * x, x * y))
    found = answer.backward({"one": ONE, "other": OTHER}, ONE, OTHER).gradients
    assert found[0].tolist() == (3 * ONE + OTHER * OTHER).tolist()
    assert found[1].tolist() == (OTHER * ONE).tolist()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x: x, "2 tensors are asked for, and one value came back"),
        (lambda x: (x, x, x), "2 tensors are asked for, and 3 came back"),
        (lambda x: (x, 1.0), "a tensor is asked for, and a float came back"),
        (lambda x: (x, x.detach()), "does not require grad"),
    ],
)
def test_what_can_t_be_run_back_is_said(answer, words):
    with pytest.raises(Failure, match=words):
        subject(answer).backward((ONE, OTHER), ONE)


class Pile(NamedTuple):
    items: torch.Tensor

    @property
    def height(self):
        return len(self.items)


def test_a_named_tuple_with_methods_is_an_object_and_one_without_is_a_tuple():
    assert subject(Pile)(ONE).attribute("height") == 3
    plain = subject(lambda x: torch.max(x, dim=0))(ONE)
    assert [one.item() for one in plain] == [5.0, 2]
    assert subject(namedtuple("Two", "one other"))(1, 2) == (1, 2)


def test_what_came_back_takes_part_in_a_run_on_another_device():
    pair = subject(Pair).on_meta(ONE, OTHER)
    made = pair.attribute("doubled").on_meta(ONE)
    assert made.attribute("one").device.type == "meta"
    assert made.attribute("other").device.type == "cpu"


def test_a_mask_without_axes_has_to_be_on_the_device_too():
    on_the_cpu = torch.tensor(True)
    with pytest.raises(Failure, match="left on the CPU"):
        subject(lambda x: x.masked_fill(on_the_cpu, 0.0)).on_meta(ONE)
    subject(lambda x: x.masked_fill(on_the_cpu.to(x.device), torch.tensor(0.0))).on_meta(ONE)
    subject(lambda x: (x > 0) & on_the_cpu).on_meta(ONE)
