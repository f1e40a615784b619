#!/bin/sh
# time limit: 200 s
# Fuzzes what reads headers that say who and what, and the files of tokens and configuration, for FUZZ_SECONDS (15): FUZZ_BIN is the
# folder of fuzz_http (build/fuzz). Speaks TAP.
fuzzer=${FUZZ_BIN:-build/fuzz}/fuzz_http
echo 1..1
if [ ! -x "$fuzzer" ]; then
    echo "ok 1 - headers, tokens and configuration fuzzed # SKIP $fuzzer is not built (make fuzz)"
    exit 0
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/new"
if "$fuzzer" -max_total_time="${FUZZ_SECONDS:-15}" -timeout=10 -seed=1 -max_len=2000 -artifact_prefix="$folder/" -print_final_stats=1 \
    "$folder/new" tests/fuzz/corpus/http >"$folder/log" 2>&1; then
    echo "ok 1 - headers, tokens and configuration fuzzed"
    grep '^stat::number_of_executed_units' "$folder/log" | sed 's/^/# /'
else
    echo "not ok 1 - headers, tokens and configuration fuzzed"
    tail -60 "$folder/log" | sed 's/^/# /'
    for input in "$folder"/crash-* "$folder"/leak-* "$folder"/timeout-* "$folder"/oom-*; do
        [ -f "$input" ] && echo "# input: $(base64 -w0 "$input")"
    done
    exit 1
fi
