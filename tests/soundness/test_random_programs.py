"""Random programs, a short run; ``python -m tests.soundness.fuzz --minutes 60`` is the long one."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings

from tests.oracle import check
from tests.soundness.generator import program_of, programs

GENERATE = [Phase.generate]  # a failure here is shrunk by the long run, which prints the smallest program it finds


@settings(max_examples=40, phases=GENERATE, suppress_health_check=list(HealthCheck))
@given(source=programs())
def test_random_programs(twin: str, source: str) -> None:
    check(program_of(source), twin)
