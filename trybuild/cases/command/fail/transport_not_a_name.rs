//~ ""my transport" cannot name a transport: it has a character other than a-z, 0-9 and dash"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache", transport = "my transport")]
struct RebuildCache;

fn main() {}
