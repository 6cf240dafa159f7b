"""The facts about the running version of CPython."""

from __future__ import annotations

import sys

from fineline.bytecode import python_3_11, python_3_12
from fineline.bytecode.lowering import Version

CURRENT: Version = {(3, 11): python_3_11, (3, 12): python_3_12}[sys.version_info[:2]].VERSION
