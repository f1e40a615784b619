#!/usr/bin/env bash
# Install, run, upgrade, remove and purge the Debian package that `make deb` made, in a root of its own, as root (make
# check-deb). Prints TAP. The root (about 400 MB with the package's dependencies) is made by debootstrap and removed at the
# end. Set MRIRECON_BIN to the binaries' folder, beside whose parent the package lies. time limit: 1200 s
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=$(dirname "${MRIRECON_BIN:-build/bin}")
arch=$(dpkg --print-architecture)
root=$(mktemp -d /var/tmp/mrirecond-deb.XXXXXX)
chmod 755 "$root" # it is the root folder of others than root, too
number=0 failures=0 pid= port=0

verdict() { # STATUS NAME
    number=$((number + 1))
    if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; failures=$((failures + 1)); fi
}
exec_root() { exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
in_root() { (exec_root "$@"); }
finish() {
    [ -n "$pid" ] && kill -9 "$pid" 2>/dev/null
    umount "$root/proc" 2>/dev/null
    # Should anything of the machine still be mounted there, it is not ours to remove.
    rm -rf --one-file-system "$root"
}
trap finish EXIT
bail() { echo "Bail out! $*"; exit 1; }

# The daemon as the unit starts it: its account, its configuration. READY is a file with the port.
start() {
    rm -f "$root/var/lib/mrirecond/port"
    exec_root setpriv --reuid mrirecond --regid mrirecond --clear-groups \
        /usr/bin/mrirecond --config /etc/mrirecond/mrirecond.conf --listen 127.0.0.1:0 --port-file /var/lib/mrirecond/port \
        --log-level warning --drain-time 0 "$@" 2>>"$root/tmp/daemon.log" &
    pid=$!
    for _ in $(seq 600); do
        [ -s "$root/var/lib/mrirecond/port" ] && port=$(cat "$root/var/lib/mrirecond/port") && return 0
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
stop() { kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; pid=; }
client() { in_root mrirecon --server "http://127.0.0.1:$port" "$@"; }

package=$(ls "$build"/mrirecond_*-1_"$arch".deb 2>/dev/null) || bail "make deb first"
version=$(basename "$package" "-1_$arch.deb")
version=${version#mrirecond_}
[ "$(id -u)" = 0 ] || bail "the package is installed as root: run this as root"
if command -v lintian >/dev/null; then
    found=$(lintian --allow-root --fail-on error,warning "$package" 2>&1)
    verdict $? "lintian has nothing to say of it${found:+: $found}"
else
    verdict 0 "lintian has nothing to say of it # SKIP it is not installed (make check-deb installs it)"
fi
debootstrap --variant=minbase "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" >"$root.log" 2>&1 || bail "debootstrap: $(tail -1 "$root.log")"
rm -f "$root.log"
mount -t proc proc "$root/proc" || bail "cannot mount into $root"
cp "$package" "$root/tmp/"
systemd/debian/build "$build" "$version" 2 >/dev/null && cp "$build/mrirecond_$version-2_$arch.deb" "$root/tmp/" || bail "no second revision"
rm -f "$build/mrirecond_$version-2_$arch.deb"

in_root apt-get update -qq 2>/dev/null
in_root apt-get install -y -qq --no-install-recommends "/tmp/mrirecond_$version-1_$arch.deb" >"$root/tmp/install.log" 2>&1
verdict $? "installs with its dependencies in a minimal system"
in_root id mrirecond >/dev/null 2>&1
verdict $? "makes its account"
[ "$(in_root stat -c '%U %a' /var/lib/mrirecond)" = "mrirecond 700" ]
verdict $? "makes its folder, for itself alone"
in_root systemctl is-enabled mrirecond.service >/dev/null 2>&1
verdict $? "its service is enabled"

start
started=$?
verdict $started "the daemon starts under its account"
[ $started = 0 ] || { cat "$root/tmp/daemon.log"; bail "it does not start"; }
in_root mrirecon simulate --trajectory spiral --out /tmp/scan.h5 >/dev/null
in_root mrirecon simulate --trajectory kooshball --matrix 96 --out /tmp/large.h5 >/dev/null
client submit /tmp/scan.h5 --out /tmp/image.png >"$root/tmp/client.log" 2>&1
head -c 4 "$root/tmp/image.png" 2>/dev/null | grep -q PNG
verdict $? "it reconstructs a simulated scan"

# Twenty jobs, and the daemon told to stop at once: they wait in the store while the package is upgraded.
for _ in $(seq 20); do client submit /tmp/large.h5 >>"$root/tmp/ids" 2>>"$root/tmp/client.log"; done
stop
[ "$(sort -u "$root/tmp/ids" | wc -l)" = 20 ]
verdict $? "twenty jobs are accepted"
echo "idle-timeout = 61" >>"$root/etc/mrirecond/mrirecond.conf"
in_root dpkg -i "/tmp/mrirecond_$version-2_$arch.deb" >"$root/tmp/upgrade.log" 2>&1
verdict $? "upgrades"
grep -q '^idle-timeout = 61' "$root/etc/mrirecond/mrirecond.conf"
verdict $? "an upgrade keeps the configuration as it was edited"
start
done=0
while read -r id; do client wait "$id" >/dev/null 2>>"$root/tmp/client.log" && done=$((done + 1)); done <"$root/tmp/ids"
[ "$done" = 20 ]
verdict $? "an upgrade keeps the queue: $done of 20 jobs succeed after it"
stop

in_root systemctl enable mrirecond.socket >"$root/tmp/socket.log" 2>&1
verdict $? "the socket can be enabled"
in_root dpkg -r mrirecond >"$root/tmp/remove.log" 2>&1 && [ -e "$root/var/lib/mrirecond/jobs.db" ] && [ ! -e "$root/usr/bin/mrirecond" ]
verdict $? "removal takes the programs and keeps queue and configuration"
in_root dpkg -P mrirecond >"$root/tmp/purge.log" 2>&1
left=$(in_root find / -xdev -path /proc -prune -o -path /tmp -prune -o -name '*mrirecon*' -print | grep -v '^/var/lib/systemd/deb-systemd' )
[ -z "$left" ]
verdict $? "purging leaves nothing${left:+: $left}"
! grep -qv ' audit: ' "$root/tmp/daemon.log" # who did what is logged at every level
verdict $? "the daemon had nothing to complain of"
if [ "$failures" -gt 0 ]; then
    for log in daemon client install upgrade remove purge; do sed "s/^/# $log: /" "$root/tmp/$log.log" 2>/dev/null | tail -20; done
fi
echo "1..$number"
exit $((failures > 0))
