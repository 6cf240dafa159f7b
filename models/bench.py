#!/usr/bin/env python3
"""Runs zoo models through a graph-capture front end and measures it.

  bench.py --frontend {torch,fineline} --models a,b,c|all --mode {infer,train}
           [--backend eager] [--out FILE.jsonl] [--timeout 180] [--resume] [--fullgraph]

Each model runs in a fresh process (killed after --timeout seconds; what it had
measured until then is kept).  One JSON line a model.  Times: *_ms wall and
*_cpu_ms (time.process_time); medians are named so.

The front end gets `compile(fn, backend=cb)` with cb(gm, example_inputs) ->
callable, and, if it has one, `reset()`.  Its backend runs the graph eagerly, so
everything measured is the front end plus plain PyTorch.

Fields
  status            ok | mismatch | error | timeout | crash | skipped
  stage             the stage reached (or the one that failed)
  equal             outputs (two calls), arguments after the calls, module state,
                    and in train mode parameter gradients, all as in eager
  bitwise           ... and bit for bit
  graphs, ops       calls of the backend at the first call, call_* nodes in them
                    (ops_compute leaves out operator.getitem)
  cold_first        first compile+call in the process; cold_warm_import: after a
                    reset(), a fresh instance, imports warm (min of reps).
                    graph_run_ms is the part spent running the captured graphs:
                    capture = cold - graph_run.
  recompiles_call2/3  backend calls at later calls with the same arguments
  new_values_equal  fourth call: other input values of the same shapes, all
                    parameters multiplied by 1.01 (recompiles_new_values: backend calls)
  dispatch_us       median call time with a backend that returns the outputs of
                    its first run (only where the first call made 1 graph and the
                    third made none); dispatch_cpu_us: mean CPU
  eager_ms, compiled_call_ms  median of one call
  break_reasons     torch only: torch._dynamo.utils.counters["graph_break"]
"""
import argparse
import contextlib
import gc
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


# --------------------------------------------------------------------------
# comparison
# --------------------------------------------------------------------------
def snapshot(obj, path="", memo=None, depth=0):
    """A flat list of (path, kind, value): tensors cloned, containers by type."""
    import numpy as np
    import torch

    memo = {} if memo is None else memo
    out = []
    if isinstance(obj, torch.Tensor):
        if isinstance(obj, torch.nn.parameter.UninitializedTensorMixin):
            return [(path, "value", "uninitialized")]
        t = obj.detach()
        if t.is_sparse or t.layout != torch.strided:
            t = t.to_dense()
        return [(path, "tensor", (t.clone(), bool(obj.requires_grad), type(obj).__name__ if type(obj) is not torch.nn.Parameter else "Parameter"))]
    if obj is None or isinstance(obj, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)):
        return [(path, "value", obj)]
    if isinstance(obj, np.ndarray):
        return [(path, "ndarray", obj.copy())]
    if isinstance(obj, np.generic):
        return [(path, "value", obj.item())]
    if id(obj) in memo:
        return [(path, "ref", None)]
    memo[id(obj)] = obj
    if depth > 12:
        return out
    name = f"{type(obj).__module__}.{type(obj).__qualname__}"
    if isinstance(obj, dict):
        out.append((path, "type", (name, len(obj))))
        for k in obj:
            out += snapshot(obj[k], f"{path}[{k!r}]", memo, depth + 1)
    elif isinstance(obj, (list, tuple, set, frozenset)) or type(obj).__name__ in ("deque", "odict_values", "dict_values"):
        out.append((path, "type", (name, len(obj))))
        for i, v in enumerate(obj):
            out += snapshot(v, f"{path}[{i}]", memo, depth + 1)
    elif isinstance(obj, torch.nn.Module) or (callable(obj) and not hasattr(obj, "__dict__")):
        out.append((path, "type", name))
    else:
        out.append((path, "type", name))
        d = getattr(obj, "__dict__", None)
        if d is not None and not isinstance(obj, type) and not callable(obj):
            for k in sorted(d, key=str):
                out += snapshot(d[k], f"{path}.{k}", memo, depth + 1)
    return out


def compare(ref, got, rtol, atol, check_rg=True):
    """-> (problems, max_abs_err, bitwise, tensors compared)"""
    import numpy as np
    import torch

    problems, worst, bit, n = [], 0.0, True, 0
    if len(ref) != len(got):
        a, b = {r[0] for r in ref}, {g[0] for g in got}
        problems.append(f"structure: {len(ref)} vs {len(got)} leaves; only eager {sorted(a - b)[:3]}; only compiled {sorted(b - a)[:3]}")
    for r, g in zip(ref, got, strict=False):
        if r[0] != g[0] or r[1] != g[1]:
            problems.append(f"structure at {r[0]!r} ({r[1]}) vs {g[0]!r} ({g[1]})")
            break
        if r[1] == "tensor":
            (a, arg, at), (b, brg, bt) = r[2], g[2]
            n += 1
            if a.shape != b.shape or a.dtype != b.dtype:
                problems.append(f"{r[0]}: {tuple(a.shape)} {a.dtype} vs {tuple(b.shape)} {b.dtype}")
                continue
            if check_rg and arg != brg:
                problems.append(f"{r[0]}: requires_grad {arg} vs {brg}")
            if at != bt:
                problems.append(f"{r[0]}: class {at} vs {bt}")
            if a.numel() == 0 or a.device.type == "meta":
                continue
            same = torch.equal(a, b)
            if not same:
                if a.is_floating_point() or a.is_complex():
                    both_nan = torch.isnan(a) & torch.isnan(b)
                    if bool((both_nan | (a == b)).all()):
                        continue
                    bit = False
                    d = (a - b).abs()
                    d = d[torch.isfinite(d)]
                    err = float(d.max()) if d.numel() else 0.0
                    worst = max(worst, err)
                    if not torch.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
                        problems.append(f"{r[0]}: max abs err {err:.3g} (scale {float(a.abs().max()):.3g})")
                else:
                    bit = False
                    problems.append(f"{r[0]}: {int((a != b).sum())} of {a.numel()} differ ({a.dtype})")
        elif r[1] == "ndarray":
            if not np.allclose(r[2], g[2], rtol=rtol, atol=atol, equal_nan=True):
                problems.append(f"{r[0]}: ndarray differs")
        elif r[1] == "value" and isinstance(r[2], float) and isinstance(g[2], float):
            if r[2] != g[2] and not (r[2] != r[2] and g[2] != g[2]):
                bit = False
                if abs(r[2] - g[2]) > atol + rtol * abs(r[2]):
                    problems.append(f"{r[0]}: {r[2]} vs {g[2]}")
        elif r[2] != g[2]:
            problems.append(f"{r[0]}: {str(r[2])[:80]} vs {str(g[2])[:80]}")
    return problems[:6], worst, bit, n


def state(built):
    """Parameters, buffers, gradients, optimizer state."""
    import torch

    out = []
    for i, m in enumerate(built.modules):
        if isinstance(m, torch.nn.Module):
            for n, p in m.named_parameters():
                out += snapshot(p, f"m{i}.{n}")
                out += snapshot(p.grad, f"m{i}.{n}.grad")
            for n, b in m.named_buffers():
                out += snapshot(b, f"m{i}.{n}")
        elif hasattr(m, "state_dict"):
            out += snapshot(m.state_dict(), f"opt{i}")
    return out


def default_loss(out):
    import torch

    loss = getattr(out, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.requires_grad:
        return loss.sum()
    seen, tot = set(), []

    def walk(o, d=0):
        if isinstance(o, torch.Tensor):
            if o.requires_grad and id(o) not in seen:
                seen.add(id(o))
                if o.is_complex():
                    o = torch.view_as_real(o)
                if o.is_floating_point():
                    tot.append(o.float().pow(2).mean())
        elif d > 8 or o is None:
            return
        elif isinstance(o, dict):
            for v in o.values():
                walk(v, d + 1)
        elif isinstance(o, (list, tuple)):
            for v in o:
                walk(v, d + 1)
        elif hasattr(o, "__dict__") and not isinstance(o, (type, torch.nn.Module)):
            for v in vars(o).values():
                walk(v, d + 1)

    walk(out)
    if not tot:
        raise RuntimeError("no output requires grad")
    return torch.stack(tot).sum()


# --------------------------------------------------------------------------
# front ends
# --------------------------------------------------------------------------
class TorchFE:
    name = "torch"

    def __init__(self, opts):
        import torch

        self.torch, self.opts = torch, opts

    def compile(self, fn, backend):
        return self.torch.compile(fn, backend=backend, **self.opts)

    def reset(self):
        self.torch._dynamo.reset()

    def info(self):
        from torch._dynamo.utils import counters

        return {"break_reasons": [[k.strip().replace("\n", " ")[:500], v] for k, v in counters["graph_break"].items()][:12],
             "n_breaks": sum(counters["graph_break"].values()),
             "frames": dict(counters["frames"]), "unimplemented": len(counters["unimplemented"])}


class FinelineFE:
    name = "fineline"

    def __init__(self, opts):
        import fineline

        self.m, self.opts = fineline, opts

    def compile(self, fn, backend):
        return self.m.compile(fn, backend=backend, **self.opts)

    def reset(self):
        if hasattr(self.m, "reset"):
            self.m.reset()

    def info(self):
        f = getattr(self.m, "bench_info", None)  # optional: a dict like TorchFE.info()'s
        return dict(f()) if f else {}


class Counting:
    """Backend: runs the graph eagerly (or returns its first outputs when cached)."""

    def __init__(self, cached=False):
        self.cached, self.gms, self.run_wall, self.run_cpu, self.n = cached, [], 0.0, 0.0, 0

    def __call__(self, gm, example_inputs):
        self.n += 1
        self.gms.append(gm)
        fwd = gm.forward
        if self.cached:
            box = []

            def run(*a):
                if not box:
                    box.append(fwd(*a))
                return box[0]
        else:

            def run(*a):
                w, c = time.perf_counter(), time.process_time()
                try:
                    return fwd(*a)
                finally:
                    self.run_wall += time.perf_counter() - w
                    self.run_cpu += time.process_time() - c

        return run

    def ops(self, gms=None):
        import operator

        from torch.fx import GraphModule

        calls = compute = ph = 0
        for g in self.gms if gms is None else gms:
            subs = [m for m in g.modules() if isinstance(m, GraphModule)] if hasattr(g, "modules") else [g]
            for s in subs:
                for n in s.graph.nodes:
                    if n.op.startswith("call_"):
                        calls += 1
                        compute += n.target is not operator.getitem
                    ph += n.op == "placeholder"
        return calls, compute, ph


# --------------------------------------------------------------------------
# child: one model
# --------------------------------------------------------------------------
def child(a):
    t_start = time.time()
    rec = {"model": a.models, "frontend": a.frontend, "mode": a.mode, "backend": a.backend, "status": "error", "stage": "import"}

    def save(**kw):
        rec.update(kw)
        rec["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        rec["child_s"] = round(time.time() - t_start, 2)
        tmp = a.out + ".tmp"
        with open(tmp, "w") as f:
            json.dump(rec, f)
        os.replace(tmp, a.out)

    save()
    import torch

    torch.set_num_threads(1)
    import zoo

    e = zoo.REGISTRY[a.models]
    rec.update(family=e.family, pkg=e.pkg, kind=e.kind, tags=list(e.tags))
    if (a.mode == "train" and not e.train) or (a.mode == "infer" and e.kind == "step"):
        save(status="skipped", stage="mode", error=f"{e.kind} has no {a.mode} run")
        return
    fe_opts = {}
    if a.fullgraph:
        fe_opts["fullgraph"] = True
    train = a.mode == "train"
    rtol, atol = e.tol
    ctx = contextlib.nullcontext if (train or "backward" in e.tags) else torch.no_grad

    def build():
        b = zoo.build(a.models)
        if train and e.kind != "step":
            for m in b.modules:
                if isinstance(m, torch.nn.Module):
                    m.train()
        return b

    def call(fn, b, seed=1):
        """One call (forward only)."""
        zoo.seed_all(seed)
        with ctx():
            return fn(*b.args, **b.kwargs)

    def call_full(fn, b, seed):
        """A call and, in train mode, the backward of a scalar of its outputs."""
        out = call(fn, b, seed)
        s = snapshot(out)
        if train and e.kind != "step":
            default_loss(out).backward()
        return s

    def timed(f):
        gc.collect()
        w, c = time.perf_counter(), time.process_time()
        r = f()
        return r, (time.perf_counter() - w) * 1e3, (time.process_time() - c) * 1e3

    def left():
        return a.timeout - 15 - (time.time() - t_start)

    try:
        save(stage="build")
        A = build()
        st0 = state(A)
        save(stage="eager")
        ref1 = call_full(A.fn, A, 1)
        ref2 = call_full(A.fn, A, 2)
        ref_args = snapshot([A.args, A.kwargs])
        ref_state = state(A)
        n_par = sum(p.numel() for m in A.modules if isinstance(m, torch.nn.Module) for p in m.parameters())
        rec["params"] = n_par

        save(stage="frontend-import")
        t0, c0 = time.perf_counter(), time.process_time()
        fe = {"torch": TorchFE, "fineline": FinelineFE}[a.frontend](fe_opts)
        rec["frontend_import_ms"] = round((time.perf_counter() - t0) * 1e3, 2)

        # -- first compile
        save(stage="cold_first")
        B = build()
        p, _, _, _ = compare(st0, state(B), 0, 0)
        if p:
            rec["build_differs"] = p[:2]
        cb = Counting()
        box = {}

        def cold():
            box["fn"] = fe.compile(B.fn, cb)
            return call(box["fn"], B, 1)

        out, w, c = timed(cold)
        calls, compute, ph = cb.ops()
        rec.update(graphs=cb.n, ops=calls, ops_compute=compute, placeholders=ph, cold_first_ms=round(w, 2), cold_first_cpu_ms=round(c, 2),
                   cold_first_graph_run_ms=round(cb.run_wall * 1e3, 2))
        try:
            rec.update(fe.info())
        except Exception as x:
            rec["info_error"] = repr(x)[:200]
        save(stage="compare")
        got1 = snapshot(out)
        if train and e.kind != "step":
            default_loss(out).backward()
        del out
        n1 = cb.n
        got2 = call_full(box["fn"], B, 2)
        n2 = cb.n
        got_args, got_state = snapshot([B.args, B.kwargs]), state(B)
        problems, worst, bit, nt = [], 0.0, True, 0
        for what, r, g in (("call1", ref1, got1), ("call2", ref2, got2), ("args", ref_args, got_args), ("state", ref_state, got_state)):
            p, wo, bi, n = compare(r, g, rtol, atol)
            problems += [f"{what}{x}" for x in p]
            worst, bit, nt = max(worst, wo), bit and bi, nt + n
        rec.update(recompiles_call2=n2 - n1, new_values_equal=None, equal=not problems, bitwise=bit and not problems, max_abs_err=worst, tensors_compared=nt)
        if problems:
            rec["problems"] = problems[:6]
            # is eager itself reproducible?
            A2 = build()
            s1, s2 = call_full(A2.fn, A2, 1), call_full(A2.fn, A2, 2)
            q = compare(ref1, s1, rtol, atol)[0] + compare(ref2, s2, rtol, atol)[0] + compare(ref_state, state(A2), rtol, atol)[0]
            rec["eager_reproducible"] = not q
        call_full(box["fn"], B, 3)
        rec["recompiles_call3"] = cb.n - n2
        # other values of the same shapes, and changed parameters: nothing may be baked in
        save(stage="new-values")
        call_full(A.fn, A, 3)  # keep A's state in step with B's
        n3 = cb.n
        N1, N2 = zoo.build(a.models, seed=1), zoo.build(a.models, seed=1)
        for b, nb in ((A, N1), (B, N2)):
            b.args, b.kwargs = nb.args, nb.kwargs
            with torch.no_grad():
                for m in b.modules:
                    if isinstance(m, torch.nn.Module):
                        for p in m.parameters():
                            if p.is_floating_point():
                                p.mul_(1.01)
        try:
            r = snapshot(call(A.fn, A, 4))
        except Exception as x:
            rec["new_values_note"] = f"eager itself fails: {x!r}"[:200]
        else:
            p = compare(r, snapshot(call(box["fn"], B, 4)), rtol, atol)[0]
            rec.update(new_values_equal=not p, recompiles_new_values=cb.n - n3)
            if p:
                rec["new_values_problems"] = p[:3]
            del r
        del N1, N2
        del ref1, ref2, got1, got2, got_args, got_state, ref_state, ref_args
        save(stage="eager-time")

        # -- steady call times
        def med(fn, b, budget=0.5, most=30):
            call(fn, b)
            ts, t_end = [], time.time() + budget
            while len(ts) < most and (time.time() < t_end or len(ts) < 3) and left() > 0:
                zoo.seed_all(1)
                with ctx():
                    t = time.perf_counter()
                    fn(*b.args, **b.kwargs)
                    ts.append(time.perf_counter() - t)
            return round(statistics.median(ts) * 1e3, 4) if ts else None

        rec["eager_ms"] = med(A.fn, A)
        if left() > 0:
            rec["compiled_call_ms"] = med(box["fn"], B)
        del A

        # -- cold again with warm imports
        save(stage="cold_warm_import")
        reps = []
        for _ in range(a.reps):
            if reps and (reps[-1][0] / 1e3 * 1.5 + 5 > left() or reps[-1][0] > 8000):
                break
            fe.reset()
            B = box = cb = None
            gc.collect()
            B = build()
            cb, box = Counting(), {}
            _, w, c = timed(cold)
            reps.append((round(w, 2), round(c, 2), round(cb.run_wall * 1e3, 2), round(cb.run_cpu * 1e3, 2)))
            rec.update(cold_warm_import_ms=min(r[0] for r in reps), cold_warm_import_cpu_ms=min(r[1] for r in reps), cold_reps=reps,
                       capture_ms=round(min(r[0] - r[2] for r in reps), 2), capture_cpu_ms=round(min(r[1] - r[3] for r in reps), 2))
            save()

        # -- dispatch
        if rec["graphs"] == 1 and rec["recompiles_call2"] <= 1 and rec["recompiles_call3"] == 0 and e.kind != "step":
            save(stage="dispatch")
            fe.reset()
            B = build()
            cb = Counting(cached=True)
            fn = fe.compile(B.fn, cb)
            for _ in range(3):
                call(fn, B)
            n0, ts = cb.n, []
            with ctx():
                args, kwargs = B.args, B.kwargs
                gc.collect()
                c0 = time.process_time()
                for _ in range(200):
                    t = time.perf_counter_ns()
                    fn(*args, **kwargs)
                    ts.append(time.perf_counter_ns() - t)
                    if len(ts) % 20 == 0 and left() < 5:
                        break
                c1 = time.process_time()
            if cb.n == n0:
                rec.update(dispatch_us=round(statistics.median(ts) / 1e3, 2), dispatch_cpu_us=round((c1 - c0) / len(ts) * 1e6, 2), dispatch_n=len(ts))
            else:
                rec["dispatch_note"] = f"{cb.n} backend calls in the dispatch loop"
        save(stage="done", status="ok" if rec["equal"] and rec["new_values_equal"] is not False else "mismatch")
    except BaseException as x:
        msg = str(x).strip()
        tb = traceback.extract_tb(x.__traceback__)
        last = tb[-1] if tb else None
        rec["error_type"] = type(x).__name__
        rec["error"] = msg[:1500]
        rec["error_at"] = f"{last.filename}:{last.lineno}" if last else ""
        traceback.print_exc()
        save(status="error")


# --------------------------------------------------------------------------
# driver
# --------------------------------------------------------------------------
def driver(a):
    import zoo

    if a.models == "all":
        names = list(zoo.REGISTRY)
    else:
        names = [n for n in a.models.split(",") if n]
    bad = [n for n in names if n not in zoo.REGISTRY]
    if bad:
        sys.exit(f"unknown models: {bad}")
    done = set()
    if a.resume and a.out and os.path.exists(a.out):
        done = {(r["model"], r["mode"], r["frontend"]) for r in map(json.loads, open(a.out))}
    logdir = os.path.join(a.logs, f"{a.frontend}_{a.mode}")
    os.makedirs(logdir, exist_ok=True)
    env = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", PYTHONHASHSEED="0", TOKENIZERS_PARALLELISM="false")
    out = open(a.out, "a") if a.out else None
    bad_n = 0
    for name in names:
        e = zoo.REGISTRY[name]
        if (name, a.mode, a.frontend) in done:
            continue
        if (a.mode == "train" and not e.train) or (a.mode == "infer" and e.kind == "step"):
            continue
        tmp = os.path.join(logdir, name + ".json")
        if os.path.exists(tmp):
            os.unlink(tmp)
        cmd = [sys.executable, os.path.abspath(__file__), "--child", "--models", name, "--frontend", a.frontend, "--mode", a.mode, "--backend", a.backend,
               "--out", tmp, "--timeout", str(a.timeout), "--reps", str(a.reps)] + (["--fullgraph"] if a.fullgraph else [])
        load = os.getloadavg()[0]
        t0 = time.time()
        with open(os.path.join(logdir, name + ".log"), "w") as lf:
            p = subprocess.Popen(cmd, stdout=lf, stderr=subprocess.STDOUT, env=env, start_new_session=True, cwd=HERE)
            try:
                rc, timed_out = p.wait(timeout=a.timeout), False
            except subprocess.TimeoutExpired:
                timed_out = True
                os.killpg(p.pid, signal.SIGKILL)
                rc = p.wait()
        try:
            rec = json.load(open(tmp))
        except Exception:
            rec = {"model": name, "frontend": a.frontend, "mode": a.mode, "backend": a.backend, "stage": "start"}
        if timed_out:
            rec["status"] = "timeout"
        elif rc != 0:
            rec["status"] = "crash"
            rec["rc"] = rc
        rec["wall_s"] = round(time.time() - t0, 1)
        rec["loadavg_before"] = round(load, 2)
        line = json.dumps(rec)
        if out:
            out.write(line + "\n")
            out.flush()
        else:
            print(line)
        bad_n += rec.get("status") != "ok"
        print(f"{rec.get('status'):8s} {name:32s} {a.mode} graphs {rec.get('graphs')} ops {rec.get('ops')} "
              f"cold {rec.get('cold_warm_import_ms')} ms dispatch {rec.get('dispatch_us')} us "
              f"eager {rec.get('eager_ms')} ms {rec['wall_s']} s {(rec.get('error') or ' '.join(rec.get('problems', [])))[:120]!r}", file=sys.stderr, flush=True)
    return bad_n


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--frontend", choices=["torch", "fineline"], default="torch")
    p.add_argument("--models", default="all")
    p.add_argument("--mode", choices=["infer", "train"], default="infer")
    p.add_argument("--backend", choices=["eager"], default="eager")
    p.add_argument("--out", default="")
    p.add_argument("--timeout", type=float, default=180)
    p.add_argument("--reps", type=int, default=2, help="cold compiles with warm imports")
    p.add_argument("--resume", action="store_true")
    p.add_argument("--fullgraph", action="store_true")
    p.add_argument("--logs", default=os.path.join(os.getcwd(), ".zoo_logs"))
    p.add_argument("--child", action="store_true")
    a = p.parse_args()
    if a.child:
        child(a)
    else:
        driver(a)


if __name__ == "__main__":
    main()
