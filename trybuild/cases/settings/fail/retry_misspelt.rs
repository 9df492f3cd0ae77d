//~ "Did you mean `fixed`?"
use bus::prelude::*;

#[derive(Settings)]
#[settings(retry(fixd = "5s"))]
struct Bulk;

fn main() {}
