//~ "a test cannot be generic"
#[bus::test]
async fn orders_are_placed<T: Send>() {}

fn main() {}
