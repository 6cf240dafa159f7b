"""The build backend: setuptools', beside the PyTorch that is installed already.

pip builds in an environment of its own. If that required PyTorch, pip would download another one, whose private fields may lie elsewhere.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable", "get_requires_for_build_sdist",
    "get_requires_for_build_wheel", "prepare_metadata_for_build_editable", "prepare_metadata_for_build_wheel",
]  # fmt: skip


def environments() -> Iterator[Path]:
    """Yields the environments that may be the target where uv or `python -m build` runs the build, with the Python of a new environment."""
    # `build` leaves it as it was; uv says its own environment.
    yield from [Path(os.environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if name in os.environ]
    # An active environment is on the path too.
    yield from [Path(folder).parent for folder in os.environ.get("PATH", "").split(os.pathsep) if folder and Path(folder, "..", "pyvenv.cfg").exists()]
    # uv takes this one where none is active.
    if "UV" in os.environ and "PWD" in os.environ:
        yield from [folder / ".venv" for folder in (Path(os.environ["PWD"]), *Path(os.environ["PWD"]).parents)]


def folders() -> Iterator[Path]:
    """Yields the folders of packages of the environment that fineline is installed into, as far as a build can know it."""
    # pip runs the build with the Python of that environment.
    yield from [Path(sysconfig.get_path(name)) for name in ("platlib", "purelib")]
    for environment in environments():
        names = {"base": str(environment), "platbase": str(environment)}
        yield from [Path(sysconfig.get_path(name, "venv", names)) for name in ("platlib", "purelib")]
    settings = Path(sys.prefix) / "pyvenv.cfg"
    if not settings.exists() or "include-system-site-packages = true" in settings.read_text().lower():
        yield Path(site.getusersitepackages())
        names = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
        yield from [Path(sysconfig.get_path(name, vars=names)) for name in ("platlib", "purelib")]


def find_torch() -> None:
    """Makes the installed PyTorch importable, behind all that the build environment has."""
    found = next((str(folder) for folder in folders() if (folder / "torch" / "version.py").exists()), None)
    if found is not None and found not in sys.path:
        sys.path.append(found)


# Each of the hooks runs setup.py.
find_torch()
