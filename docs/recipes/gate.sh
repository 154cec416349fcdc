#!/bin/sh
# Decides after a load test whether a build may be deployed, and keeps its audit as the next build's baseline.
# Usage: gate.sh LOGS BASELINE.json
set -eu
logs=$1 baseline=$2

lifecycle ingest "$logs" -o evidence.parquet
if [ -e "$baseline" ]; then
    lifecycle audit evidence.parquet --baseline "$baseline" --format markdown -o comparison.md
fi
lifecycle audit evidence.parquet --format json -o audit.json \
    --fail-on 'waiting-timeout > 1%' --fail-on 'scheduler-crash > 0' --fail-on 'finished < 40%'
mv audit.json "$baseline" # only reached where no threshold was crossed
