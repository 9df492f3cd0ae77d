//! The tool as a program of its own, for stores whose handlers are elsewhere: see [`bus::cli`].

#![forbid(unsafe_code)]

#[tokio::main(flavor = "current_thread")]
async fn main() -> bus::Result<()> {
    bus::cli().await
}
