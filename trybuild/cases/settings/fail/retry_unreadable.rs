//~ ""soon" is no duration: it does not begin with a digit"
use bus::prelude::*;

#[derive(Settings)]
#[settings(retry(fixed = "soon"))]
struct Bulk;

fn main() {}
