"""A TOML file that people write, and the line of each of its values, for errors about them."""

from __future__ import annotations

import functools
import importlib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from fineline.errors import FinelineError


@functools.cache
def toml_library() -> ModuleType:
    # Import the parser only if there is a file.
    return importlib.import_module("tomlkit")


class TomlFile:
    """The text and the document of a file. ``error`` makes the error for a reason and a place."""

    def __init__(self, path: Path, error: Callable[[str, str], FinelineError]) -> None:
        self.path = path
        self._error = error
        try:
            self.text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise error(f"{path} can't be read: {e}", str(path)) from None
        self.document = self._parse()

    def _parse(self) -> Any:
        try:
            return toml_library().parse(self.text)
        except toml_library().exceptions.TOMLKitError as e:
            line = getattr(e, "line", None) or _line_of_error(self.text)
            raise self._error(f"this is not TOML: {e}", self.name + (f":{line}" if line else "")) from None

    @property
    def name(self) -> str:
        """Returns the path as messages show it: from the working folder."""
        path = self.path.resolve()
        return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)

    def line(self, *keys: str | int) -> int:
        """Returns the line at which the value at a path of keys begins.

        The parser stores no lines, but it writes a document exactly as it was read: with a changed value, the texts first differ there.
        """
        document = self._parse()
        table: Any = document
        for key in keys[:-1]:
            table = table[key]
        value = table[keys[-1]] if keys else table
        if isinstance(value, toml_library().items.Table):
            value.comment("here")  # after the table's header
        elif isinstance(value, toml_library().items.AoT):
            return self.line(*keys, 0)
        else:
            table[keys[-1]] = 0 if value != 0 else 1
        changed = toml_library().dumps(document)
        at = next((i for i, (a, b) in enumerate(zip(self.text, changed, strict=False)) if a != b), min(len(self.text), len(changed)))
        # A comment after a header makes the texts differ at the header's line end, which is still on its line.
        return self.text.count("\n", 0, at) + 1

    def place(self, *keys: str | int) -> str:
        return f"{self.name}:{self.line(*keys)}"

    def wrong(self, reason: str, *keys: str | int) -> FinelineError:
        """Returns the error about the value at a path of keys."""
        return self._error(reason, self.place(*keys))


def toml_type(value: object) -> str:
    """Returns the name of a value's type, with an article."""
    words = {str: "a text", bool: "a boolean", int: "an integer", float: "a number", list: "an array", dict: "a table"}
    return next((word for t, word in words.items() if isinstance(value, t)), f"a {type(value).__name__}")


def _line_of_error(text: str) -> int | None:
    """Returns the line of an error in TOML; only the standard library's parser gives the line of a key that occurs twice."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        found = re.search(r"at line (\d+)", str(e))
        return int(found[1]) if found else text.count("\n") + 1  # else "at end of document"
    return None
