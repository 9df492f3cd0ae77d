//~ "a test in virtual time is an `async fn`: write `async fn orders_are_placed`"
#[bus::test]
fn orders_are_placed() {}

fn main() {}
