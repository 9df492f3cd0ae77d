//! Making the tables, by whichever host comes first.

use std::sync::Arc;

use uuid::Uuid;

use super::config::Schema;
use super::error::{Failure, error};
use super::pool::{Pool, within};
use super::session::Session;
use super::statement::{self, in_schema};
use crate::error::{Error, ErrorKind, Result};

/// The version of the tables that this program works with.
const VERSION: i32 = 1;
/// Held while tables are made, so that of many hosts that start at once one makes them. "bus" and "make", in hex.
const MAKING: i64 = 0x6275_7300_6d61_6b65;

/// Each version's script. They make what is missing and leave what is there, so that they also mend.
const SCRIPTS: [&str; 1] = [include_str!("sql/schema_1.sql")];

/// Finds the store, which is made if missing and if `create` says so; answers its id.
pub(super) async fn open(pool: &Arc<Pool>, create: bool) -> Result<Uuid> {
    let mut session = pool.borrow().await?;
    let found = within(pool.config().deadline, find(&mut session)).await;
    match session.end(found) {
        Ok(Some(id)) => Ok(id),
        Ok(None) if create => make(pool).await,
        Ok(None) => Err(missing(&pool.config().schema)),
        Err(failure) => Err(failure.of_repeatable()),
    }
}

/// Makes whatever is missing; answers the store's id.
pub(super) async fn make(pool: &Arc<Pool>) -> Result<Uuid> {
    let mut session = pool.borrow().await?;
    let schema = &pool.config().schema;
    // Another host may be at it, and takes its time for each statement.
    let made = within(pool.config().deadline * 3, make_in(&mut session, schema)).await;
    session.end(made).map_err(|failure| failure.of_repeatable().with("schema", schema.as_str()))
}

async fn find(session: &mut Session) -> Result<Option<Uuid>, Failure> {
    let rows = match session.query(&statement::STORE_FIND, &[]).await {
        Ok(rows) => rows,
        Err(failure) if failure.is_missing_schema() => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let Some(row) = rows.first() else { return Ok(None) };
    let (id, version): (Uuid, i32) = (row.try_get(0)?, row.try_get(1)?);
    match version {
        VERSION => Ok(Some(id)),
        newer if newer > VERSION => Err(error(
            ErrorKind::Corrupt,
            "the tables were made by a newer version of bus: upgrade this program, or use another schema",
        )
        .with("their version", newer)
        .with("ours", VERSION)
        .into()),
        _ => Ok(None),
    }
}

async fn make_in(session: &mut Session, schema: &Schema) -> Result<Uuid, Failure> {
    session.begin().await?;
    let made = make_locked(session, schema).await;
    session.end_transaction(made).await
}

async fn make_locked(session: &mut Session, schema: &Schema) -> Result<Uuid, Failure> {
    session.batch(&format!("SELECT pg_advisory_xact_lock({MAKING})")).await?;
    // Not even `IF NOT EXISTS` is allowed to a user who may only use the schema.
    session
        .batch(&in_schema(
            "DO $$ BEGIN
                 IF NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = '{schema}') THEN
                     CREATE SCHEMA {schema};
                 END IF;
             END $$",
            schema,
        ))
        .await?;
    for script in SCRIPTS {
        session.batch(&in_schema(script, schema)).await?;
    }
    session
        .batch(&in_schema(
            &format!(
                "INSERT INTO {{schema}}.store (version) VALUES ({VERSION}) ON CONFLICT (one) DO NOTHING"
            ),
            schema,
        ))
        .await?;
    match find(session).await? {
        Some(id) => Ok(id),
        None => Err(error(ErrorKind::Internal, "the tables were made and cannot be found").into()),
    }
}

/// The script that makes the tables, for an administrator to run when the hosts' user may not.
///
/// ```
/// # use bus::backend::postgres::schema_script;
/// let script = schema_script("bus")?;
/// assert!(script.starts_with("CREATE SCHEMA IF NOT EXISTS bus;"));
/// # Ok::<(), bus::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Config`] if the name is no plain identifier.
pub fn schema_script(schema: &str) -> Result<String> {
    let schema = Schema::new(schema)?;
    let mut script = in_schema("CREATE SCHEMA IF NOT EXISTS {schema};\n", &schema);
    for part in SCRIPTS {
        script.push_str(&in_schema(part, &schema));
    }
    script.push_str(&in_schema(
        &format!("INSERT INTO {{schema}}.store (version) VALUES ({VERSION}) ON CONFLICT (one) DO NOTHING;\n"),
        &schema,
    ));
    Ok(script)
}

/// The grants that a host's user needs, and no more, for the owner of the tables to run.
///
/// ```
/// # use bus::backend::postgres::grants_script;
/// assert!(grants_script("bus", "shop")?.contains("TO shop;"));
/// # Ok::<(), bus::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Config`] if a name is no plain identifier.
pub fn grants_script(schema: &str, role: &str) -> Result<String> {
    let (schema, role) = (Schema::new(schema)?, Schema::new(role)?);
    Ok(in_schema(include_str!("sql/grants.sql"), &schema).replace("{role}", role.as_str()))
}

fn missing(schema: &Schema) -> Error {
    error(ErrorKind::NotFound, "there is no store in this schema").with("schema", schema.as_str())
}
