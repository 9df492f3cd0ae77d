//! The user's own transactions, by the driver that this backend uses.

use tokio_postgres::types::ToSql;

use super::error::Failure;
use crate::contract::{BoxFuture, SqlExecutor, SqlValue};
use crate::error::Result;

/// A transaction on the message store's own database. `COMMIT` and `ROLLBACK` end it, whatever the value does when it
/// is dropped.
impl SqlExecutor for tokio_postgres::Transaction<'_> {
    fn execute<'a>(&'a mut self, sql: &'a str, params: &'a [SqlValue]) -> BoxFuture<'a, Result<u64>> {
        Box::pin(execute(self.client(), sql, params))
    }
}

/// A connection of the user's, on which a transaction has been begun.
impl SqlExecutor for tokio_postgres::Client {
    fn execute<'a>(&'a mut self, sql: &'a str, params: &'a [SqlValue]) -> BoxFuture<'a, Result<u64>> {
        Box::pin(execute(self, sql, params))
    }
}

async fn execute(client: &tokio_postgres::Client, sql: &str, params: &[SqlValue]) -> Result<u64> {
    let ends = matches!(sql, "COMMIT" | "ROLLBACK");
    let done = if ends {
        client.batch_execute(sql).await.map(|()| 0)
    } else {
        let params: Vec<&(dyn ToSql + Sync)> = params
            .iter()
            .map(|value| -> &(dyn ToSql + Sync) {
                match value {
                    SqlValue::Integer(number) => number,
                    SqlValue::Text(text) => text,
                    SqlValue::Blob(bytes) => bytes,
                }
            })
            .collect();
        client.execute(sql, &params).await
    };
    let failed = if sql == "COMMIT" { Failure::of_once } else { Failure::of_repeatable };
    done.map_err(|e| failed(Failure::of(e)))
}
