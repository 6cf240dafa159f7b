"""Writes captured graphs to PyTorch's structured trace, ``TORCH_TRACE``, from which tlparse makes a report."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor
from torch._guards import CompileContext, CompileId, compile_context
from torch._logging import trace_structured
from torch._logging._internal import trace_log
from torch._logging.structured import intern_string
from torch.fx import GraphModule

# A file, a line and the name of a function; the outermost first.
Stack = Sequence[tuple[str, int, str]]


class StructuredTrace:
    """Numbers the graphs of the process as torch.compile does: a number for each region, and one for each of its graphs."""

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        self._next = 0

    @property
    def is_read(self) -> bool:
        """Returns whether the trace is wanted: a handler has a folder. PyTorch's own handler always exists, at first without one."""
        return any([getattr(handler, "root_dir", None) is not None for handler in trace_log.handlers])

    @contextmanager
    def graph(self, owner: object, nth: int, gm: GraphModule, stack: Stack) -> Iterator[None]:
        """Writes the ``nth`` graph of the region ``owner``, if the trace is wanted; what a backend writes in the block belongs to it."""
        if not self.is_read:
            yield
            return
        if owner not in self._numbers:
            self._numbers[owner], self._next = self._next, self._next + 1
        with compile_context(CompileContext(CompileId(frame_id=self._numbers[owner], frame_compile_id=nth))):
            trace_structured("dynamo_start", lambda: {"stack": [_frame(*entry) for entry in stack]})
            trace_structured("dynamo_output_graph", lambda: {"sizes": _sizes(gm)}, payload_fn=lambda: _text(gm))
            yield


def _frame(file: str, line: int, name: str) -> dict[str, object]:
    return {"line": line, "name": name, "filename": intern_string(file)}


def _text(gm: GraphModule) -> str:
    text: str = gm.print_readable(print_output=False, include_stride=True, include_device=True)
    return text


def _sizes(gm: GraphModule) -> dict[str, list[int | str]]:
    values = {node.name: node.meta.get("example_value") for node in gm.graph.nodes}
    return {name: [n if isinstance(n, int) else str(n) for n in t.shape] for name, t in values.items() if isinstance(t, Tensor)}


TRACE = StructuredTrace()
