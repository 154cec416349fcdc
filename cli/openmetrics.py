"""An audit as OpenMetrics text, for a textfile collector: gauges, since the next audit looks at other logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from sglang_lifecycle.analyzers.listing import Audit, ThresholdResult
from sglang_lifecycle.cli.words import CONFIDENCE

Samples = Iterable[tuple[Mapping[str, str], float]]


def openmetrics(audit: Audit) -> str:
    """The exposition, ending in `# EOF`. Causes that did not occur are there with 0, so that alerts see them go."""
    from sglang_lifecycle.analyzers.catalogue import load

    totals = audit.totals
    causes = {id: 0 for id, cause in load().items() if cause.group not in ("not-interrupted", "finding")}
    events = Counter(event.cause for event in audit.server_events)
    statuses = {"interrupted": totals.interrupted, "finished": totals.finished, "in-flight": totals.in_flight}
    confidences = dict.fromkeys(CONFIDENCE, 0) | totals.by_confidence
    inputs: Counter[str] = Counter()
    for each in audit.inputs:
        inputs.update(bytes=each.bytes, lines=each.lines, recognised=each.recognised)
    families: list[tuple[str, str, Samples]] = [
        ("requests", "Requests, by what became of them.", _by("status", statuses)),
        ("interrupted_requests", "Interrupted requests, by cause.", _by("cause", causes | totals.by_cause)),
        ("verdicts", "Interrupted requests, by how sure the verdict is.", _by("confidence", confidences)),
        ("left_out_requests", "Requests of SGLang itself, or to be ignored.", [({}, totals.synthetic)]),
        ("server_events", "Events of the server, by cause.", _by("cause", dict(sorted(events.items())))),
        ("input_bytes", "Bytes of logs that were read.", [({}, inputs["bytes"])]),
        ("input_lines", "Lines of logs that were read.", [({}, inputs["lines"])]),
        ("input_recognised_lines", "Lines that were recognised.", [({}, inputs["recognised"])]),
        (
            "threshold_crossed",
            "Whether a threshold was crossed (1) or kept (0).",
            [({"threshold": each.expression}, int(each.crossed)) for each in _once(audit)],
        ),
    ]
    return "".join(line for family in families for line in _family(*family)) + "# EOF\n"


def _once(audit: Audit) -> Iterable[ThresholdResult]:
    """The thresholds, each expression once: a series may not occur twice."""
    return {each.expression: each for each in audit.thresholds}.values()


def _by(label: str, numbers: Mapping[str, int]) -> Samples:
    return [({label: name}, number) for name, number in numbers.items()]


def _family(name: str, help: str, samples: Samples) -> Iterator[str]:
    yield f"# TYPE lifecycle_{name} gauge\n# HELP lifecycle_{name} {help}\n"
    for labels, value in samples:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"lifecycle_{name}{{{shown}}} {value}\n" if shown else f"lifecycle_{name} {value}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
