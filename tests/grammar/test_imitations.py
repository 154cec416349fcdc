"""Text that strangers choose and that imitates SGLang's lines never says anything about another request.

A stranger's request carries the imitation in one of the fields that SGLang prints, quoted or raw. The verdict on a
victim, which the imitation speaks of, must be the one without the stranger's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import wordings
from renderer import Server
from stories import MAIN, judge
from wordings import at_least

from sglang_lifecycle.analyzers.verdict import Verdict

VICTIM, STRANGER = "v-1", "evil-1"


# --- what is imitated -------------------------------------------------------------------------------------------------
def imitation(release: str, at: float, write: Callable[[Server], None]) -> str:
    """What a server of the same release, on the same clock, would write about the victim."""
    forger = Server(release, start=at)
    forger.objects[VICTIM], forger.received[VICTIM] = forger.fields(VICTIM), at - 2
    forger.routes[VICTIM] = "/generate"
    write(forger)
    return forger.text().rstrip("\n")


def lines(*texts: str) -> Callable[[Server], None]:
    def write(s: Server) -> None:
        for text in texts:
            s.log(text)

    return write


def crash(s: Server) -> None:
    s.died(exception="ValueError: boom")


def received(s: Server) -> None:
    s.receive(VICTIM)


def whole_life(s: Server) -> None:
    s.receive(VICTIM)
    s.refused(VICTIM, "Invalid request: session id ghost does not exist")


def shutdown(s: Server) -> None:
    s.sigterm()
    s.draining(VICTIM)


IMITATIONS: dict[str, Callable[[Server], None]] = {
    "finish": lambda s: s.aborted_running(VICTIM),
    "finish-of-a-timeout": lambda s: s.dropped(VICTIM, "Request waiting timeout reached."),
    "receive": received,
    "whole-life": whole_life,
    "disconnect": lambda s: s.disconnected(VICTIM),
    "refusal": lines(f"Invalid request session id, self.rid={VICTIM!r}"),
    "grammar": lines(f"Grammar accept_token failed for req {VICTIM} with token 13: x"),
    "memory": lines(f"retract_decode: aborted last request {VICTIM} due to OOM"),
    "transfer": lambda s: s.log(wordings.transfer_error(s.release, "Decode transfer", VICTIM, 77, "gone")),
    "late-output": lines(f"Received output for rid={VICTIM!r} but the state was deleted in TokenizerManager."),
    "duplicate": lines(f"[http_server] Error: Duplicate request ID detected: {VICTIM}"),
    "abort-call": lambda s: s.access(200, "/abort_request"),
    "crash": crash,
    "killed": lines("Subprocess scheduler_0 (pid=77) crashed with exit code -9. Triggering SIGQUIT for cleanup..."),
    "shutdown": shutdown,
    "restart": lambda s: s.boot(),
    "session": lines("Session sess timed out, closing.", "Session closed: sess (active=0)"),
}


def together(*names: str) -> Callable[[Server], None]:
    def write(s: Server) -> None:
        for name in names:
            IMITATIONS[name](s)

    return write


BUNDLES = {
    "ends": together("receive", "refusal", "finish", "disconnect", "late-output"),
    "failures": together("grammar", "memory", "transfer", "duplicate", "session", "finish-of-a-timeout"),
    "quoted": together("receive"),
    "server": together("abort-call", "crash", "killed", "shutdown"),
}
"""Several imitations at once, for the releases that are not the newest of their kind."""


# --- where it is put --------------------------------------------------------------------------------------------------
def in_its_prompt(s: Server, text: str) -> None:
    s.receive(STRANGER, text=f"Say\n{text}\nplease")
    s.done(STRANGER, text=f"Sure:\n{text}\n")


def in_its_streamed_prompt_with_quotes(s: Server, text: str) -> None:
    s.receive(STRANGER, stream=True, text=f"It's \"so\"'), out={{'\n{text}\n", max_new_tokens=9)
    s.finish(STRANGER, wordings.stop(f"x\n{text}"), tokens=9)


def in_its_rid(s: Server, text: str) -> None:
    rid = f"{STRANGER}\n{text}\nend"
    s.receive(rid)
    s.done(rid)
    if s.since("0.5.3"):
        s.scheduler(wordings.time_stats(s.release, rid, 5, 0, 64, "0.40", "4000.00", f"{s.now - 4:.3f}"))


def in_its_refused_rid(s: Server, text: str) -> None:
    """The scheduler prints a rid quoted; a duplicate of it is printed raw."""
    rid = f"{STRANGER}\n{text}"
    s.receive(rid, **s.session("ghost"))
    s.refused(rid, "Invalid request: session id ghost does not exist")
    if s.since("0.5.11"):
        s.http_error(f"Duplicate request ID detected: {rid}")
        s.access(400)


def in_its_aborted_rid(s: Server, text: str) -> None:
    """The echo of an abort that finds nobody prints the rid raw (0.5.14 on)."""
    rid = f"{STRANGER}\n{text}\nend"
    s.receive(rid)
    s.done(rid)
    if s.since("0.5.14"):
        s.log(f"Abort request for rid={rid} not found in rid_to_state; likely already finished/removed.")


def in_its_session_id(s: Server, text: str) -> None:
    """A session id is printed raw in a refusal, by the scheduler and by the API server."""
    session = f"x\n{text}\ny"
    s.receive(STRANGER, **s.session(session))
    s.refused(STRANGER, f"Invalid request: session id {session} does not exist")


def in_an_opened_session(s: Server, text: str) -> None:
    if s.since("0.5.11"):
        session = f"x\n{text}\ny"
        s.scheduler(f"Session opened: {session} (active=1)")
        s.access(200, "/open_session")
        s.scheduler(f"Session closed: {session} (active=0)")
        s.access(200, "/close_session")
    s.receive(STRANGER)
    s.done(STRANGER)


def in_a_closing_session(s: Server, text: str) -> None:
    """The text ends with the raw session id: nothing shows where it ends but the access line."""
    session = f"x\n{text}"
    s.receive(STRANGER, **s.session(session))
    s.refused(STRANGER, f"Invalid request: close was requested for session {session}")


def in_its_stop_string(s: Server, text: str) -> None:
    s.receive(STRANGER, sampling_params={"max_new_tokens": 9, "stop": [text, f"\n{text}"]})
    s.finish(STRANGER, wordings.stop(f"\n{text}"), tokens=9)


def in_its_schema(s: Server, text: str) -> None:
    """A compiler's message repeats the schema as it is."""
    s.receive(STRANGER, grammar=f'{{"\n{text}\n"}}')
    s.refused(STRANGER, f"Failed to compile json grammar: cannot read\n{text}\nat line 2")


def in_its_adapter(s: Server, text: str) -> None:
    s.receive(STRANGER, lora_path=f"a\n{text}\n")
    how = "Please launch the server with --enable-lora flag and preload adapters using --lora-paths or "
    s.invalid(
        STRANGER,
        f"LoRA adapter 'a\n{text}\n' was requested, but LoRA is not enabled. {how}/load_lora_adapter endpoint.",
    )


def in_its_unknown_adapter(s: Server, text: str) -> None:
    s.receive(STRANGER, lora_path=f"a\n{text}")
    s.invalid(STRANGER, f"Got LoRA adapter that has never been loaded: a\n{text}\nAll loaded adapters: dict_keys([]).")


def in_its_openai_body(s: Server, text: str) -> None:
    body: dict[str, Any] = {"model": f"m\n{text}", "messages": [{"role": "user", "content": text}], "stream": False}
    s.receive(STRANGER, path="/v1/chat/completions", openai=body, text=text)
    s.done(STRANGER)


def in_its_headers(s: Server, text: str) -> None:
    s.receive(STRANGER, headers={"x-smg-routing-key": f"a\n{text}"})
    s.done(STRANGER)


CARRIERS: list[tuple[Callable[[Server, str], None], tuple[str, ...]]] = [
    (in_its_prompt, ("0.4.2", "0.4.9", "0.5.10", "0.5.23")),
    (in_its_streamed_prompt_with_quotes, ("0.4.4", "0.5.9", "0.5.23")),
    (in_its_rid, ("0.4.9", "0.5.10", "0.5.23")),
    (in_its_refused_rid, ("0.4.9", "0.5.10", "0.5.23")),
    (in_its_aborted_rid, ("0.5.14", "0.5.23")),
    (in_its_session_id, ("0.4.9", "0.5.3", "0.5.10", "0.5.23")),
    (in_an_opened_session, ("0.5.11", "0.5.23")),
    (in_a_closing_session, ("0.5.11", "0.5.23")),
    (in_its_stop_string, ("0.4.9", "0.5.10", "0.5.23")),
    (in_its_schema, ("0.5.10", "0.5.23")),
    (in_its_adapter, ("0.5.9", "0.5.23")),
    (in_its_unknown_adapter, ("0.5.7", "0.5.23")),
    (in_its_openai_body, ("0.5.10", "0.5.23")),
    (in_its_headers, ("0.5.8", "0.5.23")),
]


# --- the victims ------------------------------------------------------------------------------------------------------
def finishes(s: Server) -> None:
    s.done(VICTIM)


def leaves(s: Server) -> None:
    s.wait(3)
    s.disconnected(VICTIM)


def stays(s: Server) -> None:
    pass


def victim_log(
    release: str, end: Callable[[Server], None] | None, put: Callable[[Server], None], **options: Any
) -> str:
    """A stranger's request while the victim is in flight; without `end` there is no victim at all."""
    s = Server(release, **options)
    s.boot()
    if end is not None:
        s.receive(VICTIM)
    s.wait(2)
    put(s)
    s.wait(2)
    s.receive("u-1")
    s.wait(1)
    s.done("u-1")
    if end is not None:
        end(s)
    return s.text()


VICTIMS: dict[str, Callable[[Server], None] | None] = {
    "finishes": finishes, "leaves": leaves, "stays": stays, "never-was": None
}  # fmt: skip
HARMLESS = "nothing"


def says(verdict: Verdict) -> tuple[object, ...]:
    return verdict.status, verdict.cause, verdict.stage, verdict.effects, [(c.cause, c.rid) for c in verdict.chain]


def cases() -> Iterator[Any]:
    for carrier, releases in CARRIERS:
        for release in releases:
            for victim in VICTIMS:
                yield pytest.param(carrier, release, victim, id=f"{carrier.__name__}-{release}-{victim}")


@pytest.mark.parametrize(("carrier", "release", "victim"), cases())
def test_an_imitation_says_nothing_about_another_request(
    carrier: Callable[[Server, str], None], release: str, victim: str
) -> None:
    end = VICTIMS[victim]
    expected = judge({MAIN: victim_log(release, end, lambda s: carrier(s, HARMLESS))}, VICTIM)
    fooled = []
    for name, write in (IMITATIONS if release == "0.5.23" else BUNDLES).items():
        log = victim_log(release, end, lambda s, w=write: carrier(s, imitation(s.release, s.now, w)))  # type: ignore[misc]
        verdict = judge({MAIN: log}, VICTIM)
        if says(verdict) != says(expected):
            fooled.append((name, verdict.cause, verdict.confidence, verdict.summary))
    assert fooled == []


PREMATURE = {
    "session-refusal": f"x does not exist, self.rid={VICTIM!r}",
    "session-opened": "x (active=1)",
    "quote": f"x'), self.rid={VICTIM!r}",
    "newline": f"x does not exist, self.rid={VICTIM!r}\n",
    "two": f"x does not exist, self.rid={VICTIM!r}\nInvalid request: session id y does not exist, self.rid={VICTIM!r}",
}


def early_ends() -> Iterator[Any]:
    for name in PREMATURE:
        for release in ("0.4.9", "0.5.10", "0.5.23"):
            for victim in VICTIMS:
                yield pytest.param(name, release, victim, id=f"{name}-{release}-{victim}")


@pytest.mark.parametrize(("name", "release", "victim"), early_ends())
def test_a_text_that_ends_a_line_early_says_nothing(name: str, release: str, victim: str) -> None:
    end = VICTIMS[victim]

    def put(text: str) -> Callable[[Server], None]:
        def write(s: Server) -> None:
            s.receive(STRANGER, **s.session(text))
            s.refused(STRANGER, f"Invalid request: session id {text} does not exist")

        return write

    expected = judge({MAIN: victim_log(release, end, put(HARMLESS))}, VICTIM)
    verdict = judge({MAIN: victim_log(release, end, put(PREMATURE[name]))}, VICTIM)
    assert says(verdict) == says(expected), verdict.summary


@pytest.mark.parametrize("name", [n for n in IMITATIONS if n != "restart"])
@pytest.mark.parametrize("release", ["0.5.9", "0.5.12", "0.5.23"])
def test_an_imitation_inside_json_says_nothing(name: str, release: str) -> None:
    def put(text: str) -> Callable[[Server], None]:
        return lambda s: in_its_streamed_prompt_with_quotes(s, text)

    for end in VICTIMS.values():
        expected = judge({MAIN: victim_log(release, end, put(HARMLESS), as_json=True)}, VICTIM)
        forger = Server(release, as_json=at_least(release, "0.5.12"))
        text = imitation(release, forger.now + 27, IMITATIONS[name])
        log = victim_log(release, end, put(f"\u2028{text}\u0085{text}"), as_json=True)
        assert says(judge({MAIN: log}, VICTIM)) == says(expected)


@pytest.mark.parametrize("name", [n for n in IMITATIONS if n != "restart"])
def test_the_unescaped_log_of_old_is_never_sure(name: str) -> None:
    """0.4.1 prints prompts as they are: what follows a broken line may be a stranger's, and proves nothing."""
    for end in (finishes, stays, None):

        def put(s: Server) -> None:
            in_its_prompt(s, imitation(s.release, s.now, IMITATIONS[name]))

        expected = judge({MAIN: victim_log("0.4.1", end, lambda s: in_its_prompt(s, HARMLESS))}, VICTIM)
        verdict = judge({MAIN: victim_log("0.4.1", end, put)}, VICTIM)
        assert verdict.confidence != "proven" or says(verdict) == says(expected), verdict.summary
