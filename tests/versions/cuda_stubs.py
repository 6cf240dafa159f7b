"""Stands in for the libraries of NVIDIA that a CUDA build of PyTorch is linked with, so that it runs on the CPU without 4 GB of them.

    python -m tests.versions.cuda_stubs SITE_PACKAGES

PyPI has PyTorch for Linux as a CUDA build alone, which fails to load without these libraries. Each gets a stand-in beside PyTorch's own
libraries, whose functions return 100: CUDA's word for a machine without a device. Those that give the text of an error return one.
``torch.cuda.is_available()`` is False then, and operators, autograd and compilers for the CPU work.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

# Libraries of the system, and CUDA's driver, which PyTorch loads only where there is one.
_OF_THE_SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp|cuda)\.so|ld-linux)")
# Functions of NVIDIA's that PyTorch uses without the version of a symbol, which would say whose they are.
_OF_NVIDIA = re.compile(r"nccl|nvshmem|cu|nv|__cuda")
_NO_DEVICE = 100
# Functions that return a text, which goes into PyTorch's exception.
_TEXTS = re.compile(r"[a-z]+Get(Last)?Error(String|Name)$")


class Symbols(NamedTuple):
    """What libraries need and define: symbols with their versions, and the library of each version."""

    libraries: set[str]
    needed: set[tuple[str, str]]
    defined: set[str]
    library_of: dict[str, str]


def _readelf(flag: str, path: Path) -> str:
    return subprocess.run(["readelf", flag, "-W", str(path)], text=True, capture_output=True, check=True).stdout


def _symbols(paths: list[Path]) -> Symbols:
    found = Symbols(set(), set(), set(), {})
    for path in paths:
        found.libraries.update(re.findall(r"\(NEEDED\).*\[(.*?)\]", _readelf("-d", path)))
        library = ""
        for line in _readelf("-V", path).splitlines():
            if file := re.search(r"File: (\S+)", line):
                library = file[1]
            elif version := re.search(r"Name: (\S+)  Flags:.*Version:", line):
                found.library_of[version[1]] = library
        for line in _readelf("--dyn-syms", path).splitlines():
            # Number, value, size, type, binding, visibility, section, name.
            fields = line.split()
            if len(fields) >= 8 and fields[0].endswith(":"):
                name, _, of_version = fields[7].replace("@@", "@").partition("@")
                if fields[6] == "UND":
                    found.needed.add((name, of_version))
                else:
                    found.defined.add(name)
    return found


def _compile(library: Path, versions: dict[str, str]) -> None:
    """Makes a library whose functions have these names, each with the version of its symbol or ""."""
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "stubs.c"), Path(folder, "stubs.map")
        source.write_text("".join([f"{_function(name)}\n" for name in sorted(versions)]))
        by_version = {version: sorted([n for n, v in versions.items() if v == version]) for version in sorted({*versions.values()} - {""})}
        script.write_text("".join([f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in by_version.items()]))
        options = [f"-Wl,--version-script={script}"] if by_version else []
        command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-w", f"-Wl,-soname,{library.name}", *options]
        subprocess.run([*command, "-o", str(library), str(source)], check=True)


def _function(name: str) -> str:
    """Returns the function of a name in C."""
    if _TEXTS.match(name):
        return f'const char *{name}(void) {{ return "there is no device"; }}'
    return f"int {name}(void) {{ return {_NO_DEVICE}; }}"


def make(site_packages: Path) -> list[str]:
    """Makes the libraries that PyTorch's need and that are not there; returns their names."""
    folder = site_packages / "torch" / "lib"
    found = _symbols(sorted(folder.glob("*.so*")))
    missing = sorted([name for name in found.libraries if not _OF_THE_SYSTEM.match(name) and not (folder / name).exists()])
    for library in missing:
        versions = {name: version for name, version in found.needed if version and found.library_of[version] == library}
        if library == missing[0]:
            # Nothing says which library defines them: any does.
            versions = {name: "" for name, version in found.needed if not version and name not in found.defined and _OF_NVIDIA.match(name)} | versions
        _compile(folder / library, versions)
    return missing


if __name__ == "__main__":
    print(*make(Path(sys.argv[1])))
