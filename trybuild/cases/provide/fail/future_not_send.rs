//~ "required by a bound in `Provider::for_host_whose_future_is_send`"
use bus::prelude::*;

struct Catalog;

#[provide]
async fn catalog() -> Catalog {
    let tenant = std::rc::Rc::new(1);
    std::future::ready(()).await;
    drop(tenant);
    Catalog
}

fn main() {}
