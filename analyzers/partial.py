"""Whether a few lines of large logs are enough to judge a request, and what else has to be looked for.

A verdict that rests on lines that name the request stands, whatever else the logs hold: all calls, crashes and
sessions are read in any case. One that rests on the place of a line needs those around it. One that rests on the
absence of lines needs all of them, or so many that the request's whole life is among them, with the lives of all that
ended after it came: an audit looks no farther.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sglang_lifecycle.analyzers import deaths
from sglang_lifecycle.analyzers.accounting import accounted
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.horizon import Horizon, left, possible
from sglang_lifecycle.analyzers.identities import identify
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.routine import routine, witness
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.strokes import OF_ALL
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.parsers.evidence import CONTEXT, Event, Evidence, Fact, Stretch
from sglang_lifecycle.parsers.ids import searchable

_ENDS = (
    Event.CLIENT_DISCONNECTED, Event.REQUEST_REJECTED, Event.KV_ABORTED, Event.PD_FAILED, Event.EPD_FAILED,
)  # fmt: skip

_OF_ABSENCE = OF_ALL | frozenset(deaths.CAUSES) | {"not-established", "timeout-prefix-collision"}
"""Causes that rest on what is not there: a request that outlived the stroke or was not counted, a line that decides.

Or one that shows it gone before its server died: who was refused may still have waited for the answer.
"""

_OF_STROKES = frozenset({"abort-prefix-collision", "explicit-abort"})
"""Causes that rest on who else was hit."""


def related(incident: Incident, texts: Iterable[str]) -> set[str]:
    """The sessions and the other requests on which the fate of those that were asked about may rest."""
    found: set[str | None] = set()
    for rid in rids(incident, texts):
        if not any(text in rid for text in texts):
            found.add(rid)  # what was asked about is a gateway's id
        for _, attempt in incident.peers(rid):
            found |= {attempt.session_id, attempt.parent_rid}
    return {each for each in found if each and searchable(each)} - set(texts)


def rids(incident: Incident, texts: Iterable[str]) -> set[str]:
    """The requests that ids stand for: their own, those of which they are the beginning, a gateway's."""
    found: set[str] = set()
    for text in texts:
        other = identify(incident, text)
        found.update(other.rids if other is not None else incident.matches(text))
    return found


def around(evidence: Evidence) -> Evidence:
    """The evidence without routine of elsewhere, where enough was read around what was asked about.

    What was read of other requests there are parts of their stories, which say nothing of this one's.
    """
    if not evidence.whole:
        return evidence
    stretches: dict[str, list[Stretch]] = {}
    for stretch in evidence.whole:
        stretches.setdefault(stretch.source, []).append(stretch)
    facts = []
    for fact in evidence.facts:
        close = stretches.get(fact.source)
        if close is None or any(_holds(each, fact) for each in close) or not routine(fact):
            facts.append(fact)
        elif (told := witness(fact)) is not None:
            facts.append(told)
    return replace(evidence, facts=facts)


def _holds(stretch: Stretch, fact: Fact) -> bool:
    inside = stretch.start <= fact.offset and (stretch.end is None or fact.offset < stretch.end)
    return inside and fact.source == stretch.source


def enough(incident: Incident, texts: Iterable[str]) -> bool:
    """Whether what was read of the requests settles what became of them, and nothing read speaks against it."""
    asked = rids(incident, texts)
    if not all(map(searchable, asked)):
        return False
    verdicts = {rid: explain(incident, rid) for rid in asked}
    if any(verdict.contradictions for verdict in verdicts.values()):
        return False
    unsure = _OF_ABSENCE | _OF_STROKES if incident.evidence.narrow else _OF_ABSENCE
    rest = {
        rid: verdict
        for rid, verdict in verdicts.items()
        if verdict.cause in unsure or not all(_told(incident, *peer) for peer in incident.peers(rid))
    }
    return not rest or _followed(incident, rest)


def _followed(incident: Incident, verdicts: Mapping[str, Verdict]) -> bool:
    """Whether so much was read around requests that nothing farther away can change what is said of them."""
    peers = [peer for rid in verdicts for peer in incident.peers(rid)]
    stretches = [each for each in incident.evidence.whole if each.end != 0]
    if len(stretches) != 1 or not stretches[0].wide or not peers:
        return False
    stretch = stretches[0]
    if not all(_within(stretch, *peer) for peer in peers):
        return False
    if any(_counted(scene) for scene, _ in peers if not _begun(stretch, scene)):
        return False
    over = stretch.end is None or all(_over(stretch, scene) for scene, _ in peers)
    stroke = any(possible(verdict) & OF_ALL for verdict in verdicts.values())
    if stroke and not over and not all(_begun(stretch, scene) or _alone(stretch, scene, a) for scene, a in peers):
        return False
    horizon = Horizon(incident, None)
    if not over:
        about = [fact for _, attempt in peers for fact in (attempt.finish, *attempt.begun, *attempt.facts)]
        horizon.settled = 1 + max(horizon.places.get(id(fact), 0) for fact in about)
    return all(_final(horizon, rid, verdict) for rid, verdict in verdicts.items())


def _within(stretch: Stretch, scene: Scene, attempt: Attempt) -> bool:
    """Whether a request came in the one stretch that its server's records were read in, and all that ended later.

    Be it after the server's next start: then the log is of several servers.
    """
    if attempt.received is None or not _holds(stretch, attempt.received):
        return False
    for other in scene.attempts:
        if other.received is not None and other.received.source != stretch.source:
            return False
        if other.received is None and (other.finish_order or -1) > attempt.order and not other.synthetic:
            return False
    then = scene.following.attempts if scene.following is not None else []
    return not any(other.received is None and other.finish is not None and not other.synthetic for other in then)


def _begun(stretch: Stretch, scene: Scene) -> bool:
    """Whether a server's life began in a stretch: nobody had come before it."""
    return stretch.start == 0 or _holds(stretch, scene.life.told[0])


def _counted(scene: Scene) -> bool:
    """Whether a dump says how many were open at the end of a server: who came before a stretch is among them."""
    return any("unfinished" in fact.detail for fact in scene.life.of(Event.SERVER_DUMPED))


def _alone(stretch: Stretch, scene: Scene, attempt: Attempt) -> bool:
    """Whether a line of a stretch shows that nobody in the engine had come before it: who had may go on after it."""
    line = accounted(scene, attempt.order)
    return line is not None and _holds(stretch, line) and scene.mode not in ("prefill", "decode")


def _over(stretch: Stretch, scene: Scene) -> bool:
    """Whether a server had been started again long before the end of a stretch: who was left then has no end."""
    then = scene.following.life.told if scene.following is not None else []
    return sum(_holds(stretch, fact) for fact in then) >= CONTEXT // 2


def _final(horizon: Horizon, rid: str, verdict: Verdict) -> bool:
    """Whether what lies elsewhere can't change a verdict: what comes, or for a limit all that it ended."""
    if "timeout-prefix-collision" in possible(verdict):
        return False
    if horizon.settled is None:
        return True
    if horizon.ended(rid):
        return not horizon.may_change(verdict, rid)
    return left(verdict) and horizon.quiet(rid)


def cautious(verdict: Verdict) -> Verdict:
    """A verdict for which everything should have been read, and only a part was."""
    missing = [*verdict.missing, "the rest of the logs: they are too large to be held, and only a part was read"]
    sure = "likely" if verdict.confidence == "proven" else verdict.confidence
    return verdict.model_copy(update={"missing": missing, "confidence": sure})


def _named(attempt: Attempt) -> bool:
    return attempt.finish is not None or bool(attempt.of(*_ENDS))


def _told(incident: Incident, scene: Scene, attempt: Attempt) -> bool:
    """Whether a line tells its end, be it by its place; among few lines only where no other's end is in doubt."""
    stretches = incident.evidence.whole
    if _named(attempt) or not attempt.errors or not stretches:
        return _named(attempt)
    known = not attempt.guessed and any(_within(each, scene, attempt) for each in stretches)
    return known or any(each.wide for each in stretches)
