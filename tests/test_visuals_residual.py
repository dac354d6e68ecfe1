"""The pictures of lesson 03 can be read without eyes, are the same at each run, and move."""

import re

import pytest
import torch
from torch import nn

from tests.pictures import drawn_twice
from visuals import residual
from visuals.figure import WidgetWithPicture

PICTURES = (
    residual.one_token,
    residual.stretched_update,
    residual.two_places,
    residual.dropout_places,
    residual.gradient_by_depth,
    residual.gradient_by_layer,
)


@pytest.mark.parametrize("show", PICTURES)
def test_a_picture_has_a_text_alternative_and_the_same_bytes_twice(show):
    assert drawn_twice(show).caption


def test_in_a_kernel_the_widget_is_shown_with_its_picture_beside_it(monkeypatch):
    monkeypatch.setattr(residual, "widgets_run", lambda: True)
    shown = residual.gradient_by_layer()
    assert isinstance(shown, WidgetWithPicture)
    bundle = shown._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == shown.picture.alt


def test_the_sliders_move_the_picture():
    depth, seed, shown = residual._explorer(4, 0).children

    def said():
        return re.findall(r"<figcaption>(.*)</figcaption>", shown.value)[0]

    before = said()
    assert "4 layers, seed 0: no shortcut" in before
    depth.value = 8
    assert "8 layers, seed 0: no shortcut 4e-6 at the first layer" in said()
    seed.value = 1
    assert "8 layers, seed 1" in said()


def test_the_gradients_are_those_of_torch_s_modules():
    """The stack drawn from its weights, built from nn.Linear and nn.LayerNorm."""
    generator, width = torch.Generator().manual_seed(3), residual.WIDTH

    def uniform(*shape, fan_in):
        unit = torch.rand(*shape, generator=generator, dtype=torch.float64)
        return nn.Parameter((2 * unit - 1) / fan_in**0.5)

    h = torch.randn(8, width, generator=generator, dtype=torch.float64)
    head = uniform(4, width, fan_in=width)
    norm, firsts = nn.LayerNorm(width).double(), []
    for _ in range(3):
        into, out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        into.weight, out.weight = (
            uniform(4 * width, width, fan_in=width),
            uniform(width, 4 * width, fan_in=4 * width),
        )
        into.bias, out.bias = uniform(4 * width, fan_in=width), uniform(width, fan_in=4 * width)
        firsts.append(into.weight)
        h = h + nn.Sequential(into, nn.GELU(), out)(norm(h))
    (norm(h) @ head.T).square().mean().backward()
    expected = [weight.grad.norm().item() for weight in firsts]
    assert residual.gradient_norms("pre-norm", 3, 3) == pytest.approx(expected)


def test_what_the_lesson_says_about_ten_seeds():
    def ends(kind, depth):
        return [residual.gradient_norms(kind, depth, seed) for seed in range(10)]

    post = [one[0] < one[-1] for one in ends("post-norm", 64)]
    assert post == [True] * 9 + [False]
    assert all(one[0] > one[-1] for one in ends("pre-norm", 64))
    assert all(one[0] < 0.03 for one in ends("no shortcut", 4))
    assert not all(one[0] < 0.03 for one in ends("no shortcut", 3))
