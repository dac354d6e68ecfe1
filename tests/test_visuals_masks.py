"""The pictures of lesson 05 can be read without eyes, and its widget builds the mask it shows."""

import re

import ipywidgets
import pytest
import torch
from torch.nn import functional as F

from tests.pictures import drawn_twice
from visuals import masks
from visuals.figure import Picture, WidgetWithPicture

WEIGHTS = torch.tensor([[0.25, 0.75], [0.5, 0.5]])


def two_weights():
    return masks.weights(WEIGHTS, ["it", "runs"])


def two_runs():
    return masks.losses({"hidden": [2.4, 2.31], "seen": [2.4, 0.29]})


PICTURES = (
    two_weights,
    two_runs,
    masks.causal_and_padding,
    masks.who_sees_whom,
    masks.which_outputs_move,
    masks.split_into_heads,
    masks.what_the_cache_saves,
)


@pytest.mark.parametrize("show", PICTURES)
def test_a_picture_has_a_text_alternative_and_the_same_bytes_twice(show):
    drawn_twice(show)


def test_the_numbers_of_a_picture_are_in_its_words():
    assert "«it» reads «it» 0.25, «runs» 0.75; «runs» reads «it» 0.50" in two_weights().alt
    assert "hidden: 2.3 at the end; seen: 0.3 at the end" in two_runs().alt


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ((True, 0, 0, "left", []), "0 sees 0; 1 sees 0, 1; 2 sees 0, 1, 2; 3 sees 0, 1, 2, 3;"),
        ((True, 2, 0, "left", []), "0 sees 0; 1 sees 0, 1; 2 sees 1, 2; 3 sees 2, 3;"),
        ((True, 0, 2, "left", []), "0 sees nobody; 1 sees nobody; 2 sees 2; 3 sees 2, 3;"),
        ((True, 0, 2, "right", []), "3 sees 0, 1, 2, 3; 4 sees 0, 1, 2, 3; 5 sees 0, 1, 2, 3."),
        ((False, 0, 5, "right", []), "0 sees 0; 1 sees 0; 2 sees 0;"),
        ((False, 2, 0, "left", []), "0 sees 0, 1; 1 sees 0, 1, 2;"),
        ((True, 0, 2, "left", [(1, 4), (3, 3)]), "1 sees 4; 2 sees 2; 3 sees 2;"),
    ],
)
def test_the_rules_and_the_drawn_cells_make_the_mask(rules, said):
    assert said in masks.who_sees_whom(*rules).alt


def test_the_future_leaks_in_three_of_four():
    assert "A 4, B 10, C 0, D 10." in masks.which_outputs_move().alt


def test_the_pictures_attention_is_torch_s():
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    blocked = torch.ones(5, 5, dtype=torch.bool).triu(1)
    own = F.scaled_dot_product_attention(x, x, x, attn_mask=~blocked, scale=1.0)
    torch.testing.assert_close(masks._causal_attention(blocked)(x), own)


def test_heads_are_slices_of_the_width():
    x = torch.arange(18).reshape(3, 6)
    first, second, third = (part.tolist() for part in x.split(2, dim=1))
    assert f"head 0 holds {first}" in masks.split_into_heads().alt
    assert f"head 1 {second}, head 2 {third}" in masks.split_into_heads().alt


def builder():
    *rules, _, board, shown = masks._builder(True, 0, 0, "left", []).children
    return {one.description or "side": one for one in rules}, board.children, shown


def caption(shown: ipywidgets.HTML) -> str:
    found = re.search(r"<figcaption>(.*)</figcaption>", shown.value)
    assert found is not None
    return found[1]


def test_the_widget_follows_its_rules():
    rules, _, shown = builder()
    assert "3 sees 0, 1, 2, 3;" in caption(shown)
    rules["window"].value = 2
    assert "3 sees 2, 3;" in caption(shown)
    rules["window"].value, rules["padding"].value = 0, 3
    assert "2 sees nobody; 3 sees 3;" in caption(shown)
    rules["side"].value = "right"
    assert "2 sees 0, 1, 2; 3 sees 0, 1, 2;" in caption(shown)
    rules["causal"].value = False
    assert "0 sees 0, 1, 2;" in caption(shown)


def test_a_pressed_cell_is_turned_over_and_back():
    _, cells, shown = builder()
    before = caption(shown)
    cell = cells[masks.TOKENS * 1 + 4]
    assert cell.tooltip == "turn over query 1, key 4"
    cell.value = True
    assert "1 sees 0, 1, 4;" in caption(shown) and "1 drawn" in caption(shown)
    cell.value = False
    assert caption(shown) == before


def test_in_a_kernel_the_widget_is_shown_with_its_picture_beside_it(monkeypatch):
    assert isinstance(masks.who_sees_whom(), Picture)
    monkeypatch.setattr(masks, "widgets_run", lambda: True)
    shown = masks.who_sees_whom(padding=1, drawn=[(0, 5)])
    assert isinstance(shown, WidgetWithPicture)
    bundle = shown._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == shown.picture.alt
