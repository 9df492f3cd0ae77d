//! The shop of the library beside this: see there.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    orders::run().await
}
