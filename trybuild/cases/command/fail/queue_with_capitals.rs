//~ ""RebuildCache" cannot name a queue: it has a character other than a-z, 0-9 and dash; write 1 to 63 of a-z, 0-9 and single inner dashes"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "RebuildCache")]
struct RebuildCache;

fn main() {}
