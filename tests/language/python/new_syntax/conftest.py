"""Each file here has the syntax of one Python in its name, which older ones cannot read."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_FILES = {path.name: re.findall(r"\d+", path.stem) for path in Path(__file__).parent.glob("test_*.py")}
collect_ignore = [name for name, (major, minor) in _FILES.items() if sys.version_info < (int(major), int(minor))]
