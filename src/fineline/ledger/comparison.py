"""The comparison of a run with a ledger: what is new, what is gone, and what is at fewer places than listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fineline.ledger.file import Entry, Ledger
from fineline.ledger.findings import Finding


@dataclass(frozen=True)
class Comparison:
    """The differences between a run and a ledger.

    ``new``: findings that the ledger does not list, or not at so many places; ``gone``: entries that the run has not met; ``fewer``:
    entries that it has met at fewer places than listed. Only ``new`` is a failure.
    """

    ledger: Ledger
    findings: Sequence[Finding]
    new: Sequence[Finding]
    gone: Sequence[Entry]
    fewer: Sequence[tuple[Entry, Finding]]

    def listed(self, finding: Finding) -> int:
        """Returns at how many places the ledger accepts a finding."""
        entry = self.ledger.entries.get(finding.key)
        return entry.count if entry is not None else 0


def compare(ledger: Ledger, findings: Sequence[Finding], whole: bool = True) -> Comparison:
    """Compares. ``whole``: the run has done all that the ledger is about; otherwise nothing is gone."""
    found = {finding.key: finding for finding in findings}
    entries = ledger.entries
    return Comparison(
        ledger,
        findings,
        [f for f in findings if f.key not in entries or len(f.places) > entries[f.key].count],
        [entry for key, entry in entries.items() if key not in found and whole],
        [(entry, found[key]) for key, entry in entries.items() if whole and key in found and len(found[key].places) < entry.count],
    )
