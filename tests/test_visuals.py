"""The pictures can be read without eyes, are the same at each run, and the widget answers."""

import re

import ipywidgets
import pytest
import torch

from tests.pictures import drawn_twice
from visuals import norm, rounded
from visuals.figure import Picture, WidgetWithPicture, number, widgets_run

PICTURES = (
    norm.signal_through_layers,
    norm.before_and_after,
    norm.axes_read,
    norm.what_eps_does,
    norm.add_and_multiply,
)


@pytest.mark.parametrize("show", PICTURES)
def test_a_picture_has_a_text_alternative_and_the_same_bytes_twice(show):
    assert len(drawn_twice(show)._repr_mimebundle_()["text/plain"]) > 80


def test_drawing_does_not_depend_on_the_reader_s_settings():
    import matplotlib

    plain = norm.what_eps_does().png
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert norm.what_eps_does().png == plain


def test_outside_a_kernel_the_widget_is_a_still_picture():
    assert not widgets_run()
    assert isinstance(norm.add_and_multiply(), Picture)


def test_in_a_kernel_the_widget_is_shown_with_its_picture_beside_it(monkeypatch):
    monkeypatch.setattr(norm, "widgets_run", lambda: True)
    shown = norm.add_and_multiply()
    assert isinstance(shown, WidgetWithPicture)
    bundle = shown._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == shown.picture.alt


def test_course_static_asks_for_pictures_even_in_a_kernel(monkeypatch):
    import ipykernel.kernelapp

    monkeypatch.setattr(ipykernel.kernelapp.IPKernelApp, "initialized", lambda: True)
    assert widgets_run()
    monkeypatch.setenv("COURSE_STATIC", "1")
    assert not widgets_run()


def explorer() -> tuple[dict[str, ipywidgets.FloatSlider], ipywidgets.HTML]:
    *sliders, shown = norm._explorer(0.0, 1.0, 1e-5).children
    return {slider.description: slider for slider in sliders}, shown


def said(shown: ipywidgets.HTML) -> dict[str, str]:
    """The numbers in the widget's caption: {'row': …, 'LayerNorm': …, 'RMSNorm': …}."""
    caption = re.search(r"<figcaption>(.*)\.</figcaption>", shown.value)
    assert caption is not None
    return {part.split(" ", 1)[0]: part.split(" ", 1)[1] for part in caption[1].split("; ")}


def test_adding_moves_rms_norm_and_leaves_layer_norm():
    sliders, shown = explorer()
    before, before_html = said(shown), shown.value
    sliders["add"].value = 5.0
    after = said(shown)
    assert shown.value != before_html
    assert after["row"] != before["row"]
    assert after["LayerNorm"] == before["LayerNorm"]
    assert after["RMSNorm"] != before["RMSNorm"]


def test_multiplying_leaves_both_norms_and_eps_shrinks_a_small_row():
    sliders, shown = explorer()
    before = said(shown)
    sliders["multiply"].value = 100.0
    assert said(shown)["LayerNorm"] == before["LayerNorm"]
    assert said(shown)["RMSNorm"] == before["RMSNorm"]
    sliders["multiply"].value = 1e-4
    sliders["eps"].value = 1e-12
    assert said(shown)["LayerNorm"] == before["LayerNorm"]
    sliders["eps"].value = 1.0
    assert said(shown)["LayerNorm"] != before["LayerNorm"]
    assert said(shown)["RMSNorm"] != before["RMSNorm"]


def test_the_still_picture_follows_its_numbers_as_the_sliders_do():
    still = norm.add_and_multiply(-8.0, 2.0, 1e-12)
    assert "row × 2 - 8: row -6.00, -2.00, -4.00, 4.00; LayerNorm -1.07, 0.00" in still.alt
    assert still.png != norm.add_and_multiply().png


def test_the_pictures_norms_are_torch_s():
    row = torch.tensor(norm.ROW)
    ours = norm._layer_norm(row, 0.1), norm._rms_norm(row, 0.1)
    torch.testing.assert_close(ours[0], torch.nn.functional.layer_norm(row, (4,), eps=0.1))
    torch.testing.assert_close(ours[1], torch.nn.functional.rms_norm(row, (4,), eps=0.1))


def test_rounded_gives_lists_without_a_negative_zero():
    tensor = torch.tensor([[-0.0001, 1.23456]], dtype=torch.float16)
    assert str(rounded(tensor, 2)) == "[[0.0, 1.23]]"
    assert rounded(torch.tensor(2.0)) == 2.0


@pytest.mark.parametrize(
    ("value", "label"), [(0.0002, "2e-4"), (-0.0, "0.00"), (1.254, "1.25"), (-600.3, "-600")]
)
def test_labels_are_short(value, label):
    assert number(value) == label
