# Sourced by the scripts beside it: one toolchain for everything, and steps that tell how long they took.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
# Whatever is unavailable is a failure in CI, and shown as ignored elsewhere.
if [ "${CI:-}" = true ]; then export BUS_TEST_STRICT=1; fi

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

# step NAME COMMAND…: runs it, and says how long it took. The first that fails ends the script.
step() {
    local name=$1 began=$SECONDS status=0
    shift
    echo
    echo "── $name"
    "$@" || status=$?
    local took="$((SECONDS - began)) s"
    if [ $status -ne 0 ]; then
        echo "── $name: FAILED after $took (exit code $status)" >&2
        exit $status
    fi
    timings+=("$(printf '%8s  %s' "$took" "$name")")
    echo "── $name: $took"
}

print_timings() {
    echo
    printf '%s\n' "${timings[@]}"
}

use_toolchain
