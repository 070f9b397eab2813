#!/bin/sh
# Installs the Debian packages whose programs the tests start as real servers.
# As root it installs what is missing; otherwise it prints the command, and the tests that need it skip.
set -eu

packages="redis-server prometheus rclone fuse3 strace"

say() { echo "debian-packages: $*"; }

missing=""
for package in $packages; do
    status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$status" = "install ok installed" ] || missing="$missing $package"
done
missing=${missing# }

if [ -z "$missing" ]; then
    say "nothing to do"
    exit 0
fi

install="apt-get install -y --no-install-recommends $missing"

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    say "not installed: $missing. Tests that need them skip. To run them too, as root on Debian: $install"
    exit 0
fi

# The tests start the programs themselves, so no package may start a service of its own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi

say "installing $missing"
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
if (apt-get update && $install) >"$log" 2>&1; then
    rm -f "$log"
    say "installed $missing"
else
    tail -n 20 "$log" >&2
    rm -f "$log"
    say "could not install $missing: tests that need them skip" >&2
fi
