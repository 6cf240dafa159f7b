"""The types of the public functions, as mypy --strict finds them in a user's file: `typed_user_file.py`.

Its `assert_type` calls say what is kept. A line with a wrong call says in a comment which error mypy must find there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import fineline

ROOT = Path(__file__).parent.parent.parent
USER_FILE = Path(__file__).parent / "typed_user_file.py"


def test_the_package_says_that_it_has_types() -> None:
    assert files("fineline").joinpath("py.typed").is_file()


@pytest.mark.later
def test_a_typed_file_of_a_user() -> None:
    pytest.importorskip("mypy")
    # With a cache of its own: mypy forgets what it found under other options. Without one, a run takes half a minute.
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--cache-dir", str(ROOT / ".mypy_cache" / "user_file"), str(USER_FILE)]
    environment = {**os.environ, "PYTHONPATH": str(Path(fineline.__file__).parent.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment)
    found = {(int(line), code) for line, code in re.findall(r"^.*typed_user_file\.py:(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.M)}
    lines = enumerate(USER_FILE.read_text().splitlines(), 1)
    wanted = {(n, mark[1]) for n, line in lines if (mark := re.search(r"# error: ([a-z-]+)$", line)) is not None}
    assert found == wanted and len(wanted) > 20, f"{done.stdout}\n{done.stderr}"
