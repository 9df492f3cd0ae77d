use bus::prelude::*;

struct Catalog;
struct Pool;
struct Work;

#[provide]
fn pool(_bus: Bus) -> Pool {
    Pool
}

#[provide(crate = ::bus)]
async fn catalog(_pool: Dep<Pool>) -> Result<Catalog> {
    Ok(Catalog)
}

#[provide]
async fn number(_pool: Dep<Pool>, _catalog: Dep<Catalog>) -> anyhow::Result<u64> {
    anyhow::bail!("none")
}

#[provide(scoped)]
fn work(_pool: Dep<Pool>, _number: Dep<u64>, _id: MessageId, _headers: Headers) -> std::io::Result<Work> {
    Ok(Work)
}

fn main() {}
