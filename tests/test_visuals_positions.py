"""The pictures of lesson 04 can be read without eyes, and its widget answers."""

import math
import re

import ipywidgets
import pytest
import torch

from solutions.positions import apply_rope, sinusoidal_table
from tests.pictures import drawn_twice
from visuals import positions
from visuals.figure import WidgetWithPicture

PICTURES = (
    positions.table_and_clocks,
    positions.offset_is_a_turn,
    positions.token_or_position,
    positions.past_the_trained_length,
    positions.dot_product_against_offset,
    positions.two_pairings,
    positions.alibi_by_head,
    positions.four_side_by_side,
    positions.turning_pair,
)


@pytest.mark.parametrize("show", PICTURES)
def test_a_picture_has_a_text_alternative_and_the_same_bytes_twice(show):
    drawn_twice(show)


def test_in_a_kernel_the_widget_is_shown_with_its_picture_beside_it(monkeypatch):
    monkeypatch.setattr(positions, "widgets_run", lambda: True)
    shown = positions.turning_pair()
    assert isinstance(shown, WidgetWithPicture)
    bundle = shown._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == shown.picture.alt


def explorer() -> tuple[dict[str, ipywidgets.Widget], ipywidgets.HTML]:
    *sliders, shown = positions._explorer(3, 2, 0.3).children
    return {slider.description: slider for slider in sliders}, shown


def score(shown: ipywidgets.HTML) -> float:
    found = re.search(r"<figcaption>.*dot product (-?[\d.]+)\.</figcaption>", shown.value)
    assert found is not None
    return float(found[1])


def test_moving_both_leaves_the_dot_product_and_moving_the_key_does_not():
    sliders, shown = explorer()
    before, html = score(shown), shown.value
    sliders["position"].value = 11
    assert score(shown) == before
    assert shown.value != html
    sliders["offset"].value = -2
    assert score(shown) != before
    assert score(shown) == pytest.approx(math.cos(0.6 - 2 * 0.3), abs=0.005)


def test_a_slow_pair_hardly_feels_the_offset():
    sliders, shown = explorer()
    sliders["frequency"].value = 0.001
    assert score(shown) == pytest.approx(math.cos(0.6), abs=0.01)


def test_the_still_picture_follows_its_numbers():
    still = positions.turning_pair(11, -2, 0.5)
    assert "query at position 11 turned by 5.50; key at position 9 turned by 4.50" in still.alt
    assert still.png != positions.turning_pair().png


def test_the_pictures_compute_as_the_answers_do():
    table = positions._table(9, 6).float()
    torch.testing.assert_close(table, sinusoidal_table(9, 6))
    x = torch.randn(1, 1, 1, 8, dtype=torch.float64)
    turned = positions._turned(x[0, 0, 0], 5)
    torch.testing.assert_close(turned, apply_rope(x, torch.tensor([5]))[0, 0, 0])
