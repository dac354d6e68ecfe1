"""Messages carry everything a check sends, and nothing a pickle could."""

import math
import struct

import pytest
import torch

from autograder import course
from autograder.judge.compare import alike
from autograder.judge.diagnose import WHOLLY, agent_for, behaviour, likeness_of, run_check
from autograder.judge.messages import decode, encode
from autograder.judge.subject import LocalLink
from autograder.judge.values import Handle, Unfit, recipe
from tests.process_link import ProcessLink

SHARED = torch.randn(4, 2)


def test_values_come_back_as_they_went():
    value = {
        "tensors": [torch.randn(2, 3), torch.randn(3, 2).T, torch.tensor(True), torch.ones(0, 4)],
        "shared": [SHARED, SHARED, SHARED[1:]],
        "half": torch.ones(2, dtype=torch.bfloat16),
        "numbers": (1, -(2**70), 0.5, math.inf, 1j, True, None),
        3: Handle(7, "KVCache"),
        "recipe": recipe("Linear", 4, 4, bias=False),
        "dtype": torch.float64,
        "device": torch.device("cpu"),
        "empty": [[], (), {}],
    }
    back = decode(encode(value))
    assert alike(back, value)
    assert back["recipe"] == value["recipe"] and back[3] == value[3]
    assert math.isnan(decode(encode(math.nan)))
    meta = decode(encode(torch.ones(2, 3, device="meta")))
    assert meta.device.type == "meta" and meta.shape == (2, 3)


def test_a_transposed_tensor_arrives_transposed():
    cube = torch.randn(2, 3, 4)
    for sent in (cube.mT, cube.permute(2, 0, 1), cube[:, 1].T, cube[None].transpose(1, 3)):
        back = decode(encode(sent))
        assert torch.equal(back, sent) and not back.is_contiguous()
    for sent in (cube, cube[:, 1], cube[:, :1].expand(2, 3, 4), torch.ones(()), torch.ones(0, 3)):
        back = decode(encode(sent))
        assert torch.equal(back, sent) and back.is_contiguous()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"1234567",
        struct.pack(">Q", 2**60) + b"{}",
        struct.pack(">Q", 4) + b"\x80\x04N.",
        struct.pack(">Q", 2) + b"{}",
        struct.pack(">Q", 14) + b'{"tensor":"0"}',
        struct.pack(">Q", 14) + b'{"pickle":"x"}',
        encode(torch.ones(2, 3).T).replace(b"[1, 0]", b"[1, 7]"),
        struct.pack(">Q", 18) + b'{"dtype":"randint"}'[:18],
        struct.pack(">Q", 24) + b'{"recipe":["os.system",1]}'[:24],
        struct.pack(">Q", 4) + b"null" + b"not safetensors at all",
        struct.pack(">Q", 200_000) + b"[" * 200_000,
    ],
)
def test_a_damaged_or_forged_message_is_unfit(message):
    with pytest.raises(Unfit):
        decode(message)


def test_what_has_no_message_is_refused():
    for value in ({"x": object()}, torch.ones(2, dtype=torch.complex128)):
        with pytest.raises(Unfit):
            encode(value)


MISTAKES = 6  # of each exercise, from all over its catalogue


@pytest.fixture(scope="module")
def process():
    link = ProcessLink()
    yield link
    link.close()


@pytest.mark.parametrize("lesson", course.lesson_names())
def test_a_process_of_its_own_gives_the_same_verdicts(lesson, process):
    """The checks run over messages as they run on local objects: for the reference and for mistakes
    of every sort, the same points and sentences come out, and what tells mistakes apart."""
    for exercise in course.exercises_of(lesson).values():
        answers = [(None, exercise.reference)]
        step = max(1, len(exercise.mistakes) // MISTAKES)
        answers += [(place, one.answer) for place, one in enumerate(exercise.mistakes)][::step]
        for place, answer in answers:
            local = LocalLink(agent_for(exercise, answer))
            remote = process.open(exercise.name, place)
            for check in exercise.checks:
                here, there = (run_check(exercise, check, link, 3) for link in (local, remote))
                assert here[0] == there[0]
                for one, other in zip(here[1], there[1], strict=True):
                    likeness = likeness_of(behaviour(one), behaviour(other))
                    assert likeness == WHOLLY, (place, check.name, one, other)
