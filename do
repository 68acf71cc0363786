#!/bin/sh
# The one entry for users and developers: what is missing is installed, .venv is made, then the verb is done.
# POSIX sh. A second call looks at a stamp in .venv and goes straight on.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
venv=$root/.venv
stamp=$venv/do-stamp
not_found=$venv/do-not-found # programs for the tests that the package manager does not have
oldest=11                    # Python 3.11
: "${HOME:?is not set}"
cd "$root"

help() {
    cat <<'END'
./do run           mount ~/ollie, start the default model, ask it one question through the files
./do test [ARGS]   run the tests; ARGS go to pytest
./do check         formatting, lint, types, then the tests
./do lint          check without the tests
./do bench [ARGS]  measure
Each installs first what it needs and does not find.
END
}

say() { printf 'do: %s\n' "$*" >&2; }
die() {
    say "$@"
    exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

typed() { # PATH: as a person would type it
    case $1 in
        *[!A-Za-z0-9._/+@:,-]*) printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")" ;;
        "$HOME"/*) printf '~%s' "${1#"$HOME"}" ;;
        *) printf '%s' "$1" ;;
    esac
}

quietly() { # COMMAND...: its output is shown only when it fails
    output=$(mktemp)
    if "$@" >"$output" 2>&1; then
        rm -f "$output"
    else
        status=$?
        tail -n 20 "$output" >&2
        rm -f "$output"
        return "$status"
    fi
}

# --- packages of the system ------------------------------------------------------------------------------------------

package_of() { # WHAT: its packages, as $manager calls them; $minor is the Python that they are for
    solid=$(echo "$minor" | tr -d .)
    while read -r what apt dnf pacman apk zypper; do
        [ "$what" = "$1" ] || continue
        case $manager in
            apt-get) found=$apt ;; dnf) found=$dnf ;; pacman) found=$pacman ;; apk) found=$apk ;; zypper) found=$zypper ;;
            *) found=$what ;;
        esac
        echo "$found" | tr ',' ' '
    done <<END
fusermount3  fuse3             fuse3               fuse3             fuse3                        fuse3
libfuse3     libfuse3-dev      fuse3-devel         fuse3             fuse3-dev                    fuse3-devel
pkg-config   pkg-config        pkgconf-pkg-config  pkgconf           pkgconf                      pkg-config
compiler     gcc,libc6-dev     gcc,glibc-devel     gcc               gcc,musl-dev,linux-headers   gcc,glibc-devel
python3      python3           python3             python            python3                      python311
venv         $minor-venv       $minor              python            python3                      $solid
Python.h     $minor-dev        $minor-devel        python            python3-dev                  $solid-devel
timeout      coreutils         coreutils           coreutils         coreutils                    coreutils
busybox      busybox           busybox             busybox           busybox                      busybox
dash         dash              dash                dash              dash                         dash
zsh          zsh               zsh                 zsh               zsh                          zsh
uutils       rust-coreutils    uutils-coreutils    uutils-coreutils  uutils-coreutils             uutils-coreutils
vim          vim               vim-enhanced        vim               vim                          vim
ed           ed                ed                  ed                ed                           ed
less         less              less                less              less                         less
rg           ripgrep           ripgrep             ripgrep           ripgrep                      ripgrep
rsync        rsync             rsync               rsync             rsync                        rsync
inotifywait  inotify-tools     inotify-tools       inotify-tools     inotify-tools                inotify-tools
entr         entr              entr                entr              entr                         entr
strace       strace            strace              strace            strace                       strace
END
}

packages_of() { # WHAT...: the packages of all of them on one line
    for thing in "$@"; do package_of "$thing"; done | sort -u | tr '\n' ' '
}

find_manager() {
    manager=
    for candidate in apt-get dnf pacman apk zypper; do
        if has "$candidate"; then
            manager=$candidate
            return
        fi
    done
}

find_sudo() {
    sudo=
    [ "$(id -u)" != 0 ] || return 0
    for candidate in sudo doas; do
        if has "$candidate"; then
            sudo=$candidate
            return
        fi
    done
    return 1
}

install_command() { # the command before the packages' names
    case $manager in
        apt-get) echo "env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends" ;;
        dnf) echo "dnf install -y" ;;
        pacman) echo "pacman -S --needed --noconfirm" ;;
        apk) echo "apk add" ;;
        zypper) echo "zypper --non-interactive install" ;;
    esac
}

updated=
install_packages() { # PACKAGE...
    # shellcheck disable=SC2046,SC2086  # the command and $sudo are words
    {
        if [ "$manager" = apt-get ] && [ -z "$updated" ]; then
            say "apt-get update"
            quietly $sudo apt-get -o DPkg::Lock::Timeout=120 update || say "apt-get update failed; going on with what is known"
            updated=yes
        fi
        say "$manager installs $*"
        quietly $sudo $(install_command) "$@"
    }
}

install() { # WHAT...: install what carries these things, or say what to install and end
    [ -n "$manager" ] || die "missing: $*. No package manager that I know is here; install them and come again."
    packages=$(packages_of "$@")
    find_sudo || die "missing: $*. Only root can install them; as root: $manager install $packages"
    # shellcheck disable=SC2086
    install_packages $packages || die "$manager could not install them. As root: $manager install $packages"
}

# --- what is here ----------------------------------------------------------------------------------------------------

find_python() { # sets python and minor; false when none is new enough
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        # a version manager's stub can be on PATH with nothing behind it: try it
        minor=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        [ "${minor#python3.}" -lt "$oldest" ] || return 0
    done
    minor=python3
    return 1
}

need_python() {
    if find_python; then return; fi
    has python3 || install python3
    find_python || die "Python 3.$oldest or newer is needed and $(python3 --version 2>&1) is here. Put a python3.$oldest or newer on PATH."
}

has_compiler() {
    compiler=${CC:-$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}
    # shellcheck disable=SC2086  # CC may carry options
    printf '#include <stdio.h>\n' | $compiler -E - >/dev/null 2>&1
}
has_headers() {
    "$python" -c 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null
}
has_uutils() {
    has coreutils || has uu-cat || has uu_cat || cat --version 2>/dev/null | grep -q uutils
}

missing_to_build() {
    has fusermount3 || echo fusermount3
    has timeout || echo timeout
    has pkg-config || echo pkg-config
    { has pkg-config && pkg-config --exists fuse3; } || echo libfuse3
    has_compiler || echo compiler
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo venv
    has_headers || echo Python.h
}

need_system() { # what the package is built with and runs with
    missing=$(missing_to_build)
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086
    install $missing
    missing=$(missing_to_build)
    # shellcheck disable=SC2086
    [ -z "$missing" ] || die "still missing after that:" $missing "(for $("$python" -c 'import sys; print(sys.executable)'))"
}

missing_to_test() {
    for program in busybox dash zsh vim ed less rg rsync inotifywait entr strace; do
        has "$program" || echo "$program"
    done
    has_uutils || echo uutils
}

need_test_programs() { # what tests drive the mount with; without one of them its tests are skipped
    for thing in $(missing_to_test); do
        if ! grep -qx "$thing" "$not_found" 2>/dev/null; then
            # shellcheck disable=SC2046
            { [ -n "$manager" ] && find_sudo && install_packages $(package_of "$thing"); } || echo "$thing" >>"$not_found"
        fi
    done
    # shellcheck disable=SC2046
    set -- $(missing_to_test)
    [ $# = 0 ] || say "going on without $*, not to be had here (rm $(typed "$not_found") to try again)"
}

need_fuse_device() {
    if [ ! -e /dev/fuse ]; then
        say "/dev/fuse is not there. Load the module: modprobe fuse (as root)."
    elif ! (: <>/dev/fuse) 2>/dev/null; then
        say "/dev/fuse may not be opened by $(id -un): $(ls -l /dev/fuse)"
        say "It is open to all on most systems: chmod 666 /dev/fuse (as root), or join its group."
    else
        return 0
    fi
    die "In a container it has to be given at the start: --device /dev/fuse --cap-add SYS_ADMIN"
}

# --- .venv -----------------------------------------------------------------------------------------------------------

venv_state() { # two lines: where and for which Python it was made, and what pyproject.toml is now
    "$venv/bin/python" - 2>/dev/null <<'END'
import hashlib, sys
print("%s %d.%d" % (sys.prefix, *sys.version_info[:2]))
print(hashlib.sha256(open("pyproject.toml", "rb").read()).hexdigest())
END
}
venv_stamp() { printf '%s\n' "$(venv_state)" "$1"; } # EXTRAS: what the stamp says when they are installed
venv_has() { [ -f "$stamp" ] && [ "$(venv_stamp "$1")" = "$(cat "$stamp")" ]; }
venv_is_whole() { # a folder that was moved or a new Python make it useless
    [ -f "$stamp" ] && [ "$(venv_state | head -n 1)" = "$(head -n 1 "$stamp")" ]
}

make_venv() { # EXTRAS
    find_manager
    need_python
    need_system
    if ! venv_is_whole; then
        say "making .venv with $("$python" --version)"
        rm -rf "$venv"
        "$python" -m venv "$venv"
    fi
    say "installing the package into .venv (the first time this takes a minute or two)"
    rm -f "$stamp"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[$1]" >&2 ||
        die "pip could not install the package; what it said is above"
    venv_stamp "$1" >"$stamp.new"
    mv "$stamp.new" "$stamp"
}

set_up() { # EXTRAS...: the first are installed when none of them is there
    for extras in "$@"; do
        if venv_has "$extras" && has fusermount3; then return; fi
    done
    make_venv "$1"
}

set_up_to_run() { set_up local local,dev; }
set_up_to_develop() { set_up local,dev; }

# --- the verbs -------------------------------------------------------------------------------------------------------

foreground= # so that Ctrl-C reaches what runs under GNU's timeout; busybox's knows no such option and needs none
within() {  # SECONDS COMMAND...: a mount whose daemon died can hang
    [ -n "$foreground" ] || foreground=$(timeout --foreground 1 true 2>/dev/null && echo --foreground || echo --)
    timeout "$foreground" "$@"
}

is_up() { within 10 "$venv/bin/ollie-fuse" status >/dev/null 2>&1; }

start_daemon() {
    if is_up; then
        say "$mount_typed is mounted already"
        return
    fi
    log=${XDG_STATE_HOME:-$HOME/.local/state}/ollie/daemon.log
    (umask 077 && mkdir -p "${log%/*}" && touch "$log")
    before=$(wc -l <"$log")
    say "mounting $mount_typed; the daemon's log is $(typed "$log")"
    if has setsid; then
        setsid "$venv/bin/ollie-fuse" up </dev/null >>"$log" 2>&1 &
    else
        nohup "$venv/bin/ollie-fuse" up </dev/null >>"$log" 2>&1 &
    fi
    daemon=$!
    deadline=$(($(date +%s) + 20))
    until is_up; do
        if ! kill -0 "$daemon" 2>/dev/null || [ "$(date +%s)" -ge "$deadline" ]; then
            tail -n +$((before + 1)) "$log" | tail -n 20 >&2
            say "the daemon did not come up; the end of its log is above, and this is what the doctor says:"
            within 20 "$venv/bin/ollie-fuse" doctor >&2 || true
            exit 1
        fi
        sleep 0.2
    done
}

new_session() { # the first free of hello, hello-2, ...
    name=hello
    number=2
    while within 10 test -e "$mount/session/$name"; do
        name=hello-$number
        number=$((number + 1))
    done
}

type_command() { # SECONDS COMMAND: show it, run it
    printf '$ %s\n' "$2"
    within "$1" sh -c "$2"
}

ask() {
    new_session
    agent=$(typed "$mount/session/$name/agent/main")
    type_command 10 "mkdir $(typed "$mount/session/$name")"
    type_command 10 "echo \"What is the capital of France?\" > $agent/prompt"
    status=0
    type_command 300 "cat $agent/reply" || status=$?
    [ "$status" = 0 ] || type_command 10 "cat $agent/error" || true
    echo
    echo "Go on:  echo \"And of Italy?\" > $agent/prompt; cat $agent/reply"
    echo "Stop:   $(typed "$venv/bin/ollie-fuse") down"
    return "$status"
}

run() {
    mount=${OLLIE:-$HOME/ollie}
    mount_typed=$(typed "$mount")
    need_fuse_device
    set_up_to_run
    if [ ! -e "${XDG_CONFIG_HOME:-$HOME/.config}/ollie/backends.conf" ]; then
        "$venv/bin/ollie-fuse" fetch-model || die "the default model could not be fetched; what was said is above"
    fi
    start_daemon
    ask
}

run_tests() { # ARGS...
    exec "$venv/bin/python" -m pytest "$@"
}

set_up_to_test() {
    set_up_to_develop
    find_manager
    minor=python3
    need_test_programs
    "$venv/bin/ollie-fuse" fetch-model || say "going on without the local model: it could not be fetched"
}

lint() { # all three, even when the first finds something
    status=0
    "$venv/bin/ruff" format --check . || status=1
    "$venv/bin/ruff" check . || status=1
    "$venv/bin/mypy" || status=1
    return "$status"
}

verb=${1-}
[ $# = 0 ] || shift
case $verb in
    run) run ;;
    test)
        set_up_to_test
        run_tests "$@"
        ;;
    check)
        set_up_to_test
        lint
        run_tests
        ;;
    lint)
        set_up_to_develop
        lint
        ;;
    bench)
        set_up_to_develop
        exec "$venv/bin/python" -m bench "$@"
        ;;
    '' | help | -h | --help) help ;;
    *)
        help >&2
        exit 2
        ;;
esac
