"""What holds for every picture of every lesson."""

import re
from collections.abc import Callable

from visuals.figure import Picture

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
FIGURE = r'<figure [^>]*><img alt="[^"]{80,}" src="data:image/png;base64,'


def drawn_twice(show: Callable[[], object], figure: str = FIGURE) -> Picture:
    """The picture that `show` draws; it has a text alternative, and the same bytes each time."""
    first, second = show(), show()
    assert isinstance(first, Picture) and isinstance(second, Picture)
    assert first.png.startswith(PNG_SIGNATURE)
    assert first.png == second.png
    assert b"Software" not in first.png, "the bytes would change with matplotlib's version"
    assert first._repr_mimebundle_() == second._repr_mimebundle_()
    assert re.match(figure, first.html())
    assert "<style" not in first.html() and "<script" not in first.html()
    return first
