"""`lifecycle selftest`: the recorded scenarios that come with this installation, held against their truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sglang_lifecycle.cli.errors import ExitCode, LifecycleError
from sglang_lifecycle.cli.options import Color, Json
from sglang_lifecycle.cli.output import show, write

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

RIGHT = frozenset({"right", "undecided"})
"""The outcomes that are no error: the true cause, or an honest doubt that names it."""


def command(json: Json = False, color: Color = None) -> ExitCode:
    """Audit the bundled recordings of real servers, whose truth is known, and say whether the answers are right."""
    found = {folder: run(place) for folder, place in scenarios()}
    if not found:
        raise LifecycleError(ExitCode.INTERNAL, "this installation came without its recordings; install it again")
    totals = Counter(how for outcomes in found.values() for how in outcomes.values())
    wrong = {name: bad for name, each in found.items() if (bad := {r: h for r, h in each.items() if h not in RIGHT})}
    if json:
        import orjson

        write(
            orjson.dumps({"scenarios": len(found), "outcomes": dict(sorted(totals.items())), "wrong": wrong}).decode()
        )
    else:
        show(lambda width: _screen(found, totals), color)
    if wrong:
        details = [f"{name}: {rid}: {how}" for name, bad in wrong.items() for rid, how in bad.items()]
        raise LifecycleError(ExitCode.INTERNAL, "this installation gives wrong answers; install it again", details)
    return ExitCode.OK


def scenarios() -> Iterator[tuple[str, Path]]:
    """The name and the folder of each recorded scenario."""
    from importlib.resources import files
    from pathlib import Path

    root = Path(str(files("sglang_lifecycle.fixtures")))
    for truth in sorted(root.rglob("truth.json")):
        yield truth.parent.relative_to(root).as_posix(), truth.parent


def run(folder: Path) -> dict[str, str]:
    """Audit one scenario; how each rid came out."""
    import json

    from sglang_lifecycle.analyzers.audit import audit
    from sglang_lifecycle.analyzers.incident import Incident
    from sglang_lifecycle.parsers.log import read

    logs = folder / "logs"
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    raw = b"\n".join(path.read_bytes() for path in sorted(logs.rglob("*")) if path.is_file())
    rows = audit(Incident(read([str(logs)]))).model_dump()["requests"]
    return compare(truth, raw, rows)


def compare(truth: Mapping[str, Any], raw: bytes, rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The outcome for each rid that was sent, and `invented` for each interrupted one that nobody sent.

    `raw` is all that the logs hold: a rid they never name can't be missed.
    """
    sent: dict[str, set[str]] = {}
    for one in truth["requests"]:
        if isinstance(one["rid"], str):
            sent.setdefault(one["rid"], set()).update((one["cause"], *one.get("accept", ())))
    reported = {row["rid"]: row for row in rows}
    outcomes = {rid: outcome(accepted, reported.get(rid), rid.encode() in raw) for rid, accepted in sent.items()}
    known = sent.keys() | set(truth.get("other_rids", ()))
    for rid, row in reported.items():
        if rid not in known and row["status"] == "interrupted" and not row["synthetic"]:
            outcomes[rid] = "invented"
    return outcomes


def outcome(accepted: set[str], row: Mapping[str, Any] | None, named_by_the_logs: bool) -> str:
    """How an audit's row for a rid compares with the causes that are true of it."""
    if row is None:
        return "missed" if named_by_the_logs and "never-received" not in accepted else "right"
    if row["cause"] in accepted:
        return "right"
    candidates = {candidate["cause"] for candidate in row["candidates"]}
    return "undecided" if row["cause"] == "not-established" and accepted & candidates else "wrong"


def _screen(found: Mapping[str, Mapping[str, str]], totals: Counter[str]) -> RenderableType:
    from rich.console import Group

    from sglang_lifecycle.cli.layout import FAINT, LABEL, grid, plain
    from sglang_lifecycle.cli.text import count

    rows = [
        (
            plain("right" if set(outcomes.values()) <= RIGHT else "WRONG", FAINT),
            plain(name, LABEL),
            plain(", ".join(f"{number} {how}" for how, number in sorted(Counter(outcomes.values()).items()))),
        )
        for name, outcomes in found.items()
    ]
    told = ", ".join(f"{number} {how}" for how, number in sorted(totals.items()))
    return Group(grid(rows), "", plain(f"{count(len(found), 'scenario')}, {count(totals.total(), 'request')}: {told}."))
