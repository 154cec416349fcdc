"""The library's small public interface: read logs, explain a request, audit all of them; at home in a notebook.

from sglang_lifecycle import read, explain, audit

logs = read("server.log")
explain(logs, "job-12").cause
audit(logs).totals.by_cause
logs.evidence_table.filter(pl.col("rid") == "job-12")
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from sglang_lifecycle.analyzers import listing, verdict
from sglang_lifecycle.analyzers.audit import audit as audited
from sglang_lifecycle.analyzers.explain import explain as explained
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.cli.audit_document import document as audit_document
from sglang_lifecycle.cli.inputs import quoted
from sglang_lifecycle.cli.page import fragment
from sglang_lifecycle.cli.times import Clock
from sglang_lifecycle.cli.verdict_document import document as verdict_document
from sglang_lifecycle.parsers import store
from sglang_lifecycle.parsers.evidence import Evidence
from sglang_lifecycle.parsers.log import read as read_logs

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Audit", "Logs", "Verdict", "audit", "explain", "read"]

Path = str | os.PathLike[str]


class Verdict(verdict.Verdict):
    """What truly ended one request. A notebook shows it as HTML."""

    def _repr_html_(self) -> str:
        return fragment(verdict_document(self, Clock()))


class Audit(listing.Audit):
    """What happened to every request. A notebook shows it as HTML."""

    @property
    def requests_table(self) -> pl.DataFrame:
        """One row a request; `lifecycle schema requests` describes the columns."""
        from sglang_lifecycle.cli.requests_table import frame

        return frame(self)

    def _repr_html_(self) -> str:
        return fragment(audit_document(self, Clock()))


@dataclass(frozen=True)
class Logs:
    """What a set of logs says. `failed` are the paths that could not be read, one line each."""

    evidence: Evidence
    incident: Incident = field(repr=False)

    @property
    def failed(self) -> list[str]:
        """The paths that could not be read, and why."""
        return self.evidence.failed

    @cached_property
    def evidence_table(self) -> pl.DataFrame:
        """One row a fact; `lifecycle schema evidence` describes the columns."""
        from sglang_lifecycle.parsers import table

        return table.frame(self.evidence.facts)

    @property
    def rids(self) -> list[str]:
        """The ids of all requests that the logs name."""
        return list(self.incident.by_rid)


def read(paths: Path | Sequence[Path], *, tz: str | None = None, sglang_version: str | None = None) -> Logs:
    """Read log files, folders of them, or stores of `lifecycle ingest`.

    `tz` is the zone of times that name none (`Europe/Berlin`, `+02:00`; UTC by default), `sglang_version` the release,
    where the logs leave it open. What can't be read is in the result's `failed`. Raises `ValueError` for an unknown
    zone or a malformed version.
    """
    names = sorted(os.fspath(each) for each in ([paths] if isinstance(paths, str | os.PathLike) else paths))
    parts = []
    for name in filter(store.is_store, names):
        try:
            parts.append(store.load(name))
        except (store.StoreError, OSError) as problem:
            parts.append(Evidence(failed=[str(problem)]))
    if logs := [name for name in names if not store.is_store(name)]:
        parts.append(read_logs(logs, tz=tz))
    evidence = store.merge(parts)
    return Logs(evidence, Incident(evidence, sglang_version))


def explain(logs: Logs | Path | Sequence[Path], rid: str) -> Verdict:
    """What truly ended the request with this rid; its `status` is `not-found` where the logs don't name it."""
    verdict = explained(_logs(logs).incident, rid)
    quoted(verdict.evidence)
    return Verdict.model_construct(None, **dict(verdict))


def audit(logs: Logs | Path | Sequence[Path]) -> Audit:
    """What happened to every request, and to the server."""
    result = audited(_logs(logs).incident)
    for event in result.server_events:
        quoted(event.evidence)
    return Audit.model_construct(None, **dict(result))


def _logs(logs: Logs | Path | Sequence[Path]) -> Logs:
    return logs if isinstance(logs, Logs) else read(logs)
