"""The commands of the tutorials, run as they stand, with the files that the pages show; their Python sessions run in `test_docs`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.tutorials import COMMAND, FOLDER, read, run

# Two processes have a test beside those of their kind: tests/distributed/test_tutorial.py.
PAGES = {path.name: read(path.read_text()) for path in sorted(FOLDER.glob("*.md")) if path.name != "two_processes.md"}


@pytest.mark.later
@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.commands])
def test_commands_succeed_and_print_what_is_shown(name: str, tmp_path: Path) -> None:
    for command, status, output in run(PAGES[name], tmp_path):
        assert status == 0, f"{command.line}: {output}"
        assert command.shown is None or output == command.shown, command.line


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_every_block_is_a_file_a_session_or_commands(path: Path) -> None:
    text = path.read_text()
    assert set(re.findall(r"^```(\w*)\n", text, re.M)) - {""} <= {"python", "toml", "console"}
    page = read(text)
    assert page.session or page.commands
    # No command is left out.
    assert [command.line for command in page.commands if not COMMAND.match(command.line)] == []
    assert {word for command in page.commands for word in re.findall(r"[\w./]+\.py\b", command.line)} <= {*page.files}


def test_blocks_are_told_apart() -> None:
    page = read("""
Run `fineline run a.py` after `fineline run`:

    python a.py

```console
$ fineline run a.py
1
2
$ python a.py
```

```python
# pkg/a.py
print(1)
```

```python
# A comment.
x = 1
```
""")
    assert page.commands == [("fineline run a.py", None), ("python a.py", None), ("fineline run a.py", "1\n2\n"), ("python a.py", "")]
    assert page.files == {"pkg/a.py": "# pkg/a.py\nprint(1)\n"} and page.session == ["# A comment.\nx = 1\n"]
