use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache", transport = "billing", crate = ::bus)]
enum RebuildCache {
    All,
    One(String),
}

fn main() {
    assert_eq!(<RebuildCache as Command>::QUEUE, "rebuild-cache");
    assert_eq!(<RebuildCache as Message>::TRANSPORT, "billing");
    assert_eq!(<RebuildCache as Message>::TYPE, "RebuildCache");
    let _ = (RebuildCache::All, RebuildCache::One(String::new()));
}
