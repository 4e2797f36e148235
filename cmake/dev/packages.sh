#!/bin/sh
# Sees to it that the Debian packages given as arguments are there: installs the missing ones as root, otherwise prints the
# one line to run and fails. What is already there in another way (a cmake of one's own, say) is not installed again.
set -eu

# Where no dpkg is, nothing is known about packages; the configuration step says what it misses.
command -v dpkg-query >/dev/null 2>&1 || {
    echo "packages: this is not Debian; if something is missing, install what corresponds to: $*"
    exit 0
}

has_command() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
has_package() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | head -c 9)" = installed ]; }
present() {
    case "$1" in
        g++ | cmake | pkg-config | git | debootstrap) has_command "$1" ;;
        ninja-build) has_command ninja ;;
        redis-server) has_command redis-server || has_command valkey-server ;;
        clang-*) has_command "$(echo "$1" | sed 's/^clang-\([0-9]*\)$/clang++-\1/')" ;;
        python3-venv) python3 -c 'import ensurepip' 2>/dev/null ;;
        *) has_package "$1" ;;
    esac
}

missing=
for package in "$@"; do
    present "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "packages: missing:$missing. Run this, then try again:" >&2
    echo "    sudo apt-get install -y --no-install-recommends$missing" >&2
    exit 1
fi

echo "packages: installing$missing"
log=$(mktemp "${TMPDIR:-/tmp}/distlock-packages.XXXXXX")
policy=
tidy() {
    rm -f "$log" "$log.status"
    [ -z "$policy" ] || rm -f "$policy"
}
trap tidy EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Without an init system (a container, a chroot) a package's service would be started behind everybody's back: forbid
# it for as long as this takes.
if [ ! -d /run/systemd/system ] && [ ! -e /usr/sbin/policy-rc.d ]; then
    policy=/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

# Runs apt-get with one dot per package that arrives, is unpacked or set up; everything else goes to the log.
apt() {
    {
        status=0
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null 2>&1 || status=$?
        echo "$status" >"$log.status"
    } | while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        case "$line" in Get:* | Hit:* | Unpacking* | "Setting up"*) printf '.' ;; esac
    done
    return "$(cat "$log.status")"
}

apt update || echo " (the package lists could not be refreshed: trying with those that are there)"
if ! apt install -y --no-install-recommends $missing; then
    echo
    tail -n 25 "$log" >&2
    echo "packages: apt-get could not install:$missing (its last lines are above)" >&2
    exit 1
fi
echo " done"
