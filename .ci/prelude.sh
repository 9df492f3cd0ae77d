# Sourced by the scripts beside it: one toolchain for everything, and steps that tell how long they took.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
# Whatever is unavailable is a failure in CI, and shown as ignored elsewhere.
# What makes the next build faster is of no use to a checkout that builds once, and takes gigabytes.
if [ "${CI:-}" = true ]; then export BUS_TEST_STRICT=1 CARGO_INCREMENTAL=0; fi

# The expected compile errors belong to one compiler, so that everything uses that one.
toolchain=1.95.0

use_toolchain() {
    if ! command -v rustup >/dev/null; then
        case "$(rustc --version 2>/dev/null)" in
            "rustc $toolchain "*) return ;;
            *) echo "Rust $toolchain is needed: install rustup (https://rustup.rs), or that version itself" >&2; exit 1 ;;
        esac
    fi
    local name
    name="$(rustup toolchain list | grep -o "^$toolchain-[^ ]*" | head -n 1 || true)"
    if [ -z "$name" ]; then
        echo "installing Rust $toolchain"
        rustup toolchain install "$toolchain" --profile minimal --component rustfmt --component clippy || {
            echo "Rust $toolchain is needed and cannot be installed: rustup toolchain install $toolchain" >&2
            exit 1
        }
        name="$(rustup toolchain list | grep -o "^$toolchain-[^ ]*" | head -n 1)"
    fi
    export RUSTUP_TOOLCHAIN="$name"
}

timings=()
running=

# step NAME COMMAND…: runs it, and says how long it took. The first that fails ends the script. The command is not
# called in a condition (`||`, `if`), where bash would forget `set -e` inside it.
step() {
    running=$1
    local began=$SECONDS
    shift
    echo
    echo "── $running"
    "$@"
    local took="$((SECONDS - began)) s"
    timings+=("$(printf '%8s  %s' "$took" "$running")")
    echo "── $running: $took"
    running=
}

trap 'status=$?; [ -z "$running" ] || echo "── $running: FAILED (exit code $status)" >&2' EXIT

print_timings() {
    echo
    printf '%s\n' "${timings[@]}"
}

use_toolchain
