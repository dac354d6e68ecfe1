"""Lesson 02's pictures can be read without eyes, are the same at each run, and say what is so."""

import re

import ipywidgets
import pytest
import torch
from torch import nn

from tests.pictures import drawn_twice
from visuals import ffn
from visuals.figure import WidgetWithPicture

PICTURES = (
    ffn.one_map_in_place_of_two,
    ffn.share_below,
    ffn.three_activations,
    ffn.inside_feed_forward,
    ffn.inside_swiglu,
    ffn.who_moves,
    ffn.what_it_can_bend,
    ffn.where_parameters_are,
)


@pytest.mark.parametrize("show", PICTURES)
def test_a_picture_has_a_text_alternative_and_the_same_bytes_twice(show):
    picture = drawn_twice(show)
    assert picture.caption.endswith(".") or show is ffn.what_it_can_bend


def test_without_an_activation_more_hidden_units_do_not_help():
    assert ffn._bent(1, "none")[3] == pytest.approx(ffn._bent(32, "none")[3])


@pytest.mark.parametrize("activation", ["ReLU", "GELU"])
def test_with_an_activation_they_do(activation):
    distances = [ffn._bent(hidden, activation)[3] for hidden in (1, 2, 4, 8, 16, 32)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.02


def explorer() -> tuple[ipywidgets.SelectionSlider, ipywidgets.ToggleButtons, ipywidgets.HTML]:
    width, choice, shown = ffn._explorer(4, "GELU").children
    return width, choice, shown


def said(shown: ipywidgets.HTML) -> str:
    caption = re.search(r"<figcaption>(.*)\.</figcaption>", shown.value)
    assert caption is not None
    return caption[1]


def test_the_widget_answers_to_both_controls():
    width, choice, shown = explorer()
    assert said(shown) == "4 hidden units, GELU: 0.35 away on average"
    width.value = 8
    assert said(shown) == "8 hidden units, GELU: 0.07 away on average"
    choice.value = "ReLU"
    assert said(shown) == "8 hidden units, ReLU: 0.13 away on average"
    choice.value = "none"
    before = said(shown).split(":")[1]
    width.value = 32
    assert said(shown).split(":")[1] == before


def test_the_widget_takes_a_width_that_its_slider_does_not_have():
    assert ffn._explorer(7, "ReLU").children[0].value == 7


def test_in_a_kernel_the_widget_is_shown_with_its_picture_beside_it(monkeypatch):
    monkeypatch.setattr(ffn, "widgets_run", lambda: True)
    shown = ffn.what_it_can_bend()
    assert isinstance(shown, WidgetWithPicture)
    assert shown._repr_mimebundle_()["text/plain"] == shown.picture.alt


def test_an_unknown_activation_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="none, ReLU, GELU"):
        ffn.what_it_can_bend(4, "gelu")


def test_the_text_names_which_outputs_move():
    alone, mixed = re.findall(r": ((?:\d\.\d\d, )+\d\.\d\d)", ffn.who_moves().alt)
    assert [float(one) > 0 for one in alone.split(", ")] == [False, False, True, False, False]
    assert all(float(one) > 0 for one in mixed.split(", "))


def test_the_counted_parameters_are_torch_s():
    layers = nn.Linear(6, 10), nn.Linear(10, 6)
    assert ffn._network(6, 10) == sum(one.numel() for one in nn.ModuleList(layers).parameters())
    attention = nn.MultiheadAttention(6, 2)
    assert ffn._attention(6) == sum(one.numel() for one in attention.parameters())


def test_one_map_does_what_the_two_do():
    first, second, x = map(torch.tensor, (ffn.FIRST, ffn.SECOND, ffn.INPUT))
    assert torch.equal(second @ (first @ x), (second @ first) @ x)
