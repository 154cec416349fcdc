"""An audit as JUnit XML: a test case for each threshold, which fails where the threshold was crossed."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from sglang_lifecycle.analyzers.listing import Audit, ThresholdResult
from sglang_lifecycle.cli.gates import says
from sglang_lifecycle.cli.text import clean


def junit(audit: Audit) -> str:
    """The report. It holds no time of its own: the same logs give the same bytes."""
    failures = sum(each.crossed for each in audit.thresholds)
    counts = f'tests="{len(audit.thresholds)}" failures="{failures}" errors="0" skipped="0"'
    cases = "".join(line for each in audit.thresholds for line in _case(each))
    properties = {
        "requests": audit.totals.requests,
        "interrupted": audit.totals.interrupted,
        **{f"cause.{cause}": number for cause, number in audit.totals.by_cause.items()},
    }
    told = "".join(f'      <property name={_attribute(k)} value="{v}"/>\n' for k, v in properties.items())
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="lifecycle audit" {counts}>\n'
        f'  <testsuite name="lifecycle audit" {counts}>\n'
        f"    <properties>\n{told}    </properties>\n{cases}  </testsuite>\n</testsuites>\n"
    )


def _case(result: ThresholdResult) -> Iterator[str]:
    head = f'    <testcase classname="lifecycle.audit" name={_attribute(result.expression)}'
    if not result.crossed:
        yield f"{head}/>\n"
        return
    listed = "\n".join(clean(rid) for rid in result.rids)
    yield f'{head}>\n      <failure type="threshold" message={_attribute(says(result))}>{escape(listed)}</failure>\n'
    yield "    </testcase>\n"


def _attribute(text: str) -> str:
    # What XML can't hold, even escaped, is written as Python would write it.
    return quoteattr(clean(text))
