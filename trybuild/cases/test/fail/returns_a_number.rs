//~ "a test returns `()` or `Result<(), E>`"
#[bus::test]
async fn orders_are_placed() -> u32 {
    7
}

fn main() {}
