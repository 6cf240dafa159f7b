"""Interpreters of other versions: one on PATH, one of pyenv's, or one of Debian's in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
# All that is made for other versions lies here. Git ignores it.
FOLDER = ROOT / ".environments"
# The release of Debian that has a version of Python as a package, for machines on which nothing else has one that fineline runs on.
DEBIAN = {"3.13": "trixie", "3.14": "sid"}
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
# What the folder of a Debian needs to make environments and to build the core.
PACKAGES = "python3,python3-venv,python3-dev,g++,ca-certificates"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

# Asked of a candidate: its version, and why it does not do. fineline's own check runs in it, which loads nothing that is not loaded.
_PROBE = """
import json, os, runpy, sys, sysconfig
reason = runpy.run_path(sys.argv[1])["unsupported"]()
if reason is None and not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    reason = "it has no Python.h, which the native core is compiled with"
try:
    import ensurepip, venv
except ImportError as error:
    reason = reason or f"it makes no environments: {error}"
print(json.dumps([".".join(map(str, sys.version_info[:3])), reason]))
"""

# In a mount namespace of its own, whose mounts end with the process: where the folder is removed, no mount of this checkout lies in it.
_ENTER = """
set -e
debian=$1 checkout=$2
shift 2
mount --rbind /dev "$debian/dev"
mount -t proc proc "$debian/proc"
mkdir -p "$debian$checkout"
mount --bind "$checkout" "$debian$checkout"
exec chroot "$debian" sh -c 'cd "$0" && exec env -u TMPDIR "$@"' "$checkout" "$@"
"""


class Unavailable(Exception):
    """Something that a run needs cannot be had on this machine, and why."""


class Interpreter(NamedTuple):
    """A Python: ``enter`` is the command that goes before all commands of its environments, if they run in a Debian of their own."""

    path: str
    version: str
    enter: tuple[str, ...] = ()


def run(command: list[str], variables: Mapping[str, str] | None = None) -> str:
    """Returns what a command prints; raises `Unavailable` with its last line if it fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **(variables or {})}, text=True, capture_output=True, check=False)
    except OSError as error:
        raise Unavailable(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise Unavailable(f"{' '.join(_shown(command))}: {last}")
    return done.stdout


def _shown(command: list[str]) -> list[str]:
    """Returns the words of a command, with scripts left out."""
    return [word if "\n" not in word else "…" for word in command]


def find(version: str) -> Interpreter:
    """Returns an interpreter of a version such as 3.12; raises `Unavailable` with why each candidate does not do."""
    reasons = []
    for path in _candidates(version):
        try:
            return probed(path, version)
        except Unavailable as error:
            reasons.append(str(error))
    if version in DEBIAN:
        try:
            return probed("/usr/bin/python3", version, _debian(DEBIAN[version]))
        except Unavailable as error:
            reasons.append(f"Debian {DEBIAN[version]}: {error}")
    raise Unavailable("; ".join(reasons) or f"no python{version} is on PATH or among pyenv's")


def _candidates(version: str) -> Iterator[str]:
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield on_path
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    # The newest first.
    found = [folder for folder in versions.glob(f"{version}.*") if folder.name.removeprefix(f"{version}.").isdigit()]
    for folder in sorted(found, key=lambda folder: int(folder.name.split(".")[2]), reverse=True):
        yield str(folder / "bin" / "python")


def probed(path: str, version: str, enter: tuple[str, ...] = ()) -> Interpreter:
    """Returns the interpreter at a path; raises `Unavailable` if fineline does not run on it, or if it is of another version."""
    try:
        full, reason = json.loads(run([*enter, path, "-c", _PROBE, str(ROOT / "src/fineline/bytecode/supported.py")]))
    except ValueError as error:
        raise Unavailable(f"{path}: {error}") from error
    if reason is None and not full.startswith(f"{version}."):
        reason = f"this is Python {full}, not {version}"
    if reason is not None:
        raise Unavailable(f"{path}: {reason}")
    return Interpreter(path, full, enter)


def _debian(release: str) -> tuple[str, ...]:
    """Makes the folder of a release of Debian, and returns the command that goes before those that run in it."""
    if os.geteuid() != 0:
        raise Unavailable("only root makes it and enters it")
    if shutil.which("unshare") is None:
        raise Unavailable("there is no unshare, which enters it")
    folder, made = FOLDER / release, FOLDER / release / ".made"
    if not made.exists():
        command, variables = _debootstrap()
        print(f"Installing Debian {release} into {folder.relative_to(ROOT)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        run([*command, "--variant=minbase", f"--include={PACKAGES}", release, str(folder), MIRROR], variables)
        if CERTIFICATES.exists():
            # They may have one of this network's.
            shutil.copy(CERTIFICATES, folder / CERTIFICATES.relative_to("/"))
        made.touch()
    return ("unshare", "--mount", "sh", "-c", _ENTER, "enter", str(folder), str(ROOT))


def _debootstrap() -> tuple[list[str], dict[str, str]]:
    """Returns the command and its variables. Where debootstrap is not installed, its package is unpacked."""
    installed = shutil.which("debootstrap")
    if installed is not None:
        return [installed], {}
    folder = FOLDER / "debootstrap"
    if not (folder / "usr").exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise Unavailable("there is no debootstrap")
        folder.mkdir(parents=True, exist_ok=True)
        run(["sh", "-c", 'cd "$0" && apt-get download debootstrap && dpkg-deb -x debootstrap_*.deb .', str(folder)])
    return [str(folder / "usr/sbin/debootstrap")], {"DEBOOTSTRAP_DIR": str(folder / "usr/share/debootstrap")}
