bus::handlers!(bus_trybuild, serde = "no-such-package");

fn main() {}
