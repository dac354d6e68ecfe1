"""The pictures of lesson 06 can be read without eyes; its patients are as ill as it says."""

import pytest
import torch
from torch import nn

from solutions.block import PostNormBlock, TransformerBlock
from tests.pictures import drawn_twice
from tests.styles.block import InSequence, PostTokensFirst, TokensFirst
from visuals import block

CPU = torch.device("cpu")


def stacks(pre=TransformerBlock, post=PostNormBlock, count=3):
    torch.manual_seed(0)
    blocks = [pre(8, 2) for _ in range(count)], [post(8, 2, 20) for _ in range(count)]
    return torch.randn(2, 5, 8), *blocks


def a_stream():
    x, pre, post = stacks()
    return block.stream(x, pre_norm=pre, post_norm=post)


PICTURES = (
    block.two_writes,
    block.three_orders,
    block.three_thirds,
    block.three_architectures,
    a_stream,
)


@pytest.mark.parametrize("show", PICTURES)
def test_a_picture_has_a_text_alternative_and_the_same_bytes_twice(show):
    drawn_twice(show)


def test_the_stream_is_that_of_the_blocks_that_are_given():
    x, pre, post = stacks()
    for blocks, names in ((pre, ("ln1", "self_attn", "ln2", "ffn")), (post, None)):
        sizes, writes = block.norms_of_the_stream(blocks, x)
        h = x.double()
        expected = [h.norm(dim=-1).mean().item()]
        for one in blocks:
            one.double().eval()
            if names:
                normed = one.ln1(h)
                h = h + one.self_attn(normed, normed, normed)[0]
            else:
                h = one.norm1(h + one.attn(h, h, h)[0])
            expected.append(h.norm(dim=-1).mean().item())
            h = h + one.ffn(one.ln2(h)) if names else one.norm2(h + one.ff(h))
            expected.append(h.norm(dim=-1).mean().item())
        assert sizes == pytest.approx(expected, rel=1e-6)
        assert len(writes) == len(sizes) - 1


def test_the_stream_leaves_the_blocks_as_they_were():
    x, pre, _ = stacks()
    before = {name: one.clone() for name, one in pre[0].state_dict().items()}
    block.stream(x, pre_norm=pre)
    assert pre[0].training and not pre[0].ln2._forward_pre_hooks
    assert all(torch.equal(one, before[name]) for name, one in pre[0].state_dict().items())


@pytest.mark.parametrize("pre", [InSequence, TokensFirst])
def test_the_stream_of_blocks_in_other_styles(pre):
    x, blocks, post = stacks(pre, PostTokensFirst)
    for one in (blocks, post):
        sizes, writes = block.norms_of_the_stream(one, x)
        assert len(sizes) == 7 and min(writes) > 0


def test_a_silent_branch_writes_nothing():
    x, pre, _ = stacks()
    for parameter in pre[1].ffn.parameters():
        nn.init.zeros_(parameter)
    _, writes = block.norms_of_the_stream(pre, x)
    assert [write == 0 for write in writes] == [False, False, False, True, False, False]


def test_a_norm_makes_every_token_as_large_as_the_root_of_its_width():
    x, _, post = stacks()
    sizes, _ = block.norms_of_the_stream(post, x)
    assert sizes[1:] == pytest.approx([8**0.5] * 6, abs=1e-3)


def test_thirds_and_heads_are_named_as_they_lie():
    alt = block.three_thirds().alt
    assert "q0 q0 q1 q1 q2 q2 k0 k0 k1 k1 k2 k2 v0 v0 v1 v1 v2 v2" in alt
    assert "q0 q0 k0 k0 v0 v0 q1 q1 k1 k1 v1 v1" in alt


# The five checks of the lesson


def examined(patient, x):
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)

    def leaks():
        changed = x.clone()
        changed[:, -1] *= -1
        results = []
        for one in (x, changed):
            torch.manual_seed(0)
            results.append(patient(one, later)[:, :-1])
        return not torch.allclose(*results, atol=1e-5)

    leak = leaks()
    patient.eval()
    still = torch.allclose(patient(x), patient(x), atol=1e-6)
    patient.train()
    patient(x).square().mean().backward()
    missing = [name for name, one in patient.named_parameters() if one.grad is None]
    patient.eval()
    for parameter in patient.ffn.parameters():
        nn.init.zeros_(parameter)
    writes = not torch.allclose(patient(x), x, atol=1e-3)
    return leak, still, missing, writes


WELL = (False, True, [], True)
FOUND = {
    "ash": (False, True, ["ln2.weight", "ln2.bias"], True),
    "birch": (False, False, [], True),
    "cedar": (False, True, [], False),
    "elm": WELL,
    "fir": (True, True, [], True),
}


def test_each_patient_is_conspicuous_in_one_check():
    x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    sick = block.patients(32, 4, CPU)
    counts = {name: sum(one.numel() for one in each.parameters()) for name, each in sick.items()}
    assert counts == dict.fromkeys(sick, 12_704) | {"elm": 12_704 - 4_224}
    assert {name: examined(patient, x) for name, patient in sick.items()} == FOUND


def test_patients_are_the_same_every_time_and_draw_nothing_from_the_reader_s_numbers():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    one, other = (block.patients(8, 2, CPU) for _ in range(2))
    assert torch.equal(torch.rand(3), expected)
    for name in one:
        for mine, theirs in zip(one[name].parameters(), other[name].parameters(), strict=True):
            assert torch.equal(mine, theirs)


def test_without_its_wrong_line_a_patient_is_the_block():
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    well = block._Block(8, 2).eval()
    own = TransformerBlock(8, 2).eval()
    own.load_state_dict(
        {
            name.replace("ffn.0", "ffn.input_projection").replace(
                "ffn.2", "ffn.output_projection"
            ): one
            for name, one in well.state_dict().items()
        }
    )
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(well(x, later), own(x, later))


def test_the_verdict_counts_and_says_no_more():
    assert block.verdict(dict.fromkeys(block.PATIENTS, "?")) == "0 of 5 are right"
    assert block.verdict(block.WRONG_LINES) == "5 of 5 are right"
    assert block.verdict({"ash": 4, "birch": 1}) == "1 of 5 are right"
