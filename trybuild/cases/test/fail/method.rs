//~ "a test is a free function: move it out of the `impl`"
struct Orders;

impl Orders {
    #[bus::test]
    async fn are_placed(&self) {}
}

fn main() {}
