# Sourced by the scripts beside it: keen's private environment in .venv, made once, kept current.
# usage: prepare EXTRA   (EXTRA is "" or "dev"; "dev" adds what the tests need)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
environment="$root/.venv"

note() { printf '%s\n' "keen: $*" >&2; }

find_python() {
    local name
    for name in "${KEEN_PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python; do
        [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 || continue
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    note "needs Python 3.11 or newer on the PATH (or KEEN_PYTHON=/path/to/python)."
    return 1
}

stamp() {
    { echo "$1 $root"; cat "$root/pyproject.toml"; } | cksum
}

make_environment() {
    local python
    python=$(find_python) || return 1
    if command -v uv >/dev/null 2>&1; then
        uv venv --quiet --allow-existing --python "$python" "$environment"
    else
        # Without ensurepip (Debian's python3 without python3-venv) the outer pip installs into it.
        "$python" -m venv "$environment" >/dev/null 2>&1 ||
            "$python" -m venv --clear --without-pip "$environment"
    fi
}

install() {
    local target="$root${1:+[$1]}"
    if command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --python "$environment/bin/python" --editable "$target"
    elif [ -x "$environment/bin/pip" ]; then
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
            --editable "$target"
    else
        "$(find_python)" -m pip --python "$environment/bin/python" install --quiet \
            --disable-pip-version-check --editable "$target"
    fi
}

is_current() {
    local extra
    # A python that was removed leaves a link that leads nowhere.
    [ -x "$environment/bin/keen" ] && [ -x "$environment/bin/python" ] || return 1
    for extra in "$@"; do
        [ -f "$environment/.keen-$extra" ] || continue
        [ "$(cat "$environment/.keen-$extra")" = "$(stamp "$extra")" ] && return 0
    done
    return 1
}

leave_old_place() {
    # The programs in an environment name the place it was made in: moved, it has to be made anew.
    [ -f "$environment/.keen-root" ] || return 0
    [ "$(cat "$environment/.keen-root")" = "$root" ] || rm -rf "$environment"
}

prepare() {
    local extra="${1:-}" name="${1:-run}"
    # The environment for the tests can run keen too, not the other way round.
    if [ "$name" = run ]; then is_current run dev && return 0; else is_current dev && return 0; fi
    note "setting up .venv${extra:+ with what the tests need}, about a minute the first time ..."
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$root/.venv.lock" && flock 9
    fi
    if ! is_current "$name"; then
        leave_old_place
        [ -x "$environment/bin/python" ] && "$environment/bin/python" -c '' 2>/dev/null ||
            make_environment || return 1
        install "$extra" || { note "the packages could not be installed (see above)."; return 1; }
        printf '%s\n' "$root" >"$environment/.keen-root"
        stamp "$name" >"$environment/.keen-$name"
    fi
    { exec 9>&-; } 2>/dev/null
    note "ready."
}
