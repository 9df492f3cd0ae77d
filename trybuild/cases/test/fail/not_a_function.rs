//~ "`#[bus::test]` stands on a free function, and this is none"
#[bus::test]
struct OrdersArePlaced;

fn main() {}
