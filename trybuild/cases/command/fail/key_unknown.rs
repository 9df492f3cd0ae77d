//~ "Did you mean `queue`?"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queu = "rebuild-cache")]
struct RebuildCache;

fn main() {}
