//! A program that only sends: a command to the default transport and one to another, and ends.

use bus_tests::task::{Invoice, Plain, Task};

#[tokio::main]
async fn main() -> bus::Result<()> {
    let producer = bus::connect().await?;
    producer.bus().send(Plain(Task::new(1))).await?;
    producer.bus().send(Invoice(2)).await?;
    producer.close().await;
    Ok(())
}
