"""fineline in hosts other than ``python script.py``: interpreter options, names that the host lacks, code without source, archives."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import fineline
from fineline.cpython import c_callables, numpy_scalars
from fineline.tables import attributes, imported
from fineline.tensor_ops import fake_layouts
from fineline.tensor_ops.arrays import constants as constant_arrays
from fineline.torch_facts import mutation
from fineline.torch_facts import names as torch_names

SOURCE = Path(fineline.__file__).parent
SITE = Path(torch.__file__).parent.parent
# Modules, graph breaks, writes, printing, failures, explanations: each against eager code.
PROGRAM = '''
import sys, traceback
import torch
import fineline

log = []


def total(items):
    """A docstring, which -OO takes away."""
    try:
        return sum([i for i in items if i], start=0)
    finally:
        log.append(len(items))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)

    def forward(self, x, fail=False):
        y = self.lin(x).relu()
        if y.sum().item() > 1e6:
            y = y / 2
        print("seen", f"{x.shape[0]}", file=sys.stderr)
        if fail:
            raise ValueError(total.__doc__ or "none")
        return y * total([1, 0, x.shape[0]])


def equal(f, g, *args):
    out = []
    for fn in (f, g):
        log.clear()
        try:
            result = fn(*args).tolist()
        except ValueError as e:
            result = str(e), [frame.name for frame in traceback.extract_tb(e.__traceback__)][-1]
        out.append((result, list(log)))
    if out[0] != out[1]:
        sys.exit(f"differs: {out}")


net, x = Net(), torch.ones(2, 3)
for dynamic in (False, True):
    fast = fineline.compile(net, backend="eager", dynamic=dynamic)
    for rows in (2, 2, 5, 7):
        equal(net, fast, torch.ones(rows, 3))
    equal(net, fast, x, True)
    equal(net, fast, x, True)
if "graph" not in str(fineline.explain(net)(x)):
    sys.exit("no explanation")
try:
    fineline.compile(net, backend="eager", fullgraph=True)(x)
except fineline.errors.FinelineError as e:
    print(e.id, e.where)
print(str(fineline.why("torch.sub")).splitlines()[0])
print("done")
'''
OPTIONS = ["-S", "-O -X no_debug_ranges", "-S -I -OO -X frozen_modules=on"]


def run(command: list[str], text: str | None = None, path: tuple[Path, ...] = (SOURCE.parent, SITE)) -> list[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run([sys.executable, *command], input=text, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.later
@pytest.mark.parametrize("options", OPTIONS)
def test_interpreter_options(options: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    # -I ignores PYTHONPATH.
    script.write_text(f"import sys\nsys.path[:0] = {[str(SOURCE.parent), str(SITE)]}\n{PROGRAM}")
    out = run([*options.split(), str(script)])
    assert out == [f"FL102 {script}:26", "torch.sub: allow (it is one call in the graph, and fineline does not look inside)", "done"]


@pytest.mark.later
def test_standard_input() -> None:
    """Code of no file, as `exec` and ``python -c`` have it too: nothing can quote its lines."""
    assert run(["-"], PROGRAM)[0] == "FL102 <stdin>:24"
    assert run(["-c", f"exec({PROGRAM!r})"])[0] == "FL102 <string>:24"


def test_zip_application(tmp_path: Path) -> None:
    """The program in an archive."""
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", PROGRAM)
    assert run([str(tmp_path / "app.pyz")])[0] == f"FL102 {tmp_path}/app.pyz/__main__.py:24"


def test_archive_of_fineline(tmp_path: Path) -> None:
    """fineline in an archive, where its tables of words are no files and its native core cannot be loaded."""
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        for file in sorted(SOURCE.rglob("*")):
            if file.suffix in (".py", ".toml"):
                archive.write(file, Path("fineline") / file.relative_to(SOURCE))
    text = f"import fineline, sys\nsys.stderr.write(fineline.__file__)\n{PROGRAM}"
    assert run(["-c", text], path=(tmp_path / "packed.zip", SITE))[-1] == "done"


# Each is gone before fineline is imported, as in the host named.
ABSENT = {
    "a notebook": "builtins: exit quit",
    "python -S, a frozen program": "builtins: exit quit help copyright credits license",
    "a sandbox": "builtins: input open breakpoint help __loader__",
    "CPython without its debugging functions": "sys: settrace setprofile gettrace getprofile getrefcount",
    # A build without it has the module all the same, and says that it is not available.
    "PyTorch without distributed": "torch._C: _c10d_init _distributed _distributed_c10d",
    "PyTorch without other devices": "torch: xpu mtia mps cpu",
    "PyTorch without libraries of kernels": "torch.backends: mkldnn mkl openmp mps cudnn",
    "PyTorch without quantization and nested tensors": "torch: q_per_channel_axis q_scale q_zero_point nested",
    "PyTorch without its C modules": "torch._C: _fft _nested _sparse",
    "a later NumPy": "numpy: around ptp longlong ulonglong lcm",
    "a system without fork": "os: register_at_fork fork",
    "a later Python": "_operator: _compare_digest",
}
HIDE = """
import importlib, os, sys
import numpy, torch
import torch._inductor.compile_fx, torch._dispatch.python
fork = os.fork
for line in {lines!r}:
    sys.stdout.flush()
    if not (child := fork()):
        module, _, names = line.partition(": ")
        for name in names.split():
            if hasattr(importlib.import_module(module), name):
                delattr(importlib.import_module(module), name)
            sys.modules.pop(module + "." + name, None)
        try:
            import fineline
            fast = fineline.compile(lambda x: (x + 1, len(x)), backend="eager")
            assert fast(torch.ones(2))[1] == fast(torch.ones(2))[1] == 2
            sys.__stdout__.write("fine\\n")
        except BaseException as e:
            sys.__stdout__.write(f"{{e!r}}\\n")
        sys.__stdout__.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_absent_names() -> None:
    """Whatever of these a host lacks, fineline starts: a name that is absent has no row in a table."""
    out = run(["-c", HIDE.format(lines=list(ABSENT.values()))])
    assert dict(zip(ABSENT, out, strict=True)) == dict.fromkeys(ABSENT, "fine")


def test_attributes() -> None:
    assert list(attributes(os, "getcwd there_is_no_such getpid")) == [os.getcwd, os.getpid]
    assert list(attributes("os.path", "join nothing")) == [os.path.join]
    assert list(attributes("torch.utils.hooks:BackwardHook", "setup_input_hook")) == [torch.utils.hooks.BackwardHook.setup_input_hook]
    assert list(attributes("no.such.module", "__class__")) == list(attributes("os:NoClass", "__class__")) == []
    assert imported("no.such.module") is imported("os:NoClass") is None


# Of `math`: ``sumprod`` from Python 3.12 on, ``fma`` from 3.13 on. Of `itertools`: ``batched`` from 3.12 on.
OF_LATER_PYTHONS = frozenset(
    {"batched", "fma", "heapify_max", "heappop_max", "heappush_max", "heappushpop_max", "heapreplace_max", "is_none", "is_not_none", "sumprod"}
)


def test_no_name_is_misspelt() -> None:
    """A name that is absent is skipped in silence: here, where all is there, none may be."""
    listed = [
        *[(module, names) for module, classes in c_callables._FUNCTIONS.items() for names in classes.values()],
        *[(np, names) for names in numpy_scalars._FUNCTIONS.values()],
        (np, numpy_scalars._KINDS), (np, constant_arrays._FUNCTIONS), (np.ndarray, constant_arrays._METHODS),
        (torch._C, torch_names.C_MODULES), (torch, torch_names.METADATA_TYPES), (torch, torch_names.TENSOR_TYPES),
        (torch.nn.functional, mutation._INPLACE_FLAGGED), (torch.Tensor, mutation._METADATA_MUTATORS),
        (torch, fake_layouts._COMPARED.replace("__floordiv__", "")),
    ]  # fmt: skip
    for owner, names in listed:
        assert [name for name in names.split() if not hasattr(owner, name) and name not in OF_LATER_PYTHONS] == [], owner
    for path, classes in torch_names.ELSEWHERE.items():
        __import__(path.partition(":")[0])
        for names in classes.values():
            assert [name for name in names.split() if not hasattr(imported(path), name)] == [], path
