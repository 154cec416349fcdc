"""Requests that went down with their server, or whose answer got lost on its way."""

from __future__ import annotations

import wordings
from renderer import Server
from stories import LIKELY, UNDECIDED, Ending, story


def running(s: Server) -> None:
    s.receive("r-1", max_new_tokens=400)
    s.receive("r-2", max_new_tokens=400)
    s.prefill(new=2)
    s.wait(2)
    s.decode(running=2)
    s.wait(1)


@story("scheduler-crash", "0.4.1", "0.4.6", "0.4.9", "0.5.3", "0.5.10", "0.5.18", "0.5.23")
def scheduler_raised(s: Server) -> Ending:
    running(s)
    s.died(exception="RuntimeError: CUDA error: device-side assert triggered")
    return Ending()


@story("scheduler-crash", "0.3.6")
def scheduler_raised_without_a_label(s: Server) -> Ending:
    """0.3.6 has no `Receive`: only a request that is named otherwise could be found."""
    running(s)
    s.lines += wordings.traceback("RuntimeError: boom").split("\n")
    return Ending(cause="never-received", confidence=LIKELY)


@story("scheduler-crash", "0.4.9", "0.5.10", "0.5.23", tp=2)
def one_rank_raised_first(s: Server) -> Ending:
    """What the other ranks raise of it is no cause, though a line of theirs may come first."""
    running(s)
    s.scheduler(wordings.hit_an_exception("Scheduler", "torch.distributed.DistBackendError: NCCL error in: "
                "ProcessGroupNCCL.cpp:3690, unhandled system error"), tp=0)  # fmt: skip
    s.scheduler(wordings.hit_an_exception("Scheduler", "ValueError: the first one"), tp=1)
    s.sigquit()
    return Ending()


@story("scheduler-crash", "0.4.9", "0.5.10", "0.5.23")
def tokenizer_manager_raised(s: Server) -> Ending:
    running(s)
    s.log(wordings.hit_an_exception("TokenizerManager", "KeyError: 'x-9'", ["handle_loop", "_handle_abort_req"]))
    return Ending()


@story("scheduler-crash", "0.4.1", "0.5.10", "0.5.23")
def detokenizer_raised(s: Server) -> Ending:
    running(s)
    s.log(wordings.hit_an_exception("DetokenizerManager", "ValueError: boom"))
    s.sigquit()
    return Ending()


@story("scheduler-crash", "0.4.2", "0.5.10", "0.5.23", dp=2)
def dp_controller_raised(s: Server) -> Ending:
    running(s)
    s.log(wordings.hit_an_exception("DataParallelController", "ValueError: boom"))
    s.sigquit()
    return Ending()


@story("scheduler-crash", "0.5.16", "0.5.23", dp=2)
def dp_controller_has_no_worker(s: Server) -> Ending:
    running(s)
    s.log(wordings.hit_an_exception("DataParallelController", "RuntimeError: No active DP workers available"))
    s.sigquit()
    return Ending()


@story("scheduler-crash", "0.5.2", "0.5.10")
def tokenizer_router_raised(s: Server) -> Ending:
    running(s)
    s.log(wordings.hit_an_exception("MultiTokenizerRouter", "ValueError: boom"))
    return Ending()


@story("scheduler-crash", "0.5.12", "0.5.23")
def detokenizer_router_raised(s: Server) -> Ending:
    running(s)
    s.log(wordings.hit_an_exception("MultiDetokenizerRouter", "ValueError: boom"))
    s.sigquit()
    return Ending()


@story("scheduler-crash", "0.4.8", "0.5.6", "0.5.9")
def one_request_did_not_fit(s: Server) -> Ending:
    running(s)
    if s.since("0.5.7"):
        text = "ValueError: Out of memory even after retracting all other requests in the decode batch."
    else:
        text = "ValueError: Failed to retract any request. No space left for only one request."
    s.died(exception=text, frames=("update_running_batch", "retract_decode"))
    return Ending()


@story("scheduler-crash", "0.4.9", "0.5.10", "0.5.23")
def allocator_ran_out(s: Server) -> Ending:
    running(s)
    s.scheduler("Prefill out of memory. Try to lower your batch size.\nTry to allocate 4096 tokens.\nAvailable tokens: "
                "12\n")  # fmt: skip
    s.died(exception="RuntimeError: Prefill out of memory. Try to lower your batch size.")
    return Ending()


@story("scheduler-crash", "0.4.9", "0.5.10", "0.5.23")
def idle_check_found_a_leak(s: Server) -> Ending:
    s.receive("r-1")
    what = "pool" if s.since("0.5.11") else "token_to_kv_pool_allocator"
    s.died(exception=f"ValueError: {what} memory leak detected! self.max_total_num_tokens=20000")
    return Ending()


@story("scheduler-crash", "0.5.5", "0.5.7")
def abort_in_the_grammar_queue_broke_it(s: Server) -> Ending:
    s.receive("r-1", grammar='{"type": "object"}')
    s.receive("r-2")
    s.wait(1)
    s.access(200, "/abort_request")
    s.refused_line("r-1", "Aborted by AbortReq.")
    s.died(exception="AttributeError: 'NoneType' object has no attribute 'result'",
           frames=("event_loop_overlap", "move_ready_grammar_requests"))  # fmt: skip
    return Ending(rid="r-2")


@story("scheduler-crash", "0.4.2", "0.4.9", "0.5.10", "0.5.23")
def a_replace_without_a_rid_broke_it(s: Server) -> Ending:
    if s.since("0.5.11"):
        s.scheduler("Session opened: sess (active=1)")
    s.receive("t-1", **s.session("sess"))
    s.wait(1)
    s.done("t-1")
    running(s)
    s.receive("t-2", **s.session("sess", replace=True))
    s.died(exception="RuntimeError: dictionary changed size during iteration",
           frames=("handle_generate_request", "create_req"))  # fmt: skip
    return Ending(chain=(("scheduler-crash", "t-2"),))


@story("process-killed", "0.5.10", "0.5.18", "0.5.23")
def scheduler_was_killed(s: Server) -> Ending:
    running(s)
    s.log("Subprocess scheduler_0 (pid=77) crashed with exit code -9. Triggering SIGQUIT for cleanup...")
    s.sigquit()
    return Ending()


@story("process-killed", "0.4.2", "0.4.9", "0.5.9", "0.5.23")
def scheduler_was_killed_in_the_old_words(s: Server) -> Ending:
    running(s)
    s.log("Scheduler or DataParallelController 77 terminated with -9")
    return Ending()


@story("process-killed", "0.4.4", "0.5.2", "0.5.3", "0.5.9")
def a_child_died_without_a_word(s: Server) -> Ending:
    running(s)
    s.sigquit()
    return Ending(confidence=LIKELY)


@story("process-killed", "0.5.10", "0.5.23")
def scheduler_was_killed_while_the_engine_was_paused(s: Server) -> Ending:
    """No batch was formed of it, as the pause held it back: nothing else need have ended it."""
    s.access(200, "/pause_generation")
    s.wait(2)
    s.receive("r-1")
    s.wait(60)
    s.log("Subprocess scheduler_0 (pid=77) crashed with exit code -9. Triggering SIGQUIT for cleanup...")
    s.sigquit()
    return Ending(confidence=LIKELY)


@story("process-killed", "0.5.10", "0.5.23")
def detokenizer_was_killed(s: Server) -> Ending:
    running(s)
    s.log("Subprocess detokenizer (pid=78) crashed with exit code -11. Triggering SIGQUIT for cleanup...")
    s.sigquit()
    return Ending()


def killed_by_the_watchdog(s: Server) -> None:
    s.wait(300)
    if s.since("0.5.7"):
        s.scheduler("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)")
    else:
        s.scheduler("Watchdog timeout (self.watchdog_timeout=300)")
    s.wait(5)
    s.sigquit()


@story("watchdog-timeout", "0.3.6", "0.4.9", "0.5.6", "0.5.7", "0.5.10", "0.5.23")
def watchdog_killed_it(s: Server) -> Ending:
    running(s)
    killed_by_the_watchdog(s)
    if not s.since("0.4.1"):
        return Ending(cause="never-received", confidence=LIKELY)
    return Ending()


@story("watchdog-timeout", "0.5.7", "0.5.10", "0.5.23")
def watchdog_dumped_its_batch_and_killed_it(s: Server) -> Ending:
    running(s)
    s.wait(300)
    s.scheduler("Scheduler debug info:\nself.cur_batch.batch_size()=1\n"
                "self.cur_batch.reqs=[Req(rid=r-1, input_ids=[1, 2], output_ids=[3])]")  # fmt: skip
    s.scheduler("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)")
    s.wait(5)
    s.sigquit()
    return Ending(stage="running")


@story("watchdog-timeout", "0.4.9", "0.5.10", "0.5.23")
def watchdog_killed_a_server_that_looked_idle(s: Server) -> Ending:
    """A scheduler that is stuck forms no batch of what it gets."""
    s.receive("r-1")
    killed_by_the_watchdog(s)
    return Ending(confidence=LIKELY)


@story("finished", "0.5.10", "0.5.23")
def a_soft_watchdog_only_dumps(s: Server) -> Ending:
    running(s)
    s.wait(300)
    s.scheduler("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)")
    s.wait(30)
    s.done("r-1", tokens=400)
    s.done("r-2", tokens=400)
    return Ending(stage="finished")


@story("server-shutdown", "0.5.13", "0.5.18", "0.5.23")
def drained_and_still_listed(s: Server) -> Ending:
    running(s)
    s.sigterm()
    s.wait(5)
    s.draining("r-1", "r-2")
    s.wait(2)
    s.done("r-2", tokens=400)
    s.draining("r-1")
    return Ending()


@story("server-shutdown", "0.4.9", "0.5.3", "0.5.10", "0.5.12")
def drained_where_ghosts_are_listed(s: Server) -> Ending:
    """0.4.9 to 0.5.12 also list what ended long ago: the list alone proves nothing, and the log just stops."""
    running(s)
    s.sigterm()
    s.draining("r-1", "r-2")
    s.wait(5)
    s.draining("r-1", "r-2")
    return Ending(also=("in-flight", "not-established"), confidence=(*LIKELY, *UNDECIDED))


@story("client-disconnect", "0.4.9", "0.5.10", "0.5.23")
def left_while_the_server_drained(s: Server) -> Ending:
    running(s)
    s.sigterm()
    s.draining("r-1", "r-2")
    s.wait(5)
    s.disconnected("r-1")
    s.draining("r-2")
    s.wait(1)
    s.done("r-2", tokens=400)
    return Ending()


@story("client-disconnect", "0.5.10", "0.5.23")
def left_before_the_crash(s: Server) -> Ending:
    """A disconnect that was noticed is the end, whatever became of the server afterwards."""
    running(s)
    s.disconnected("r-1")
    s.wait(10)
    s.died(exception="RuntimeError: boom")
    return Ending()


@story("finished", "0.5.10", "0.5.23")
def finished_before_the_crash(s: Server) -> Ending:
    running(s)
    s.done("r-1", tokens=400)
    s.wait(1)
    s.died(exception="RuntimeError: boom")
    return Ending(stage="finished")


@story("scheduler-crash", "0.5.10", "0.5.23")
def crashed_and_counted_by_the_dump(s: Server) -> Ending:
    running(s)
    s.every_rank(wordings.hit_an_exception("Scheduler", "RuntimeError: boom"))
    s.sigquit()
    s.log("Dumping requests before crash. self.crash_dump_folder='/dumps'")
    s.log("Dumped 1 finished and 2 unfinished requests before crash to /dumps/a/crash_dump_2026-03-01_10-00-33.pkl")
    return Ending(confidence=("proven",))


@story("scheduler-crash", "0.5.10", "0.5.23")
def crashed_and_counted_differently_by_the_dump(s: Server) -> Ending:
    """One of the open ones was not in flight any more: which, nothing says."""
    running(s)
    s.every_rank(wordings.hit_an_exception("Scheduler", "RuntimeError: boom"))
    s.sigquit()
    s.log("Dumped 1 finished and 1 unfinished requests before crash to /dumps/a/crash_dump_2026-03-01_10-00-33.pkl")
    return Ending(confidence=LIKELY)


@story("server-shutdown", "0.4.7", "0.4.9", "0.5.10", "0.5.23")
def shut_down_by_force(s: Server) -> Ending:
    running(s)
    s.log("Signal SIGTERM received while health check failed. Force exiting.")
    return Ending()


@story("server-shutdown", "0.5.10", "0.5.23")
def all_processes_got_sigterm(s: Server) -> Ending:
    running(s)
    s.sigterm()
    s.log("Subprocess scheduler_0 (pid=77) crashed with exit code -15. Triggering SIGQUIT for cleanup...")
    s.sigquit()
    return Ending()


@story("finished", "0.4.1", "0.4.9", "0.5.10", "0.5.23")
def drained_and_finished(s: Server) -> Ending:
    running(s)
    s.sigterm()
    s.draining("r-1", "r-2")
    s.wait(3)
    s.done("r-1", tokens=400)
    s.done("r-2", tokens=400)
    s.draining()
    return Ending(stage="finished")


@story("explicit-abort", "0.5.3", "0.5.9", "0.5.12")
def a_ghost_in_the_drain(s: Server) -> Ending:
    """0.4.9 to 0.5.12 never forget a request that was aborted in the queue: its rid in the list proves nothing."""
    s.receive("r-2", max_new_tokens=400)
    s.receive("r-1")
    s.wait(2)
    s.access(200, "/abort_request")
    s.aborted_waiting("r-1")
    s.wait(5)
    s.done("r-2", tokens=400)
    s.sigterm()
    s.draining("r-1")
    s.wait(5)
    s.draining("r-1")
    return Ending(stage="waiting", confidence=LIKELY)


@story("process-killed", "0.4.10", "0.5.10", "0.5.23")
def in_the_first_of_two_lives(s: Server) -> Ending:
    running(s)
    if s.since("0.5.10"):
        s.log("Subprocess scheduler_0 (pid=77) crashed with exit code -9. Triggering SIGQUIT for cleanup...")
    s.sigquit()
    s.wait(30)
    s.boot()
    s.receive("r-3")
    s.wait(1)
    s.done("r-3")
    return Ending(confidence=LIKELY)


@story("output-lost", "0.5.10", workers=2)
def a_worker_was_not_known(s: Server) -> Ending:
    """Two HTTP workers: an end in the scheduler is lost, and much later the client gives up."""
    s.receive("r-1", **s.session("ghost"))
    s.refused_line("r-1", "Invalid request: session id ghost does not exist")
    s.log("IPC name is None, output type=<class 'BatchStrOutput'>, skipping...")
    s.wait(180)
    s.disconnected("r-1")
    return Ending(cause="session-unknown", effects=("reply-lost",), confidence=LIKELY)


@story("output-lost", "0.5.4", "0.5.9", "0.5.10", workers=2)
def a_worker_was_not_known_and_nothing_says_what_ended_it(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(3)
    s.log("IPC name is None, output type=<class 'BatchStrOutput'>, skipping...")
    s.wait(180)
    s.disconnected("r-1")
    return Ending(cause="not-established", effects=("reply-lost",), confidence=UNDECIDED, among=("output-lost",))


@story("output-lost", "0.4.2", "0.5.10", "0.5.23")
def detokenizer_forgot_it(s: Server) -> Ending:
    """The detokenizer goes down with the request whose state it had dropped."""
    running(s)
    s.log(wordings.hit_an_exception("DetokenizerManager", "RuntimeError: Decode status not found for request r-1. It "
          "may be due to the request being evicted from the decode status due to memory pressure."))  # fmt: skip
    s.sigquit()
    return Ending(also=("scheduler-crash",))
