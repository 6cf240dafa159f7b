"""Builds the native core for the installed PyTorch; without that or a compiler the package installs without it and evaluates guards in Python."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup

ROOT = Path(__file__).resolve().parent
# A failed build leaves the package on its Python evaluator; FINELINE_NATIVE=1 makes the failure an error instead.
DEMANDED = os.environ.get("FINELINE_NATIVE") == "1"
NOT_BUILT = "fineline: the native core was not built, guards will be evaluated in Python: "


def unsuitable_torch() -> str:
    """Returns why the core cannot be built for the installed PyTorch; "" if it can."""
    [wanted] = [text for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"] if text.startswith("torch")]
    step = f"Install {wanted!r} and then fineline again."
    try:
        import torch
    except Exception as error:
        return f"there is no PyTorch to build it for ({error}). {step}"
    oldest, beyond = [tuple(map(int, numbers)) for numbers in re.findall(r"(\d+)\.(\d+)", wanted)]
    found = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
    return "" if oldest <= found < beyond else f"PyTorch {torch.__version__} is not supported. {step}"


def native() -> dict[str, Any]:
    """Returns the arguments of `setup` that build the core."""
    from torch.utils.cpp_extension import BuildExtension, CppExtension

    extension = CppExtension(
        "fineline._native",
        sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src/fineline/native").glob("*.cpp")),
        depends=sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src/fineline/native").glob("*.h")),
        # -g0: Python's own flags have -g, which makes the library 9 MB instead of 0.3 MB.
        extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"],
    )
    extension.optional = not DEMANDED

    class OptionalBuild(BuildExtension):
        """ninja reports a missing compiler as a RuntimeError, which setuptools does not take for a failed optional extension."""

        def build_extensions(self) -> None:
            try:
                super().build_extensions()
            except Exception as error:
                if DEMANDED:
                    raise
                print(NOT_BUILT + str(error))

    return {"ext_modules": [extension], "cmdclass": {"build_ext": OptionalBuild}}


reason = unsuitable_torch()
if reason and DEMANDED:
    raise SystemExit(f"fineline: the native core cannot be built: {reason}")
if reason:
    print(NOT_BUILT + reason)
setup(package_dir={"": "src"}, **({} if reason else native()))
