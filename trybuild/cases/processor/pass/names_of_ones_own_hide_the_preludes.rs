// A shop delivers, extracts, judges and has a next one; and it may write middleware all the same.
use bus::prelude::*;

#[derive(Debug, Serialize, Deserialize, Command)]
#[command(queue = "deliver")]
struct Delivery {
    to: String,
    next: Option<Next>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Next(u32);

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(topic = "extracted")]
struct Extract(Verdict);

#[derive(Debug, Serialize, Deserialize)]
enum Verdict {
    Good,
    Bad,
}

#[processor]
async fn deliver(Delivery { to, next }: Delivery, bus: Bus) -> Result<()> {
    let verdict = if to.is_empty() || next.is_none() { Verdict::Bad } else { Verdict::Good };
    bus.publish(Extract(verdict)).await?;
    Ok(())
}

#[processor(subscription = "judge")]
async fn judge(Extract(verdict): Extract) {
    println!("{verdict:?}");
}

mod middleware {
    use bus::prelude::*;

    pub async fn pass_on(delivery: Delivery, next: Next) -> Verdict {
        next.run(delivery).await
    }
}

fn main() {
    let _ = bus::Host::builder().middleware(middleware::pass_on);
}
