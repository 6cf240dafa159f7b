"""The releases of PyTorch and the Pythons that fineline runs on.

`import fineline` reads it, which loads no PyTorch, for the command line's completion of words: what only a message needs is loaded with it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import sys
from typing import Any

from fineline.bytecode.supported import unsupported

# The native core and the engine name private parts of PyTorch, which older releases lack or have elsewhere. pyproject.toml has the same bounds.
OLDEST = (2, 13)
TESTED = ((2, 13), (2, 14), (2, 15))
# A shell takes ``<`` for a redirection: quoted.
REQUIREMENT = f'"torch>={OLDEST[0]}.{OLDEST[1]},<{TESTED[-1][0]}.{TESTED[-1][1] + 1}"'


def release(version: str) -> tuple[int, int] | None:
    """Returns the major and minor number of a version such as ``2.13.0+cpu``; None for a text that has none."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found is not None else None


def installed_version() -> str:
    """Returns the version of PyTorch without loading it; "" if there is none, or its files are laid out in another way."""
    if "torch" in sys.modules:
        return str(getattr(sys.modules["torch"], "__version__", ""))
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "version.py"), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return ""
    found = re.search(r"^__version__ = ['\"](.+)['\"]$", text, re.M)
    return found[1] if found is not None else ""


def _refusal(id: str) -> Any:
    return importlib.import_module("fineline.refusals").REFUSALS[id]


def check_python() -> None:
    """Raises an ImportError on a Python that fineline cannot run on."""
    reason = unsupported()
    if reason is not None:
        refusal = _refusal("FL905")
        raise ImportError(f"FL905: {refusal.title}: {reason}\n  why:  {refusal.explanation}\n  next: {refusal.next_step}", name="fineline")


def check_supported(version: str) -> None:
    """Raises an ImportError for a release that is too old. A version without numbers passes."""
    found = release(version)
    if found is not None and found < OLDEST:
        refusal = _refusal("FL902")
        oldest, newest = [".".join(map(str, numbers)) for numbers in (OLDEST, TESTED[-1])]
        reason = f"this is PyTorch {version}, and fineline is tested with {oldest} to {newest}"
        step = f"Install another release: pip install {REQUIREMENT}"
        raise ImportError(f"FL902: {refusal.title}: {reason}\n  why:  {refusal.explanation}\n  next: {step}", name="torch")


def check_installed() -> None:
    """Raises a ModuleNotFoundError if there is no PyTorch."""
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        refusal = _refusal("FL906")
        step = f"{refusal.next_step} pip install {REQUIREMENT}"
        raise ModuleNotFoundError(f"FL906: {refusal.title}\n  why:  {refusal.explanation}\n  next: {step}", name="torch")


@functools.cache
def warn_if_untested(version: str) -> None:
    """Logs a warning, once, if PyTorch is newer than those that fineline is tested with."""
    found = release(version)
    if found is not None and found > TESTED[-1]:
        refusal, tested = _refusal("FL904"), [".".join(map(str, numbers)) for numbers in TESTED]
        listed = f"{', '.join(tested[:-1])} and {tested[-1]}"
        text = "fineline: FL904: %s: PyTorch %s; tested are %s. %s %s"
        importlib.import_module("logging").getLogger("fineline").warning(text, refusal.title, version, listed, refusal.explanation, refusal.next_step)
