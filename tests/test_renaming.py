"""What an answer may call as it likes: checks find it, and known mistakes are recognised."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from autograder import evaluate
from autograder.judge.agent import Agent
from autograder.judge.subject import Failure, LocalLink, Recorder, Subject
from solutions.block import to_reference
from tests.styles.block import InSequence, TokensFirst, in_a_notebook


class Ffn(nn.Module):
    """Its second layer made first, and one layer under two names."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(7, 4), nn.Linear(4, 7)
        self.all = nn.ModuleList([self.up])

    def forward(self, x):
        return self.down(self.all[0](x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ffn, self.out = Ffn(), nn.Linear(4, 4)

    def forward(self, x):
        return self.out(self.ffn(x))


def subject(root):
    recorder = Recorder(LocalLink(Agent(root)))
    return Subject(recorder, "answer"), recorder


OURS = {"ffn.0": (7, 4), "ffn.1": (7,), "ffn.2": (4, 7), "ffn.3": (4,)}


def test_parameters_inside_a_part_are_called_by_their_shapes():
    answer, _ = subject(Block)
    module = answer().rename("ffn")
    found = module.describe().parameters
    assert {name: info.shape for name, info in found.items() if "ffn" in name} == OURS
    assert {"out.weight", "out.bias"} < set(found)
    weights = {name: torch.randn(*shape) for name, shape in OURS.items()}
    state = module.load(**weights).describe().state
    assert all(torch.equal(state[name], one) for name, one in weights.items())
    outcome = module.backward(torch.ones(2, 4), torch.randn(2, 4))
    assert set(outcome.parameters) == {*OURS, "out.weight", "out.bias"}
    assert outcome.parameters["ffn.0"].shape == (7, 4)


def test_names_of_ours_go_with_the_object_wherever_it_is_moved_and_with_no_other():
    answer, _ = subject(Block)
    module, other = answer().rename("ffn"), answer()
    wide = module.to(dtype=torch.float64)
    assert "ffn.0" in wide.describe().parameters
    assert "ffn.up.weight" in other.describe().parameters
    with pytest.raises(Failure, match=r"ffn\.0"):
        other.load(**{"ffn.0": torch.zeros(7, 4)})


def test_what_has_no_such_part_keeps_its_names():
    answer, _ = subject(lambda: nn.Linear(2, 2))
    assert set(answer().rename("ffn").describe().parameters) == {"weight", "bias"}


class Relu(TokensFirst):
    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        h = self.ln1(x).transpose(0, 1)
        out = self.self_attn(h, h, h, key_padding_mask, True, blocked_attn_mask)[0]
        x = x + out.transpose(0, 1)
        return x + self.ffn["down"](F.relu(self.ffn["up"](self.ln2(x))))


class Detached(InSequence):
    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        h = self.ln1(x)
        masks = {"key_padding_mask": key_padding_mask, "attn_mask": blocked_attn_mask}
        x = x + self.drop1(self.self_attn(h, h, h, **masks)[0]).detach()
        return x + self.ffn(self.ln2(x))


class DroppedOnTheSum(InSequence):
    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        h = self.ln1(x)
        masks = {"key_padding_mask": key_padding_mask, "attn_mask": blocked_attn_mask}
        x = self.drop1(x + self.self_attn(h, h, h, **masks)[0])
        return self.drop2(x + self.ffn(self.ln2(x)))


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (Relu, "relu_for_gelu"),
        (Detached, "branch_detached"),
        (DroppedOnTheSum, "dropout_on_the_stream"),
    ],
)
def test_a_mistake_is_recognised_whatever_the_layers_are_called(answer, name):
    report = evaluate("TransformerBlock", answer)
    assert set(report.advice) == {name}, report.text()


def test_an_earlier_answer_is_found_beside_a_function():
    answer, _ = subject(in_a_notebook(to_reference, TransformerBlock=TokensFirst, size=3))
    beside = answer.beside("TransformerBlock")
    assert isinstance(beside, Subject)
    assert "ffn.up.weight" in beside(8, 2).describe().parameters
    assert answer.beside("NoSuchThing") is None
    assert answer.beside("size") is None
    assert subject(torch.nn.Linear)[0].beside("TransformerBlock") is None


def post_norm_layer(block):
    first, second = (one for one in block.ffn.modules() if isinstance(one, nn.Linear))
    layer = nn.TransformerEncoderLayer(
        first.in_features,
        block.self_attn.num_heads,
        first.out_features,
        activation="gelu",
        batch_first=True,
    ).to(first.weight)
    parts = (block.ln1, block.self_attn, block.ln2, first, second)
    own = (layer.norm1, layer.self_attn, layer.norm2, layer.linear1, layer.linear2)
    for mine, theirs in zip(parts, own, strict=True):
        theirs.load_state_dict(mine.state_dict())
    return layer


def test_a_mistake_is_recognised_with_any_block_or_none_beside_it():
    unanswered = type("Unanswered", (nn.Module,), {})
    for beside in ({}, {"TransformerBlock": InSequence}, {"TransformerBlock": unanswered}):
        report = evaluate("to_reference", in_a_notebook(post_norm_layer, **beside))
        assert set(report.advice) == {"post_norm_layer"}, report.text()


def test_what_is_done_aside_is_not_kept_and_is_undone():
    answer, recorder = subject(Block)
    with answer.aside():
        module = answer()
        module(torch.zeros(1, 4))
    assert recorder.replies == []
    module(torch.zeros(1, 4))
    assert len(recorder.replies) == 1
    with pytest.raises(Failure), answer.aside():
        raise Failure
    draws, _ = subject(torch.rand)
    with draws.aside():
        assert not torch.equal(draws(3), draws(3))
    assert recorder.keeps
