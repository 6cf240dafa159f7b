"""What a region made of a call, for people: graphs, breaks, eager stretches, guards, the program's source."""

from __future__ import annotations


from torch.fx import GraphModule

from fineline.report.events import Event


class Explanation:
    """``explain(f)(*args)``'s answer; ``str()`` of it is meant to be read."""

    def __init__(self, name: str, events: list[Event], graphs: list[GraphModule], guards: list[str], program: str) -> None:
        self.name = name
        self.events = events
        self.graphs = graphs
        self.guards = guards
        self.program = program

    @property
    def breaks(self) -> list[Event]:
        return [e for e in self.events if e.kind == "break"]

    @property
    def operators(self) -> int:
        """Call nodes in all graphs."""
        return sum(n.op.startswith("call_") for g in self.graphs for n in g.graph.nodes)

    def __str__(self) -> str:
        n, b = len(self.graphs), len(self.breaks)
        lines = [f"{self.name}: {_count(n, 'graph')}, {_count(self.operators, 'operator')}, {_count(b, 'graph break')}, {_count(len(self.guards), 'guard')}"]
        for i, e in enumerate(e for e in self.events if e.kind == "graph"):
            places: list[tuple[str, int]] = [p for p in e.detail.get("places", []) if p[0]]
            span = f" first {places[0][0]}:{places[0][1]}, last {places[-1][0]}:{places[-1][1]}" if places else ""
            lines.append(f"  graph {i}: {e.reason}{span}")
        for title, kind in (("graph breaks", "break"), ("eager", "eager"), ("recompiles", "recompile"), ("limits", "limit"), ("raised", "raised")):
            found: dict[str, int] = {}
            for e in self.events:
                if e.kind == kind:
                    text = f"{e.id} {e.where}: {e.reason}" + (f"  (rule: {e.rule})" if e.rule else "")
                    found[text] = found.get(text, 0) + 1
            if found:
                lines.append(f"  {title}:")
                lines += [f"    {text}" + (f"  ({times} times)" if times > 1 else "") for text, times in found.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        text = str(self).replace("&", "&amp;").replace("<", "&lt;")
        return f"<pre>{text}</pre>"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")


