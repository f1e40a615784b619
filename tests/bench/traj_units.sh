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
"${CC:-gcc}" -std=c17 -D_GNU_SOURCE -O2 -fopenmp -I"$from" ${flags[@]+"${flags[@]}"} tests/unit/test_traj_units.c \
    "$from"/gridding/traj_unit.c "$from"/gridding/traj.c "$from"/gridding/base/err.c -o "$tmp/table" -lcmocka -lm
"$tmp/table" | grep '^|'
