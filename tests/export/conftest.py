"""The fixture ``door`` of the control surface's tests, here as well."""

from tests.policy.conftest import door  # noqa: F401
