//! A schema in Postgres, read by tokio-postgres.

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::NoTls;

use super::Store;
use crate::stores::parameters;

/// Where the tables are, unless the URL says otherwise.
const SCHEMA: &str = "bus";

/// A reader of the tables.
#[derive(Debug)]
pub(super) struct Postgres {
    runtime: Runtime,
    address: String,
    schema: String,
}

impl Postgres {
    /// The schema that the URL names. Its other parameters are the bus's own.
    pub(super) fn at(url: &str) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let address = url.split('?').next().unwrap_or(url).to_owned();
        let schema = parameters(url).find_map(|(name, value)| (name == "schema").then_some(value));
        Ok(Self { runtime, address, schema: schema.unwrap_or(SCHEMA).to_owned() })
    }

    fn ids(&self, tables: &[&str]) -> Result<Vec<String>> {
        let quoted = self.schema.replace('"', "\"\"");
        let selects = tables.iter().map(|table| format!("SELECT uuid::text FROM \"{quoted}\".{table}"));
        let query = selects.collect::<Vec<_>>().join(" UNION ALL ");
        self.runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.address, NoTls).await.context("cannot connect to Postgres")?;
            let connection = tokio::spawn(connection);
            let rows = client.query(&query, &[]).await?;
            drop(client);
            connection.await??;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }
}

impl Store for Postgres {
    /// Messages that wait, are delayed, or are being worked on.
    fn left(&self) -> Result<Vec<String>> {
        self.ids(&["message", "delayed"])
    }

    fn dead(&self) -> Result<Vec<String>> {
        self.ids(&["dead"])
    }
}
