#!/bin/sh
# time limit: 200 s
# Fuzzes what reads query strings, paths and headers for FUZZ_SECONDS (20): FUZZ_BIN is the folder of fuzz_query (build/fuzz). Speaks TAP.
fuzzer=${FUZZ_BIN:-build/fuzz}/fuzz_query
echo 1..1
if [ ! -x "$fuzzer" ]; then
    echo "ok 1 - requests fuzzed # SKIP $fuzzer is not built (make fuzz)"
    exit 0
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/corpus"
# The first byte, modulo 5, picks the reader: "2" is 50.
i=0
for seed in '2kind=recon&dcf=given&tolerance=1e-4&group=a%2Fb+c' '3/v1/jobs/0123/results/image' '4image/png;q=0.5, */*, wait=10' '5bytes=2-5' '6[::1]:8080'; do
    printf %s "$seed" >"$folder/corpus/$i"
    i=$((i + 1))
done
if "$fuzzer" -max_total_time="${FUZZ_SECONDS:-20}" -timeout=10 -seed=1 -max_len=400 -artifact_prefix="$folder/" -print_final_stats=1 \
    "$folder/corpus" >"$folder/log" 2>&1; then
    echo "ok 1 - requests fuzzed"
    grep '^stat::number_of_executed_units' "$folder/log" | sed 's/^/# /'
else
    echo "not ok 1 - requests fuzzed"
    tail -60 "$folder/log" | sed 's/^/# /'
    exit 1
fi
