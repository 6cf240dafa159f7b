"""Measures fineline against torch.compile over the zoo: both in one run, model by model, ratios at the end.

    python -m benchmarks.bench [--models a,b] [--modes infer,train] [--reps 3] [--check]

Cold: the first compile and call with imports warm. Warm: a call with a graph that does nothing (one-graph models only).
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from typing import Any

from benchmarks.results import load, save
from benchmarks.zoo import run, runs

HEAD = (
    f"{'model':<24}{'mode':<7}{'graphs':>9}{'operators':>13}{'cold ms':>17}{'ratio':>8}{'warm µs':>17}{'ratio':>8}  equal to eager\n"
    f"{'':<31}{'(f / t)':>9}{'(f / t)':>13}{'(f / t)':>17}{'':>8}{'(f / t)':>17}\n"
)


@dataclass(frozen=True)
class Pair:
    """One model in one mode through both front ends."""

    fineline: dict[str, Any]
    torch: dict[str, Any]

    @property
    def cold(self) -> float | None:
        return self.ratio("cold_warm_import_ms")

    @property
    def warm(self) -> float | None:
        return self.ratio("dispatch_us")

    @property
    def equal(self) -> bool:
        return self.fineline.get("status") == "ok"

    def ratio(self, field: str) -> float | None:
        mine, other = self.fineline.get(field), self.torch.get(field)
        return other / mine if mine and other else None

    def __str__(self) -> str:
        f, t = self.fineline, self.torch
        verdict = "yes" if self.equal else f"{f.get('status')} at {f.get('stage')}: {reason(f)[:70]}"
        return (
            f"{f['model']:<24}{f['mode']:<7}{_two(f, t, 'graphs'):>9}{_two(f, t, 'ops'):>13}{_two(f, t, 'cold_warm_import_ms'):>17}"
            f"{_times(self.cold):>8}{_two(f, t, 'dispatch_us'):>17}{_times(self.warm):>8}  {verdict}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="names by comma; all unless told")
    parser.add_argument("--modes", default="infer,train")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--check", action="store_true", help="fail when a target is missed")
    options = parser.parse_args()
    todo = runs(options.modes.split(","), [m for m in options.models.split(",") if m])
    print(HEAD, end="", flush=True)
    pairs, known = [], {(pair.fineline["model"], pair.fineline["mode"]): pair for pair in stored()}
    for model, mode in todo:
        pairs.append(Pair(*(run(model, mode, front_end, options.reps, options.timeout) for front_end in ("fineline", "torch"))))
        print(pairs[-1], flush=True)
        # Saved as it grows, over what earlier runs have measured: the whole zoo takes a while, and none of it should be lost.
        known[model, mode] = pairs[-1]
        save("zoo", [[pair.fineline, pair.torch] for pair in known.values()])
    met = True
    print()
    for what, found, good in summary(pairs):
        print(f"{what}: {found}{'' if good is None else '   met' if good else '   MISSED'}")
        met = met and good is not False
    return 0 if met or not options.check else 1


def stored() -> list[Pair]:
    """The newest pair of each model and mode."""
    return [Pair(*both) for both in load("zoo") or []]


def summary(pairs: list[Pair]) -> list[tuple[str, str, bool | None]]:
    """The targets: what, what was found, and whether that meets it (None: nothing to judge by)."""
    cold = [pair.cold for pair in pairs if pair.cold]
    warm = [pair.warm for pair in pairs if pair.warm]
    counted = [pair for pair in pairs if pair.fineline.get("graphs") is not None and pair.torch.get("graphs") is not None]
    # More graphs are right where they hold operators that torch.compile leaves to eager code.
    more = [p.fineline["model"] for p in counted if p.fineline["graphs"] > p.torch["graphs"] and p.fineline["ops"] <= p.torch["ops"]]
    # Where the rival cuts its graphs differently, or runs parts eagerly, there is nothing to compare counts with.
    one = [pair for pair in counted if pair.fineline["graphs"] == pair.torch["graphs"] == 1]
    apart = {pair.fineline["model"]: pair.fineline["ops"] / pair.torch["ops"] - 1 for pair in one if pair.torch["ops"]}
    far = [f"{model} {difference:+.1%}" for model, difference in apart.items() if abs(difference) > 0.02]
    unequal = [f"{pair.fineline['model']} ({pair.fineline['mode']})" for pair in pairs if not pair.equal]
    lines = [
        ("equal to eager", *_all_but(unequal, len(pairs))),
        ("no more graphs than torch.compile, but for more operators", *_all_but(more, len(counted))),
        ("operators within 2 % where both make one graph", *_all_but(far, len(one))),
    ]
    if cold:
        median, least = statistics.median(cold), min(cold)
        lines.append(("cold first call, median", f"{median:.1f}x faster (target 20x)", median >= 20))
        lines.append(("cold first call, least", f"{least:.1f}x faster (target 8x)", least >= 8))
    if warm:
        median, least = statistics.median(warm), min(warm)
        lines.append(("warm call overhead, median", f"{median:.1f}x smaller (target 10x); {least:.1f}x at the least", median >= 10))
    return lines


def reason(record: dict[str, Any]) -> str:
    """Why a record is not ok, in one line."""
    return (record.get("error") or "; ".join(record.get("problems", record.get("new_values_problems", [])))).replace("\n", " ")


def _all_but(bad: list[str], total: int) -> tuple[str, bool | None]:
    text = f"{total - len(bad)} of {total}"
    return (f"{text}; not {', '.join(bad)}" if bad else text), not bad if total else None


def _two(f: dict[str, Any], t: dict[str, Any], field: str) -> str:
    def one(value: Any) -> str:
        return "–" if value is None else f"{value:.0f}" if isinstance(value, float) and value >= 100 else f"{value:.4g}"

    return f"{one(f.get(field))} / {one(t.get(field))}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.1f}x"


if __name__ == "__main__":
    sys.exit(main())
