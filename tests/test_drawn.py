"""Mistakes of what draws are told apart by how often each value comes; and two mistakes at once."""

import pytest
import torch

from autograder.judge import Drawn, Exercise, Failure
from autograder.judge.agent import Agent
from autograder.judge.compare import alike
from autograder.judge.diagnose import agent_for
from autograder.judge.evaluate import judge
from autograder.judge.exercise import Mistake
from autograder.judge.subject import LocalLink, Recorder, Subject

SHARES = torch.tensor([0.5, 0.3, 0.2])


def drawn(shares, seed, turns=1, n=3000):
    generator = torch.Generator().manual_seed(seed)
    return Drawn(torch.multinomial(shares, n, replacement=True, generator=generator), turns)


def test_draws_are_alike_when_their_shares_are():
    for seed in range(1, 40):
        assert alike(drawn(SHARES, 0), drawn(SHARES, seed))
    assert alike(drawn(SHARES, 1, n=4), drawn(SHARES, 2, n=4))
    none = torch.zeros(0, dtype=torch.int64)
    assert alike(Drawn(none), Drawn(none))


@pytest.mark.parametrize("other", [[0.58, 0.22, 0.2], [0.3, 0.5, 0.2], [0.5, 0.5, 0.0]])
def test_draws_from_other_shares_are_not(other):
    assert not alike(drawn(SHARES, 0), drawn(torch.tensor(other), 0))


def test_draws_of_another_shape_type_or_turn_are_not():
    one = drawn(SHARES, 0)
    for other in (
        Drawn(one.numbers[:, None]),
        Drawn(one.numbers[1:]),
        Drawn(one.numbers.int()),
        Drawn(one.numbers, 2),
        one.numbers,
    ):
        assert not alike(one, other)
    swapped = torch.stack([drawn(SHARES, 0).numbers, drawn(SHARES.flip(0), 0).numbers], 1).flatten()
    assert not alike(Drawn(swapped, 2), Drawn(swapped.view(-1, 2).flip(1).flatten(), 2))
    assert alike(Drawn(swapped), Drawn(swapped.view(-1, 2).flip(1).flatten()))


def test_no_tensor_is_too_odd_to_be_compared():
    many = Drawn(torch.arange(100_000))
    assert alike(many, many) and alike(many, Drawn(many.numbers.flip(0)))
    for odd in (torch.zeros(3, dtype=torch.complex64), torch.ones(3, device="meta").long()):
        assert alike(Drawn(odd), Drawn(odd))
    assert not alike(Drawn(torch.ones(3).long()), Drawn(torch.ones(3, device="meta").long()))


def test_what_is_not_answered_yet_is_no_mistake():
    toy = Exercise("toy", reference=lambda x: x)
    toy.add("at_1", "It returns x.", equals(1, 1))

    def unanswered(x):
        raise NotImplementedError()

    toy.mistakes.append(Mistake("left", "So.", unanswered))
    (check,) = judge(toy, LocalLink(agent_for(toy, unanswered)), 0).checks
    assert not check.passed and check.mistake is None and "not answered" in check.message


def test_a_reply_is_known_by_its_trait_and_the_check_still_sees_it_whole():
    recorder = Recorder(LocalLink(Agent(torch.arange)))
    answer = Subject(recorder, "answer")
    with answer.known_by(lambda value: len(value)):
        assert answer(3).tolist() == [0, 1, 2]
        with answer.known_by(str):
            answer(2)
        answer(4)
    answer(2)
    *known, whole = (reply["value"] for reply in recorder.replies)
    assert known == [3, "tensor([0, 1])", 4] and whole.tolist() == [0, 1]


def equals(what, wanted):
    def run(answer, reference, draw):
        if answer(what) != wanted:
            raise Failure("no")

    return run


def test_a_second_name_agrees_with_the_checks_that_have_one():
    toy = Exercise("toy", reference=lambda x: x)
    for what in (1, 2, 3):
        toy.add(f"at_{what}", "It returns x.", equals(what, what))
    answers = {
        "doubled": lambda x: x if x == 3 else 2 * x,
        "nine_and_seven": lambda x: {1: 9, 2: 2, 3: 7}[x],
        "seven": lambda x: 7 if x == 3 else x,
    }
    toy.mistakes += [Mistake(name, "So.", one) for name, one in answers.items()]

    def named(answer, mistakes=toy.mistakes):
        toy.mistakes[:] = mistakes
        checks = judge(toy, LocalLink(agent_for(toy, answer)), 0).checks
        return {check.name: check.mistake for check in checks if not check.passed}

    both = {"at_1": "doubled", "at_2": "doubled", "at_3": "seven"}
    assert named(lambda x: {1: 2, 2: 4, 3: 7}[x]) == both
    # At 1 the second mistake would have shown, so at 3 the answer did something else.
    without = [one for one in toy.mistakes if one.name != "seven"]
    assert named(lambda x: {1: 2, 2: 4, 3: 7}[x], without) == {**both, "at_3": None}
