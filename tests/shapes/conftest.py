"""The fixture ``door``, as the control surface's own tests have it."""

from tests.policy.conftest import door

__all__ = ["door"]
