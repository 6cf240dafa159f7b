"""Builds the native guard evaluator; without a compiler the package installs without it and evaluates guards in Python."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

ROOT = Path(__file__).resolve().parent
SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src/fineline/native").glob("*.cpp"))

extension = CppExtension(
    "fineline._native",
    SOURCES,
    depends=sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src/fineline/native").glob("*.h")),
    # -g0: Python's own flags have -g, which makes the library 9 MB instead of 0.3 MB.
    extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"],
)
# A failed build leaves the package on its Python evaluator; FINELINE_NATIVE=1 makes the failure an error instead.
extension.optional = os.environ.get("FINELINE_NATIVE") != "1"


class OptionalBuild(BuildExtension):
    """ninja reports a missing compiler as a RuntimeError, which setuptools does not take for a failed optional extension."""

    def build_extensions(self) -> None:
        try:
            super().build_extensions()
        except Exception as error:
            if not extension.optional:
                raise
            print(f"fineline: the native core was not built, guards will be evaluated in Python: {error}")


setup(
    package_dir={"": "src"},
    ext_modules=[extension],
    cmdclass={"build_ext": OptionalBuild},
)
