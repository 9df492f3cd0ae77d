//! The shop of the example `orders`, as its own binary runs it.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    orders::run().await
}
