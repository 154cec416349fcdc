"""A replay of every life of an incident: predicted against observed, and what the rules forbid."""

from __future__ import annotations

from collections.abc import Container, Iterator

from sglang_lifecycle.analyzers import session_trace
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.explain import evidence_line, judge, rounded, timestamp
from sglang_lifecycle.analyzers.finding import Finding
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.replay_models import (
    ForbiddenStep,
    ReplayedLife,
    ReplayRow,
    ReplayRun,
    ReplayTotals,
)
from sglang_lifecycle.analyzers.replaying import Prediction, Replayer, beside, replayer
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.spans import overlaps
from sglang_lifecycle.parsers.evidence import Fact

_LATE = 1.0  # seconds by which a request may be seen to outlive a limit: the poll comes once per iteration


def run(
    incident: Incident,
    rids: Container[str] | None = None,
    since: float | None = None,
    until: float | None = None,
) -> ReplayRun:
    """Replay an incident. With `rids`, only these are reported, with a bound (UTC epoch seconds) what lived inside it.

    The bounds limit what is reported, not what is looked at.
    """
    result = ReplayRun()
    for scene in incident.scenes:
        model = replayer(scene)
        result.lives.append(_life(scene, model))
        for attempt in scene.attempts:
            if attempt.synthetic or (rids is not None and attempt.rid not in rids):
                continue
            if not overlaps(attempt.received_at, attempt.ended_at, since, until):
                continue
            finding = judge(scene, attempt)
            if finding.status == "interrupted":
                prediction = model.predict(attempt)
                result.requests.append(_row(scene, attempt, finding, prediction))
                result.forbidden += _impossible(attempt, finding, prediction)
            else:
                result.forbidden += _overdue(model, attempt)
        result.forbidden += _sessions(scene, model, rids, since, until)
        if rids is None:
            result.forbidden += _crowds(scene)
    result.totals = _totals(result.requests)
    return result


def _life(scene: Scene, model: Replayer) -> ReplayedLife:
    limits = model.moments.limits
    return ReplayedLife(
        server=scene.life.server,
        life=scene.life.number,
        era=model.era,
        release=scene.release.text,
        waiting_limit_s=rounded(limits.get("waiting_timeout")),
        running_limit_s=rounded(limits.get("running_timeout")),
    )


def _row(scene: Scene, attempt: Attempt, finding: Finding, prediction: Prediction) -> ReplayRow:
    said = beside(prediction, finding)
    seen = prediction.seen
    return ReplayRow(
        rid=attempt.rid,
        life=scene.life.number,
        ended=timestamp(attempt.ended_at),
        observed=finding.cause,
        text=(seen.message or None) if seen is not None else None,
        shape=seen.shape if seen is not None else None,
        covered=not prediction.silent,
        why=prediction.silent,
        era=prediction.era,
        predicted=said.predicted if said is not None else None,
        possible=said.possible if said is not None else [],
        agrees=said.agrees if said is not None else None,
        bounded=prediction.bounded,
    )


def _totals(rows: list[ReplayRow]) -> ReplayTotals:
    return ReplayTotals(
        interrupted=len(rows),
        covered=sum(row.covered for row in rows),
        agree=sum(row.agrees is True for row in rows),
        differ=sum(row.agrees is False for row in rows),
        open=sum(row.covered and row.agrees is None for row in rows),
    )


def _impossible(attempt: Attempt, finding: Finding, prediction: Prediction) -> Iterator[ForbiddenStep]:
    """An end that nothing which the log shows can have brought."""
    if prediction.silent or prediction.bounded or prediction.fitting or prediction.seen is None:
        return
    could = sorted({end.cause for end in prediction.ends if end.cause})
    text = f"it ended by {prediction.seen.message.replace('_', ' ')}, which the rules of {prediction.era} do not allow"
    yield _step(
        f"{text}{'; they allow ' + ', '.join(could) if could else ''}",
        [fact for fact in (attempt.received, attempt.finish, *finding.evidence[:1]) if fact is not None],
        attempt.rid,
        attempt.session_id,
    )


def _sessions(
    scene: Scene, model: Replayer, rids: Container[str] | None, since: float | None, until: float | None
) -> Iterator[ForbiddenStep]:
    """Turns that were accepted although the session's rules refuse them, or the other way round."""
    by_place = {attempt.order: attempt for attempt in scene.attempts}
    for session, turns in scene.sessions.items():
        if rids is not None and not any(turn.rid in rids for turn in turns):
            continue
        if any(session_trace.unknown(scene, turn) for turn in turns):
            continue
        histories = model.histories(session)
        broken = [history for history in histories if history.forbidden is not None and not history.bounded]
        if not histories or len(broken) < len(histories):
            continue
        forbidden = broken[0].forbidden
        assert forbidden is not None
        attempt = by_place.get(forbidden.key)
        forecast = broken[0].forecasts.get(forbidden.key)
        answers = sorted({answer.cause or "accepted" for answer in forecast.answers}) if forecast is not None else []
        if attempt is None or forbidden.answered is None:
            continue
        if not overlaps(attempt.received_at, attempt.ended_at, since, until):
            continue
        said = "accepted" if not forbidden.answered else f"refused ({forbidden.answered.replace('_', ' ')})"
        yield _step(
            f"its session {said} it; by the rules of {model.era}: {', '.join(answers) or 'nothing'}",
            [fact for fact in (attempt.received, attempt.finish) if fact is not None],
            attempt.rid,
            session,
        )


def _overdue(model: Replayer, attempt: Attempt) -> Iterator[ForbiddenStep]:
    """A request that waited past the limit, and was answered."""
    limit = model.moments.limits.get("waiting_timeout")
    finish = attempt.finish
    if limit is None or finish is None or finish.queue_s is None or (finish.retractions or 0) > 0:
        return
    if limit + _LATE < finish.queue_s < (attempt.latency or 0.0):
        text = f"it waited {finish.queue_s:.1f} s and was answered, where the limit is {limit:.1f} s"
        yield _step(text, [finish], attempt.rid, attempt.session_id)


def _crowds(scene: Scene) -> Iterator[ForbiddenStep]:
    """The first batch line with more requests than the server's arguments allow."""
    args = scene.life.args
    limit = args.get("max_running_requests")
    ranks = args.get("dp_size")
    if not isinstance(limit, int) or (isinstance(ranks, int) and ranks > 1):
        return
    over = next((fact for _, fact in scene.batches if (fact.running or 0) > limit), None)
    if over is not None:
        yield _step(f"{over.running} requests ran at once, where max_running_requests is {limit}", [over])


def _step(summary: str, facts: list[Fact], rid: str | None = None, session: str | None = None) -> ForbiddenStep:
    unique = list({id(fact): fact for fact in facts}.values())
    return ForbiddenStep(
        summary=summary,
        rid=rid,
        session_id=session,
        at=timestamp(next((fact.at for fact in reversed(unique) if fact.at is not None), None)),
        evidence=[evidence_line(fact) for fact in unique],
    )
