"""Lesson 08's pictures can be read without eyes, its curve grows, and its words do not vary."""

import re
from types import SimpleNamespace

import pytest
import torch

from solutions.stack import DecoderOnlyLM
from solutions.training import sample_next
from tests.pictures import drawn_twice
from visuals import training
from visuals.figure import WidgetWithPicture

RUNS = {"pre-norm": [0.9, 0.5, 0.2], "post-norm": [0.9, 0.7, 0.7]}


def curve():
    return training.loss_curve([2.0, 1.5, 1.0], 5, {"guessing": 2.3, "the best": 0.9})


def several():
    return training.runs(RUNS, 0.69, "guessing")


def speeds():
    return training.speed((8, 32), {"with": [0.1, 0.4], "without": [0.2, 3.2]})


def written():
    return training.texts({"before": "x%q $\n{", "after": "The method " * 20})


def maps():
    torch.manual_seed(0)
    model = DecoderOnlyLM(9, 8, 2, 2, 16)
    return training.attention_maps(model, torch.tensor([1, 5, 3]), ["a", "b", "c"])


STEADY = (training.shifted, training.what_is_left)
MEASURED = (curve, several, speeds, written, maps)


@pytest.fixture
def in_a_notebook(monkeypatch):
    """What is shown there, in order: pictures, and updates of them."""
    shown: list[object] = []

    def display(one, display_id=False):
        shown.append(one)
        return SimpleNamespace(update=shown.append)

    monkeypatch.setattr(training, "widgets_run", lambda: True)
    monkeypatch.setattr(training, "display", display)
    return shown


@pytest.mark.parametrize("show", STEADY + MEASURED)
def test_a_picture_has_a_text_alternative_and_the_same_bytes_twice(show):
    start = r'<figure (class="measured" )?style="[^"]*"><img alt="[^"]{40,}" src="data:image/png;'
    found = re.match(start, drawn_twice(show, start).html())
    assert found is not None and bool(found[1]) is (show in MEASURED)


def test_stored_words_do_not_tell_what_one_run_measured():
    assert curve().alt == (
        "Line chart of the training loss, up to 5 steps, beside guessing, the best."
    )
    one, other = (training.loss_curve([loss, 1.0], 5, {"b": loss}) for loss in (2.0, 3.0))
    assert one.alt == other.alt and one.png != other.png


@pytest.mark.parametrize(
    ("show", "words"),
    [
        (curve, "guessing at 2.30; the best at 0.90. It began at 2.00 and is at 1.5"),
        (several, "At the end: pre-norm 0.5"),
        (speeds, "with: 80, 80; without: 40, 10."),
        (written, "before: x%q"),
    ],
)
def test_a_running_notebook_tells_its_reader(show, words, in_a_notebook):
    assert words in show().alt


def test_a_curve_of_no_steps_can_be_drawn():
    assert "10 steps" in training.loss_curve([], 10, {}).alt


def test_the_curve_grows_and_ends_as_a_picture(in_a_notebook, monkeypatch):
    monkeypatch.setattr(training, "PAUSE", 0.0)
    clock = iter(range(100))
    monkeypatch.setattr(training.time, "monotonic", lambda: float(next(clock)))
    shown = training.Curve(20, best_possible=1.0)
    for loss in (3.0, 2.0, 1.5, 1.2):
        shown.add(loss)
    assert shown.show() == [3.0, 2.0, 1.5, 1.2]
    first, *growing, last = in_a_notebook
    assert 'value="0" max="20"' in first._repr_mimebundle_()["text/html"]
    assert growing and all(isinstance(one, training.Growing) for one in growing)
    assert "of 20, about" in growing[-1].said
    assert isinstance(last, training.Measured) and "best possible at 1.00" in last.alt


def test_where_no_notebook_runs_the_curve_is_shown_once(monkeypatch):
    shown: list[object] = []
    monkeypatch.setattr(training, "display", shown.append)
    growing = training.Curve(3)
    growing.add(1.0)
    assert not shown
    growing.show()
    assert len(shown) == 1 and isinstance(shown[0], training.Measured)


def test_a_stopped_training_says_how_far_it_came(capsys):
    growing = training.Curve(3)
    growing.add(1.0)
    growing.stop()
    assert capsys.readouterr().out.startswith("Stopped after 1 steps.")


def test_the_mean_follows_the_losses():
    assert training.smooth([4.0, 2.0]) == [4.0, 3.0]
    assert training.smooth([1.0] * 30)[-1] == pytest.approx(1.0)


def test_the_weights_are_the_model_s():
    torch.manual_seed(0)
    model = DecoderOnlyLM(9, 8, 2, 3, 16, dropout=0.5).train()
    found = training.attention_of(model, torch.tensor([1, 5, 3, 2]))
    assert [one.shape for one in found] == [(2, 4, 4)] * 3
    assert model.training
    for table in found:
        torch.testing.assert_close(table.sum(-1), torch.ones(2, 4))
        assert not table.triu(1).any()


@pytest.mark.parametrize(
    ("settings", "left"),
    [((1.0, 0, 1.0), 6), ((1.0, 2, 1.0), 2), ((1.0, 0, 0.5), 2), ((0.0, 0, 1.0), 1)],
)
def test_what_is_left_is_what_sample_next_draws(settings, left):
    temperature, top_k, top_p = settings
    shares = training._shares(*settings)
    assert sum(share > 0 for share in shares) == left and sum(shares) == pytest.approx(1)
    logits = torch.tensor(training.LOGITS).repeat(4000, 1)
    generator = torch.Generator().manual_seed(0)
    drawn = sample_next(logits, temperature, top_k or None, top_p, generator)
    came = torch.bincount(drawn, minlength=6) / 4000
    torch.testing.assert_close(came, torch.tensor(shares), atol=0.04, rtol=0)


def test_the_widgets_follow_their_sliders(in_a_notebook):
    shown = training.what_is_left()
    assert isinstance(shown, WidgetWithPicture)
    *controls, picture = shown.widget.children
    by_name = {one.description: one for one in controls}
    by_name["top_k"].value = 1
    assert "1.00, 0.00, 0.00" in picture.value
    looked = maps()
    assert isinstance(looked, WidgetWithPicture)
    layer, head, picture = looked.widget.children
    before = picture.value
    layer.value = 0
    assert picture.value != before and (layer.max, head.max) == (1, 1)


def test_the_text_is_python_s_own():
    text = training.english()
    assert len(text) > 300_000 and "The" in text
