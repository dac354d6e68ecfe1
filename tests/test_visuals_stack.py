"""The pictures of lesson 07 can be read without eyes, and their numbers are those of the model."""

import re

import ipywidgets
import pytest

from solutions.stack import TinyTransformerEncoder, stack_parameters
from tests.pictures import drawn_twice
from visuals import stack
from visuals.figure import WidgetWithPicture


def two_streams():
    return stack.up_the_stack(fresh=[1.0, 1.2, 1.5], with_a_norm=[1.0, 1.0, 1.0])


PICTURES = (
    stack.from_ids_to_logits,
    stack.three_models,
    stack.what_grows,
    stack.one_model,
    two_streams,
)


@pytest.mark.parametrize("show", PICTURES)
def test_a_picture_has_a_text_alternative_and_the_same_bytes_twice(show):
    drawn_twice(show)


def test_the_shares_are_those_of_the_model():
    for sizes in ((50, 64, 4, 2, 256), (7, 6, 1, 3, 5)):
        found = stack.shares(*sizes)
        model = TinyTransformerEncoder(*sizes)
        counts = {name: one.numel() for name, one in model.named_parameters()}

        def of(words, counts=counts):
            return sum(count for name, count in counts.items() if re.search(words, name))

        assert found == {
            "embedding": of("token_embedding"),
            "attention": of("self_attn"),
            "ffn": of("ffn"),
            "norms": of("ln1|ln2|final_norm"),
            "head": of("output_head"),
        }
        vocab, width, _, layers, hidden = sizes
        assert sum(found.values()) == stack_parameters(vocab, width, layers, hidden)


def test_the_numbers_of_a_picture_are_in_its_words():
    alt = stack.what_grows().alt
    assert "num_heads 4, 8, 16: 106,546, 106,546, 106,546" in alt
    assert "vocab_size 50, 100, 200: 106,546, 112,996, 125,896" in alt
    assert "fresh: 1.0, 1.2, 1.5; with a norm: 1.0, 1.0, 1.0" in two_streams().alt


def test_the_sliders_redraw_the_model():
    *sliders, shown = stack._explorer(50257, 768, 12, 4).children
    assert [one.description for one in sliders] == [
        "vocab_size",
        "d_model",
        "num_layers",
        "d_ff / d_model",
    ]
    assert isinstance(shown, ipywidgets.HTML)
    before = shown.value
    sliders[2].value = 48
    assert shown.value != before
    assert "V = 50,257, C = 768, 48 layers, F = 3072" in shown.value
    total = stack_parameters(50257, 768, 48, 3072)
    assert f"together {total:,}" in shown.value


def test_a_size_of_one_s_own_is_among_the_choices():
    assert stack._explorer(77, 30, 3, 5).children[0].value == 77


def test_in_a_kernel_the_widget_carries_the_picture(monkeypatch):
    monkeypatch.setattr(stack, "widgets_run", lambda: True)
    shown = stack.one_model()
    assert isinstance(shown, WidgetWithPicture)
    bundle = shown._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == stack._one_model(50257, 768, 12, 4).alt


def test_shapes_are_compared_line_by_line():
    came = {"embedding": (3, 7, 64), "logits": (3, 7, 50), "scores": (3, 4, 7, 7)}
    lines = stack.compare({"embedding": (3, 7, 64), "logits": (3, 50), "scores": "?"}, came)
    first, second, third = lines.split("\n")
    assert first.split() == "embedding (3, 7, 64) (3, 7, 64) yes".split()
    assert second.split() == "logits (3, 50) (3, 7, 50) no".split()
    assert third.split() == "scores ? (3, 4, 7, 7)".split()
