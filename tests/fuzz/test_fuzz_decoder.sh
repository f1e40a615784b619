#!/bin/sh
# time limit: 200 s
# Fuzzes the decoder's own parsers for FUZZ_SECONDS (30): FUZZ_BIN is the folder of fuzz_decoder (build/fuzz). Speaks TAP.
fuzzer=${FUZZ_BIN:-build/fuzz}/fuzz_decoder
echo 1..1
if [ ! -x "$fuzzer" ]; then
    echo "ok 1 - decoder fuzzed # SKIP $fuzzer is not built (make fuzz)"
    exit 0
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
/usr/bin/python3 tests/fuzz/decoder_seeds.py "$folder/corpus" || exit 1
if "$fuzzer" -max_total_time="${FUZZ_SECONDS:-30}" -rss_limit_mb=2048 -timeout=10 -seed=1 -artifact_prefix="$folder/" \
    -print_final_stats=1 "$folder/corpus" >"$folder/log" 2>&1; then
    echo "ok 1 - decoder fuzzed"
    grep '^stat::number_of_executed_units' "$folder/log" | sed 's/^/# /'
else
    echo "not ok 1 - decoder fuzzed"
    tail -60 "$folder/log" | sed 's/^/# /'
    for input in "$folder"/crash-* "$folder"/leak-* "$folder"/timeout-* "$folder"/oom-*; do
        [ -f "$input" ] && echo "# input: $(base64 -w0 "$input")"
    done
    exit 1
fi
