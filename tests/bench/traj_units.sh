#!/bin/bash
# How trajectories' units are read, over tests/unit/test_traj_units.c's table of protocols: traj_units.sh [REVISION].
# With REVISION (one whose traj_unit_find() gives no warnings, such as c725a45) its code is used instead, without
# assertions.
set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
from=.
flags=()
if [ $# -gt 0 ]; then
    git archive "$1" gridding | tar -x -C "$tmp"
    from=$tmp
    if [ ! -e "$tmp/gridding/traj/traj.h" ]; then # the header's place before trajectories had a folder
        mkdir -p "$tmp/gridding/traj"
        echo '#include "gridding/traj.h"' >"$tmp/gridding/traj/traj.h"
    fi
    cat > "$tmp/before.h" <<'C'
#include "gridding/traj/traj.h"
#define TRAJ_UNITS_BEFORE
#define TRAJ_UNITS_FIND find_before
static inline int find_before(int dim, const int n[3], const double fov_m[3], const float *k, double scale[3], bool *told)
{
    enum traj_unit found;
    *told = false;
    return traj_unit_find(TRAJ_UNIT_AUTO, dim, n, fov_m, 3, 3, k, &found, scale, NULL, 0);
}
C
    flags=(-include "$tmp/before.h")
fi
# Sources may be in another folder in an older tree.
source_of() {
    local found
    found=$(find "$from/gridding" -name "$1")
    [ -n "$found" ] || { echo "traj_units.sh: no $1 below $from/gridding" >&2; exit 1; }
    echo "$found"
}
unit=$(source_of traj_unit.c)
traj=$(source_of traj.c)
err=$(source_of err.c)
"${CC:-gcc}" -std=c17 -D_GNU_SOURCE -O2 -fopenmp -I"$from" ${flags[@]+"${flags[@]}"} tests/unit/test_traj_units.c \
    "$unit" "$traj" "$err" -o "$tmp/table" -lcmocka -lm
"$tmp/table" | grep '^|'
