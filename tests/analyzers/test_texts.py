"""The ids of texts: the table of the parsers and the rules of the analyzers know the same."""

from __future__ import annotations

from sglang_lifecycle.analyzers import rid_validity, texts
from sglang_lifecycle.analyzers.limits import KINDS
from sglang_lifecycle.analyzers.outcomes import PLAIN
from sglang_lifecycle.parsers.patterns import table

ELSEWHERE = frozenset({
    "pd_bootstrap_failed", "pd_transfer_failed",  # outcomes.failure
    "aborted_by_abortreq", "aborted_by_user",  # transfers.met_early
    "disconnected", "request_aborted",  # errors of the API server, which mentions.py reads
})  # fmt: skip
NO_REASON = frozenset({"nan"})  # what stops a request, not why it was aborted


def test_every_text_has_its_rule_and_every_rule_its_text() -> None:
    ruled = texts.PLAIN_ABORTS | texts.REFUSALS | KINDS.keys() | PLAIN.keys() | ELSEWHERE
    assert ruled - NO_REASON == {message.id for message in table().messages}
    assert ruled >= texts.OF_GRAMMARS | texts.QUEUE_ENDS.keys()


def test_every_refusal_of_a_session_has_its_rule() -> None:
    assert rid_validity._RULES.keys() == texts.REFUSALS
