# A convenience: every recipe is one line that can be typed without just.

# Lists the recipes
default:
    @just --list

# The main job: an API server, the controllers and a simulated cloud, in one process
up *ARGS:
    cargo run --release -- up {{ARGS}}

# The tests that need nothing but the Rust toolchain
test *ARGS:
    cargo test {{ARGS}}

# What CI runs
check:
    .ci/run

fmt:
    cargo fmt --all

clippy:
    cargo clippy --workspace --all-targets --all-features -- -D warnings

docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

deny:
    cargo deny check bans licenses sources

# The rules that the compiler cannot check
tidy:
    cargo xtask tidy

# Real clusters: finds or builds the programs, and prints their folder
envtest:
    cargo xtask envtest

# The tests that need real clusters
real *ARGS:
    cargo xtask real {{ARGS}}

# Writes the CRDs as the program prints them
crds:
    cargo xtask crds
