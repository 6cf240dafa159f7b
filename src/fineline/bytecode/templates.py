"""Makes the templates of t-strings (PEP 750) from the parts that CPython 3.14's instructions have on the stack."""

from __future__ import annotations

from contextlib import suppress

with suppress(ImportError):
    from string.templatelib import Interpolation, Template  # type: ignore[import-not-found]


def make_interpolation(value: object, text: str, spec: str, conversion: str | None) -> object:
    return Interpolation(value, text, conversion, spec)


def make_template(strings: tuple, interpolations: tuple) -> object:
    parts: list[object] = [strings[0]]
    for k, interpolation in enumerate(interpolations):
        parts += [interpolation, strings[k + 1]]
    return Template(*parts)
