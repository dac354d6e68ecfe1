"""What a submission gets for `autograder`: its device, and a check that does nothing."""

from autograder.devices import device

__all__ = ["check", "device"]


def check(name: str) -> None:
    """Nothing: where an instructor grades, the checks are run outside, by the judge."""
