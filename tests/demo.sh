#!/bin/bash
# Runs one job of a kind (KIND, default recon) from its input, sent by curl, to a picture of its result.
#   tests/demo.sh BUILD [FILE]     BUILD: folder of the build; FILE: an input of the kind; by default one is simulated.
# Leaves demo.png (and the simulated file) in the current folder. What is simulated and submitted is
# in the kind's folder: recon/*/demo beside NAME_kind.c.
set -euo pipefail

bin=${1:?usage: tests/demo.sh BUILD [FILE]}/bin
scan=${2:-}
kind=${KIND:-recon}
state=$(mktemp -d "${TMPDIR:-/tmp}/mrirecond-demo-XXXXXX")
daemon=

finish() {
    if [ -n "$daemon" ] && kill -TERM "$daemon" 2>/dev/null; then
        wait "$daemon" || true
    fi
    rm -rf "$state"
}
trap finish EXIT

fail() {
    printf 'demo: %s\n' "$*" >&2
    if [ -s "$state/log" ]; then
        printf 'What the daemon said last:\n' >&2
        tail -n 15 "$state/log" >&2
    fi
    exit 1
}

for program in mrirecond mrirecon-worker mrirecon-codec mrirecon-send mrirecon; do
    [ -x "$bin/$program" ] || fail "$bin/$program is not there; run make first."
done
recon=$(dirname "$0")/../recon
table=$(echo "$recon"/*/"${kind}_kind.c")
if [ ! -f "${table%/*}/demo" ]; then
    kinds=$(sed -n 's/.*query="kind=\([a-z0-9-]*\).*/\1/p' "$recon"/*/demo | paste -sd ' ')
    fail "there is no demo of kind $kind; there are: $kinds."
fi
. "${table%/*}/demo"
if [ -n "$scan" ]; then
    [ -f "$scan" ] || fail "$scan is no file."
else
    scan=$file
    echo "Simulating $what -> $scan"
    "$bin/mrirecon" simulate "${options[@]}" --out "$scan" || fail "it could not be simulated."
fi

"$bin/mrirecond" --listen 127.0.0.1:0 --port-file "$state/port" --state-dir "$state/state" >"$state/log" 2>&1 &
daemon=$!
ready=
for _ in $(seq 600); do
    kill -0 "$daemon" 2>/dev/null || fail "the daemon did not start."
    if [ -s "$state/port" ]; then
        server=http://127.0.0.1:$(cat "$state/port")
        ready=$(curl -s --fail "$server/readyz" && echo yes) && break
    fi
    sleep 0.1
done
[ -n "$ready" ] || fail "the daemon was not ready after 60 s."
echo "mrirecond runs at $server"

upload="curl -sS --fail-with-body --data-binary $(printf %q "@$scan") -H 'Prefer: wait=300, handling=strict' -H 'Accept: image/png' '$server/v1/jobs?$query' -o answer && mv answer demo.png"
echo "\$ $upload"
told=$(curl -sS --data-binary "@$scan" -H 'Prefer: wait=300, handling=strict' -H 'Accept: image/png' -o "$state/answer" \
    -w '%{http_code} %{time_total} %{size_upload} %{size_download} %header{x-job-id}' "$server/v1/jobs?$query") ||
    fail "curl could not talk to the daemon."
read -r code seconds up down id <<<"$told"
if [ "$code" != 200 ]; then
    fail "the job failed: $(cat "$state/answer")"
fi
mv "$state/answer" demo.png
awk -v s="$seconds" -v u="$up" -v d="$down" \
    'BEGIN { printf "%.2f MB up, %.1f kB of PNG down, %.3f s from curl'\''s first byte to its last\n\nWhere the time went:\n", u / 1e6, d / 1e3, s }'
curl -sS "$server/v1/jobs/$id" -o "$state/job" || fail "the job's report could not be read."
/usr/bin/python3 - "$state/job" "$seconds" <<'PYTHON'
import json
import sys
job = json.load(open(sys.argv[1]))
report, total = job["report"], float(sys.argv[2])
stages = list(report["stages"].items())
stages.append(("HTTP, queue", max(0.0, total - sum(seconds for _, seconds in stages))))
for name, seconds in stages:
    print(f"  {name:24} {seconds * 1e3:9.1f} ms  {'#' * round(40 * seconds / total)}")
print(f"  {'all':24} {total * 1e3:9.1f} ms   on {report.get('device', 'an unnamed device')}")
PYTHON
echo
echo "The picture is demo.png"
