use bus::prelude::*;

struct Connection;
struct Transaction;
struct Audit;

mod ends {
    use super::*;

    pub(crate) async fn close(_connection: Scoped<Connection>) {}

    pub(crate) async fn roll_back(transaction: Scoped<Transaction>) -> Result<(), std::io::Error> {
        let _ = transaction;
        Ok(())
    }

    pub(crate) async fn let_go<T>(_value: Scoped<T>) {}
}

#[provide(scoped, dispose = ends::close)]
async fn connection() -> Connection {
    Connection
}

#[provide(scoped, dispose = ends::roll_back)]
async fn transaction(_connection: Scoped<Connection>) -> Result<Transaction> {
    Ok(Transaction)
}

#[provide(scoped, dispose = ends::let_go)]
fn audit(_transaction: Scoped<Transaction>, _id: MessageId) -> Audit {
    Audit
}

fn main() {}
