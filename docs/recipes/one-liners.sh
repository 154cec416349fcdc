# The last hour of a deployment, straight from the cluster.
kubectl logs deployment/sglang --since=1h | lifecycle audit -

# One request of the container that crashed and was restarted.
kubectl logs pod/sglang-0 --previous | lifecycle explain job-12 -

# From Loki, whose JSON lines are read as they are.
logcli query '{app="sglang"}' --since=1h --limit=0 --forward --output=jsonl | lifecycle audit - --format csv -o audit.csv

# The ten sessions with the most interrupted requests.
lifecycle audit logs --format ndjson |
    jq -r 'select(.record == "request" and .status == "interrupted" and .session_id) | .session_id' |
    sort | uniq -c | sort -rn | head
