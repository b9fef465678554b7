# Shortcuts: every recipe is one line that can also be typed without just.

# Lists the recipes
default:
    @just --list

# Runs an API server, the controllers and a simulated cloud in one process
up *ARGS:
    cargo run --release -- up {{ARGS}}

# Runs the tests that need only the Rust toolchain
test *ARGS:
    cargo test {{ARGS}}

# Runs the checks of CI
check:
    .ci/run

fmt:
    cargo fmt --all

clippy:
    cargo clippy --workspace --all-targets --all-features -- -D warnings

docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Builds the book into target/book
book:
    cargo xtask book

deny:
    cargo deny check bans licenses sources

# Checks the rules that the compiler cannot check
tidy:
    cargo xtask tidy

# Finds or builds the programs of a real cluster, and prints their folder
envtest:
    cargo xtask envtest

# Runs the tests that need real clusters
real *ARGS:
    cargo xtask real {{ARGS}}

# Writes the CRDs and the Cluster API providers, for example into target/components
components *ARGS:
    cargo xtask components {{ARGS}}

# Packages every crate; CONTRIBUTING.md explains the flags
package *ARGS:
    cargo package --workspace --no-verify --allow-dirty --exclude-lockfile {{ARGS}}

# Measures the controllers (scale, ccm) or the embedded API server (apiserver)
bench *ARGS:
    cargo xtask bench {{ARGS}}

# Scales, rolls out or drains on real clusters while it kills the controllers
kill *ARGS:
    cargo xtask kill {{ARGS}}

# Compares the embedded API server with recorded answers
conformance *ARGS:
    cargo xtask conformance {{ARGS}}

# Runs the tests of the simulator
sim *ARGS:
    cargo test --package machinist-sim --test it {{ARGS}}

# Generates the type tables of the embedded API server
types *ARGS:
    cargo xtask types {{ARGS}}
