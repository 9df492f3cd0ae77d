//! A program of a user's, as far as the tool is mounted in it.

#![forbid(unsafe_code)]

#[tokio::main(flavor = "current_thread")]
async fn main() -> bus::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("bus") => bus::cli().await,
        _ => Ok(()),
    }
}
