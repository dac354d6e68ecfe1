"""Pictures and widgets of the lessons: one module per lesson, one call per picture."""

from visuals.figure import rounded

__all__ = ["rounded"]
