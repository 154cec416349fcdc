# %% Read once; ask as often as you like.
import polars as pl

from sglang_lifecycle import audit, explain, read

logs = read("logs")

# %% What happened? A notebook shows this as a page.
found = audit(logs)
found

# %% Who waited longest before being cut?
interrupted = found.requests_table.filter(pl.col("status") == "interrupted")
interrupted.sort("waited_s", descending=True, nulls_last=True).head(10)

# %% Why was this one cut?
verdict = explain(logs, "job-12")
verdict

# %% How full was the batch around then?
ended = logs.evidence_table.filter((pl.col("rid") == "job-12") & (pl.col("event") == "request.finished"))["at"][0]
batches = logs.evidence_table.filter(
    (pl.col("event") == "batch.decode") & pl.col("at").is_between(ended - 30, ended + 5)
).select("at", "running", "queued", "token_usage")
