#!/usr/bin/env bash
# Install, run, upgrade, remove and purge the Debian package that `make deb` made, in a separate root that systemd boots
# (make check-deb, as root): the installed unit starts the service, with all restrictions of the unit. Prints TAP. The
# root (about 400 MB with the dependencies) is made by debootstrap and removed at the end. Set MRIRECON_BIN to the
# binaries' folder; the package lies beside its parent. time limit: 1200 s
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=$(dirname "${MRIRECON_BIN:-build/bin}")
arch=$(dpkg --print-architecture)
root=$(mktemp -d /var/tmp/mrirecond-deb.XXXXXX)
chmod 755 "$root" # it is the root folder of others than root, too
number=0 failures=0 machine= leader=

verdict() { # STATUS NAME
    number=$((number + 1))
    if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; failures=$((failures + 1)); fi
}
environment=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C)
in_root() { chroot "$root" "${environment[@]}" "$@"; }
booted() { nsenter --target "$leader" --all "${environment[@]}" "$@"; }
halt() {
    [ -z "$leader" ] || booted systemctl poweroff --no-block 2>/dev/null
    for _ in $(seq 300); do
        [ -n "$machine" ] && kill -0 "$machine" 2>/dev/null || break
        sleep 0.1
    done
    [ -z "$machine" ] || kill -9 "$machine" 2>/dev/null
    machine= leader=
}
finish() {
    halt
    mountpoint -q "$root/proc" && umount "$root/proc"
    # If a file system of the host is still mounted there, it must not be removed.
    rm -rf --one-file-system "$root"
}
trap finish EXIT
bail() { echo "Bail out! $*"; exit 1; }

# systemd in a container with its own network, which has only loopback. Workers need landlock's system calls, which
# nspawn 252 refuses by default.
boot() {
    systemd-nspawn --quiet --boot --directory="$root" --private-network --register=no --keep-unit --console=pipe \
        --system-call-filter='landlock_create_ruleset landlock_add_rule landlock_restrict_self' >"$root.console" 2>&1 </dev/null &
    machine=$!
    for _ in $(seq 600); do
        leader=$(pgrep -P "$machine") && [ "$(booted systemctl is-system-running 2>/dev/null)" = running ] && return 0
        kill -0 "$machine" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
ready() { # the status of /readyz, once it is 200, or after a minute
    local status=
    for _ in $(seq 600); do
        status=$(booted curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8080/readyz)
        [ "$status" = 200 ] && break
        sleep 0.1
    done
    echo "$status"
}
# The web page: each file of the package is served as installed, with the ETag of its bytes.
page_served() {
    local files file name etag said
    files=$(in_root dpkg-query --listfiles mrirecond | grep '^/usr/share/mrirecond/web/.*\.[a-z]*$' | grep -v '\.\(br\|gz\)$')
    [ -n "$files" ] || { echo "the package has no file of the page"; return 1; }
    for file in $files; do
        name=${file##*/}
        booted curl -sS --fail -D /root/page.head -o /root/page.file "http://127.0.0.1:8080/ui/$name" || return 1
        cmp -s "$root/root/page.file" "$root$file" || { echo "$name differs from $file"; return 1; }
        etag=$(tr -d '\r' <"$root/root/page.head" | sed -n 's/^ETag: "\(.*\)"$/\1/Ip')
        [ "$etag" = "$(sha256sum <"$root$file" | cut -c1-32)" ] || { echo "the ETag of $name is $etag"; return 1; }
        said=$(booted curl -s -o /dev/null -w '%{http_code}' -H "If-None-Match: \"$etag\"" "http://127.0.0.1:8080/ui/$name")
        [ "$said" = 304 ] || { echo "$name was answered $said for its own ETag"; return 1; }
    done
    booted curl -sSL --fail -o /root/page.file http://127.0.0.1:8080/ui && cmp -s "$root/root/page.file" "$root/usr/share/mrirecond/web/index.html" ||
        { echo "/ui does not lead to index.html"; return 1; }
}
property() { booted systemctl show --value -p "$1" mrirecond.service; }
is_png() { [ "$(booted head -c 4 "$1" 2>/dev/null | tail -c 3)" = PNG ]; }

package=$(ls "$build"/mrirecond_*-1_"$arch".deb 2>/dev/null) || bail "make deb first"
version=$(basename "$package" "-1_$arch.deb")
version=${version#mrirecond_}
python=$build/python3-mrirecon_$version-1_all.deb
[ "$(id -u)" = 0 ] || bail "the package is installed as root: run this as root"
if command -v lintian >/dev/null; then
    found=$(lintian --allow-root --fail-on error,warning "$package" "$python" 2>&1)
    verdict $? "lintian has nothing to say of it${found:+: $found}"
else
    verdict 0 "lintian has nothing to say of it # SKIP it is not installed (make check-deb installs it)"
fi
debootstrap --variant=minbase --include=systemd-sysv,curl "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" >"$root.log" 2>&1 ||
    bail "debootstrap: $(tail -1 "$root.log")"
rm -f "$root.log"
mount -t proc proc "$root/proc" || bail "cannot mount into $root"
cp "$package" "$python" "$root/root/"
# Settings of make, such as CUDA=0, apply here too; its job server is only for the programs that it starts itself.
MAKEFLAGS=$(sed -E 's/ ?-j[0-9]*//; s/ ?--jobserver-[a-z]+=[^ ]*//' <<<"${MAKEFLAGS-}")
export MAKEFLAGS
systemd/debian/build "$build" "$version" 2 >/dev/null && cp "$build/mrirecond_$version-2_$arch.deb" "$root/root/" || bail "no second revision"
rm -f "$build/mrirecond_$version-2_$arch.deb" "$build/python3-mrirecon_$version-2_all.deb"

in_root apt-get update -qq 2>/dev/null
in_root apt-get install -y -qq --no-install-recommends "/root/mrirecond_$version-1_$arch.deb" >"$root/root/install.log" 2>&1
verdict $? "installs with its dependencies in a minimal system"
in_root apt-get install -y -qq --no-install-recommends "/root/python3-mrirecon_$version-1_all.deb" python3-numpy >>"$root/root/install.log" 2>&1
verdict $? "so does the Python package"
in_root id mrirecond >/dev/null 2>&1
verdict $? "makes its account"
[ "$(in_root stat -c '%U %a' /var/lib/mrirecond)" = "mrirecond 700" ]
verdict $? "makes its folder, for itself alone"
in_root systemctl is-enabled mrirecond.service >/dev/null 2>&1
verdict $? "its service is enabled"
umount "$root/proc"

boot
started=$?
verdict $started "a system with the package in it boots, and no unit fails"
[ $started = 0 ] || { sed 's/^/# /' "$root.console" | tail -20; bail "it does not boot"; }
rm -f "$root.console"
status=$(ready)
[ "$status" = 200 ] && [ "$(property ActiveState)" = active ]
verdict $? "the unit starts the service, which becomes ready: /readyz says $status"
have=false
python3 -c 'import ctypes; raise SystemExit(ctypes.CDLL(None).syscall(444, None, 0, 1) < 1)' && have=true
[ "$(booted curl -s 'http://127.0.0.1:8080/readyz?verbose' | grep -o '"landlock": [a-z]*')" = "\"landlock\": $have" ]
verdict $? "its worker is confined by as much of landlock as this kernel has"
booted mrirecon simulate --trajectory spiral --out /root/scan.h5 >/dev/null
booted mrirecon simulate --trajectory kooshball --matrix 64 --out /root/large.h5 >/dev/null
booted curl -sS --fail --data-binary @/root/scan.h5 -H 'Prefer: wait=60' -H 'Accept: image/png' -o /root/image.png \
    'http://127.0.0.1:8080/v1/jobs?kind=recon' 2>>"$root/root/client.log" && is_png /root/image.png
verdict $? "curl gets an image of a simulated scan through it"
booted mrirecon submit /root/scan.h5 --out /root/again.png >>"$root/root/client.log" 2>&1 && is_png /root/again.png
verdict $? "and the client does"
told=$(booted python3 -c 'import mrirecon
job = mrirecon.Server().submit("/root/scan.h5")
image = job.wait().array()
print(type(image).__module__, image.ndim, image.any())' 2>>"$root/root/client.log")
[ "$told" = "numpy 5 True" ]
verdict $? "and the Python package gets it as an array: $told"
if [ -e "$build/share/mrirecond/web/index.html" ]; then
    told=$(page_served 2>&1)
    verdict $? "the web page is served, each file as the package has it and with its ETag${told:+: $told}"
else
    verdict 0 "the web page is served # SKIP it is not built (make web, by npm)"
fi

booted systemctl reload mrirecond.service 2>>"$root/root/client.log" && [ "$(ready)" = 200 ]
verdict $? "it is reloaded"
before=$(property MainPID)
booted systemctl restart mrirecond.service && [ "$(ready)" = 200 ] && [ "$(property MainPID)" != "$before" ] &&
    [ "$(booted curl -s 'http://127.0.0.1:8080/v1/jobs?state=succeeded' | grep -c '"state": "succeeded"')" = 3 ]
verdict $? "it is restarted, and knows its jobs"
# Twenty jobs, some of which wait in the store while the package is upgraded.
for _ in $(seq 20); do booted mrirecon submit /root/large.h5 >>"$root/root/ids" 2>>"$root/root/client.log"; done
[ "$(sort -u "$root/root/ids" | wc -l)" = 20 ]
verdict $? "twenty jobs are accepted"
echo "idle-timeout = 61" >>"$root/etc/mrirecond/mrirecond.conf"
before=$(property MainPID)
booted dpkg -i "/root/mrirecond_$version-2_$arch.deb" >"$root/root/upgrade.log" 2>&1 && [ "$(ready)" = 200 ] && [ "$(property MainPID)" != "$before" ]
verdict $? "upgrades, and restarts the service"
grep -q '^idle-timeout = 61' "$root/etc/mrirecond/mrirecond.conf"
verdict $? "an upgrade keeps the configuration as it was edited"
done=0
while read -r id; do booted mrirecon wait "$id" >/dev/null 2>>"$root/root/client.log" </dev/null && done=$((done + 1)); done <"$root/root/ids"
[ "$done" = 20 ]
verdict $? "an upgrade keeps the queue: $done of 20 jobs succeed after it"
booted systemctl stop mrirecond.service
[ "$(property ActiveState)/$(property Result)" = inactive/success ]
verdict $? "it is stopped, and ends with success"
[ "$(property NRestarts)" = 0 ]
verdict $? "systemd never had to start it again"
complaints=$(booted journalctl --unit mrirecond.service --priority warning --quiet --no-pager --output cat)
[ -z "$complaints" ]
verdict $? "the daemon had nothing to complain of${complaints:+: $complaints}"
booted systemctl start mrirecond.service

booted systemctl enable mrirecond.socket >"$root/root/socket.log" 2>&1
verdict $? "the socket can be enabled"
booted dpkg -r mrirecond >"$root/root/remove.log" 2>&1 && [ -e "$root/var/lib/mrirecond/jobs.db" ] && [ ! -e "$root/usr/bin/mrirecond" ] &&
    [ "$(property ActiveState)" = inactive ]
verdict $? "removal stops the service, takes the programs and keeps queue and configuration"
booted dpkg -P mrirecond python3-mrirecon >"$root/root/purge.log" 2>&1
left=$(booted find / -xdev -path /root -prune -o -path /var/log/journal -prune -o -name '*mrirecon*' -print | grep -v '^/var/lib/systemd/deb-systemd')
[ -z "$left" ]
verdict $? "purging leaves nothing${left:+: $left}"
if [ "$failures" -gt 0 ]; then
    booted journalctl --unit mrirecond.service --no-pager >"$root/root/journal.log" 2>&1
    for log in journal client install upgrade remove purge; do sed "s/^/# $log: /" "$root/root/$log.log" 2>/dev/null | tail -20; done
fi
echo "1..$number"
exit $((failures > 0))
