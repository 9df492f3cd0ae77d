//! The server that all contenders share.

use anyhow::{Result, ensure};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgPool, PgPoolOptions};

pub struct Server {
    url: String,
    pool: PgPool,
}

impl Server {
    /// Connects, and refuses a server that acknowledges what is not on its disk.
    pub async fn new(url: &str) -> Result<Server> {
        let url = url.trim_end_matches('/').to_owned();
        let pool = pool(&format!("{url}/postgres"), 1).await?;
        let fsync: String = sqlx::query_scalar("SHOW fsync").fetch_one(&pool).await?;
        ensure!(fsync == "on", "the server has fsync={fsync}: nothing that it acknowledges is on its disk");
        Ok(Server { url, pool })
    }

    /// An empty database for a contender's turn; answers its URL.
    pub async fn create(&self, contender: &str) -> Result<String> {
        self.remove(contender).await?;
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE \"{contender}\""))).execute(&self.pool).await?;
        Ok(format!("{}/{contender}", self.url))
    }

    pub async fn remove(&self, contender: &str) -> Result<()> {
        let drop = format!("DROP DATABASE IF EXISTS \"{contender}\" WITH (FORCE)");
        sqlx::query(AssertSqlSafe(drop)).execute(&self.pool).await?;
        Ok(())
    }
}

pub async fn pool(url: &str, connections: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(connections).connect(url).await?)
}
