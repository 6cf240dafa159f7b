"""A test suite as people write it: CompileCounter, reset, dynamic=False, counters, same."""

import torch
import torch._dynamo
import torch._dynamo.test_case
import torch._dynamo.testing
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend, same
from torch._dynamo.utils import counters


class Tests(torch._dynamo.test_case.TestCase):
    def test_counts(self):
        cnt = CompileCounter()

        @torch.compile(backend=cnt)
        def fn(x, flag):
            if flag:
                return torch.cos(x)
            return torch.sin(x) + 1

        x = torch.randn(3)
        self.assertTrue(same(fn(x, True), torch.cos(x)))
        self.assertTrue(same(fn(x, False), torch.sin(x) + 1))
        fn(x, True)
        self.assertEqual(cnt.frame_count, 2)
        self.assertEqual(cnt.op_count, 3)

    def test_breaks(self):
        counters.clear()
        cnt = CompileCounterWithBackend("eager")

        def fn(x):
            x = torch.sin(x)
            torch._dynamo.graph_break()
            return torch.cos(x)

        opt = torch._dynamo.optimize(cnt)(fn)
        x = torch.randn(3)
        self.assertEqual(opt(x), fn(x))
        self.assertEqual(cnt.frame_count, 2)
        self.assertEqual(len(cnt.graphs), 2)
        self.assertEqual(sum(counters["graph_break"].values()), 1)
        self.assertEqual(counters["stats"]["unique_graphs"], 2)
        torch._dynamo.reset()
        with self.assertRaises(torch._dynamo.exc.Unsupported):
            torch._dynamo.optimize(cnt, nopython=True)(fn)(x)

    def test_reset(self):
        cnt = CompileCounter()
        opt = torch.compile(lambda x: x + 1, backend=cnt, dynamic=False)
        opt(torch.ones(2))
        torch._dynamo.reset()
        opt(torch.ones(2)), opt(torch.ones(3))
        self.assertEqual(cnt.frame_count, 3)

    def test_explain(self):
        def fn(x):
            x = torch.sin(x)
            print("hello")
            return torch.cos(x)

        explanation = torch._dynamo.explain(fn)(torch.randn(3))
        self.assertEqual(explanation.graph_count, 2)
        self.assertEqual(explanation.graph_break_count, 1)
        self.assertEqual(explanation.op_count, 2)
        for reason in explanation.break_reasons:
            self.assertIn("print", reason.reason)
            self.assertIn("counting.py", reason.user_stack[-1].filename)

    @torch._dynamo.config.patch(recompile_limit=2)
    def test_limit(self):
        cnt = CompileCounter()
        opt = torch.compile(lambda x, k: x + k, backend=cnt, dynamic=False)
        for k in ("a", "b", "c", "d"):
            opt(torch.ones(2), len(k) + ord(k))
        self.assertEqual(cnt.frame_count, 2)


if __name__ == "__main__":
    from torch._dynamo.test_case import run_tests

    run_tests()
