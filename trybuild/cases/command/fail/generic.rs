//~ "a message with generics cannot be a command: each queue carries one type"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache<T> {
    inner: T,
}

fn main() {}
