"""The build backend finds the PyTorch that fineline is installed beside, wherever the tool that builds runs Python."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# `setuptools` stands in for that of a build environment: only the folders are asked for.
ASK = """
import json, sys, types
hooks = [f"{verb}_{kind}" for kind in ("editable", "sdist", "wheel") for verb in ("build", "get_requires_for_build")]
hooks += ["prepare_metadata_for_build_editable", "prepare_metadata_for_build_wheel"]
meta = types.ModuleType("setuptools.build_meta")
vars(meta).update(dict.fromkeys(hooks))
sys.modules.update({"setuptools": types.ModuleType("setuptools"), "setuptools.build_meta": meta})
before = list(sys.path)
import build_backend
assert build_backend.__all__ and sys.path[: len(before)] == before
print(json.dumps(sys.path[len(before) :]))
"""


def packages_of(folder: Path) -> Path:
    return next(folder.glob("lib/*/site-packages"))


def environment(folder: Path, with_torch: bool, system: bool = False) -> Path:
    """Makes an environment, with a PyTorch in it or without; returns its folder of packages."""
    venv.create(folder, with_pip=False, system_site_packages=system, symlinks=True)
    packages = packages_of(folder)
    if with_torch:
        (packages / "torch").mkdir()
        (packages / "torch" / "version.py").write_text("__version__ = '2.13.0'\n")
    return packages


def added(builder: Path, **variables: str) -> list[str]:
    """Returns what the backend adds to ``sys.path`` where the Python of an environment builds."""
    plain = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX", "UV", "PYTHONPATH", "PYTHONUSERBASE")}
    where = {"PATH": os.defpath, "PYTHONPATH": str(ROOT / "build_support"), "PYTHONUSERBASE": str(builder / "no user"), **variables}
    done = subprocess.run([str(builder / "bin" / "python"), "-c", ASK], env=plain | where, text=True, capture_output=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """An environment with PyTorch."""
    environment(tmp_path / "beside", with_torch=True)
    return tmp_path / "beside"


def test_a_build_without_isolation_has_it_on_the_path(beside: Path) -> None:
    assert added(beside) == []


def test_the_environment_of_the_python_that_builds(beside: Path) -> None:
    # pip runs this Python, with the packages of the build in place of those of the environment.
    ask = f"import sys; sys.path = [p for p in sys.path if 'site-packages' not in p]; sys.path.append({str(ROOT / 'build_support')!r})\n{ASK}"
    done = subprocess.run([str(beside / "bin" / "python"), "-I", "-c", ask], text=True, capture_output=True, check=True)
    assert json.loads(done.stdout) == [str(packages_of(beside))]


def test_the_active_environment(beside: Path, tmp_path: Path) -> None:
    environment(tmp_path / "builder", with_torch=False)
    assert added(tmp_path / "builder", VIRTUAL_ENV=str(beside)) == [str(packages_of(beside))]


def test_the_environment_on_the_path(beside: Path, tmp_path: Path) -> None:
    # uv says that its own environment is the active one.
    environment(tmp_path / "builder", with_torch=False)
    path = os.pathsep.join([str(tmp_path / "builder" / "bin"), "", str(tmp_path / "gone"), str(beside / "bin"), os.environ["PATH"]])
    assert added(tmp_path / "builder", VIRTUAL_ENV=str(tmp_path / "builder"), PATH=path) == [str(packages_of(beside))]


def test_the_environment_that_uv_finds(tmp_path: Path) -> None:
    found = environment(tmp_path / "project" / ".venv", with_torch=True)
    environment(tmp_path / "builder", with_torch=False)
    (tmp_path / "project" / "part").mkdir()
    where = {"VIRTUAL_ENV": str(tmp_path / "builder"), "PWD": str(tmp_path / "project" / "part")}
    assert added(tmp_path / "builder", UV="/bin/uv", **where) == [str(found)]
    assert added(tmp_path / "builder", **where) == []


def test_the_environment_of_conda(beside: Path, tmp_path: Path) -> None:
    environment(tmp_path / "builder", with_torch=False)
    assert added(tmp_path / "builder", CONDA_PREFIX=str(beside)) == [str(packages_of(beside))]


def test_the_packages_of_the_user(tmp_path: Path) -> None:
    packages = environment(tmp_path / "builder", with_torch=False, system=True)
    user = tmp_path / "user" / packages.relative_to(tmp_path / "builder")
    (user / "torch").mkdir(parents=True)
    (user / "torch" / "version.py").touch()
    # Without the user's folder on the path, as in a build.
    assert added(tmp_path / "builder", PYTHONUSERBASE=str(tmp_path / "user"), PYTHONNOUSERSITE="1") == [str(user)]


def test_an_isolated_environment_does_not_look_outside(tmp_path: Path) -> None:
    environment(tmp_path / "builder", with_torch=False)
    environment(tmp_path / "other", with_torch=True)
    assert added(tmp_path / "builder") == []
    assert added(tmp_path / "builder", VIRTUAL_ENV=str(tmp_path / "gone")) == []
