"""Environments with another Python or another PyTorch, each with the native core, what the tests import, and the libraries of the zoo's models.

They are kept between runs. Each is made in steps; a step is done again when what it is made from has changed, with those after it.

The core of a Python is built once, with the oldest PyTorch that is supported, and serves all: users of a wheel get just that. It lies among
the sources, where the cores of several Pythons have different names. The core of the Python of ``.venv`` is the one that `make setup` builds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from tests.versions import cuda_stubs
from tests.versions.interpreters import FOLDER, ROOT, Interpreter, Unavailable, find, run

# The versions that are tested, the oldest first. The first of each is that of `make test`.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
RELEASES = {"2.13": "2.13.0", "2.14": "2.14.1", "2.15": "2.15.0"}
# Not all pairs: a difference between Pythons shows with one PyTorch, and one between releases with one Python.
USUAL = ("3.12-torch-2.13", "3.13-torch-2.13", "3.14-torch-2.13", "3.11-torch-2.14", "3.11-torch-2.15")
BASE = "3.11-torch-2.13"
ALL = tuple([f"{python}-torch-{release}" for python in PYTHONS for release in RELEASES])

# What PyTorch needs for other devices than the CPU.
_OF_DEVICES = ("nvidia", "cuda", "triton")
# As in the Makefile.
_PIP = {"PIP_COMPILE": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
_FACTS = """
import importlib.metadata, json, platform, sysconfig
print(json.dumps({
    "python": platform.python_version(),
    "torch": importlib.metadata.version("torch"),
    "needs": importlib.metadata.requires("torch") or [],
    "core": "_native" + sysconfig.get_config_var("EXT_SUFFIX"),
}))
"""
# What the packages of these names need.
_NEEDS = """
import importlib.metadata, json, sys
print(json.dumps([need for name in sys.argv[1:] for need in importlib.metadata.requires(name) or []]))
"""
_CORE_WORKS = "from fineline.guards.native_core import CORE, FAILURE\nif CORE is None: raise SystemExit(FAILURE)"


class Environment:
    """An environment by its name, such as 3.12-torch-2.13. Its methods raise `Unavailable`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version, _, self.release = name.partition("-torch-")
        self.folder = ROOT / ".venv" if name == BASE else FOLDER / name

    @cached_property
    def interpreter(self) -> Interpreter:
        return find(self.version)

    @property
    def python(self) -> list[str]:
        """The command that runs its Python."""
        return [*(() if self.name == BASE else self.interpreter.enter), str(self.folder / "bin" / "python")]

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of commands in it: it is active, and has the sources of this checkout."""
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        return {**_PIP, "PATH": path, "VIRTUAL_ENV": str(self.folder), "PYTHONPATH": str(ROOT / "src")}

    def run(self, *words: str, **variables: str) -> str:
        return run([*self.python, *words], {**self.variables, **variables})

    @cached_property
    def facts(self) -> dict[str, str]:
        """Its versions and the name of its core."""
        return {name: fact for name, fact in json.loads(self.run("-c", _FACTS)).items() if name != "needs"}

    def make(self) -> None:
        """Makes what is missing in it or out of date."""
        if self.name == BASE:
            if not (self.folder / ".set-up").exists():
                raise Unavailable("`make setup` makes it")
        else:
            self._install()
        builder = Environment(f"{self.version}-torch-{next(iter(RELEASES))}")
        if builder.name != self.name:
            builder.make()
        elif self.name != BASE:
            self._build_core()
        if not self.facts["python"].startswith(f"{self.version}.") or not self.facts["torch"].startswith(RELEASES[self.release]):
            raise Unavailable(f"it has Python {self.facts['python']} and PyTorch {self.facts['torch']}")
        # Without the core, the tests of it would be left out.
        self.run("-c", _CORE_WORKS)

    def _install(self) -> None:
        project, pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"], (ROOT / "constraints.txt").read_text()
        wanted = [*project["dependencies"], *project["optional-dependencies"]["numpy"], *project["optional-dependencies"]["test"]]
        # PyTorch has a step of its own, and fineline is run from its sources.
        packages = [requirement for requirement in wanted if not requirement.startswith(("torch>", "fineline["))]
        made = self._step("environment", self.interpreter.version, self._create)
        made = self._step("torch", made + RELEASES[self.release] + Path(cuda_stubs.__file__).read_text(), self._install_torch)
        made = self._step("packages", made + json.dumps(packages) + pins, lambda: self._install_packages(packages))
        libraries = project["optional-dependencies"]["zoo"]
        self._step("libraries", made + json.dumps(libraries), lambda: self._install_libraries(libraries))

    def _step(self, name: str, inputs: str, action: Callable[[], object]) -> str:
        """Does a step unless it has been done with these inputs; returns what names its result."""
        stamp, digest = self.folder / ".made" / name, hashlib.sha256(inputs.encode()).hexdigest()
        if not stamp.exists() or stamp.read_text() != digest:
            print(f"{self.name}: making its {name}", flush=True)
            stamp.unlink(missing_ok=True)
            action()
            stamp.parent.mkdir(exist_ok=True)
            stamp.write_text(digest)
        return digest

    def _create(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        FOLDER.mkdir(exist_ok=True)
        run([*self.interpreter.enter, self.interpreter.path, "-m", "venv", str(self.folder)])

    def _install_torch(self) -> None:
        """PyTorch by itself: what it needs for other devices than the CPU takes 4 GB."""
        site_packages = self.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        # With the stand-ins of before, which pip does not know.
        shutil.rmtree(Path(site_packages, "torch"), ignore_errors=True)
        self.run("-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", f"torch=={RELEASES[self.release]}")
        self.run("-m", "tests.versions.cuda_stubs", site_packages)

    def _install_packages(self, packages: list[str]) -> None:
        needs = [need for need in json.loads(self.run("-c", _FACTS))["needs"] if not need.startswith(_OF_DEVICES)]
        # The tools that build the core, as in the Makefile.
        self.run("-m", "pip", "install", "-q", "-c", "constraints.txt", "setuptools>=77", "wheel", "ninja", *needs, *packages)

    def _install_libraries(self, libraries: list[str]) -> None:
        """Those that need PyTorch would bring what it needs for other devices, and the PyTorch of constraints.txt: each comes by itself, then what they need."""
        self.run("-m", "pip", "install", "-q", "--no-deps", *libraries)
        names = [_name(library) for library in libraries]
        needs = further(json.loads(self.run("-c", _NEEDS, *names)), {"torch", *names})
        self.run("-m", "pip", "install", "-q", "-c", "constraints.txt", *needs)

    def _build_core(self) -> None:
        sources = sorted([ROOT / "setup.py", *(ROOT / "src/fineline/native").iterdir()])
        inputs = self.facts["python"] + self.facts["torch"] + "".join([file.name + file.read_text() for file in sources])
        if not (ROOT / "src/fineline" / self.facts["core"]).exists():
            (self.folder / ".made" / "core").unlink(missing_ok=True)
        self._step("core", inputs, lambda: self.run("setup.py", "-q", "build_ext", "--inplace", FINELINE_NATIVE="1"))


def _name(requirement: str) -> str:
    """Returns the name in a requirement such as ``torch-geometric==2.8.1``, as PyPI has it."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[._-]+", "-", found[0]).lower()


def further(needs: list[str], known: set[str]) -> list[str]:
    """Returns the requirements that name none of the known packages and no extra."""
    return [need for need in needs if "extra ==" not in need and _name(need) not in known]
