//~ "no external crate `biling`"
bus::handlers!(bus_trybuild, biling);

fn main() {}
