#!/bin/sh
# Runs the corpus of each fuzz target, then fuzzes it for FUZZ_SECONDS (4). FUZZ_BIN: folder of targets (build/fuzz).
# Prints TAP. For long runs: tests/fuzz/hour.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
set -- tests/fuzz/fuzz_*.c
echo "1..$#"
failed=0
test=0
for source; do
    target=$(basename "$source" .c)
    name=${target#fuzz_}
    test=$((test + 1))
    fuzzer=${FUZZ_BIN:-build/fuzz}/$target
    if [ ! -x "$fuzzer" ]; then
        echo "ok $test - $name fuzzed # SKIP $fuzzer is not built (make fuzz)"
        continue
    fi
    mkdir -p "$folder/$name"
    if [ "$name" = decoder ]; then
        /usr/bin/python3 tests/fuzz/decoder_seeds.py "$folder/$name" || exit 1
    fi
    if [ "$name" = arrays ]; then
        /usr/bin/python3 tests/fuzz/arrays_seeds.py "$folder/$name" || exit 1
    fi
    if [ "$name" = particles ]; then
        /usr/bin/python3 tests/fuzz/particles_seeds.py "$folder/$name" || exit 1
    fi
    if "$fuzzer" -max_total_time="${FUZZ_SECONDS:-4}" -timeout=100 -rss_limit_mb=2048 -max_len=16384 -seed=1 -artifact_prefix="$folder/" \
        -dict="tests/fuzz/$name.dict" -print_final_stats=1 "$folder/$name" "tests/fuzz/corpus/$name" >"$folder/log" 2>&1; then
        echo "ok $test - $name fuzzed"
        sed -n 's/^stat::number_of_executed_units/# executions/p' "$folder/log"
    else
        echo "not ok $test - $name fuzzed"
        failed=1
        tail -60 "$folder/log" | sed 's/^/# /'
        for input in "$folder"/crash-* "$folder"/leak-* "$folder"/timeout-* "$folder"/oom-*; do
            [ -f "$input" ] && echo "# input: $(base64 -w0 "$input")" && rm "$input"
        done
    fi
done
exit $failed
