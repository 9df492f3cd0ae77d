//! Making the tables, by whichever host comes first.

use std::cmp::Ordering;
use std::sync::Arc;

use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::config::Schema;
use super::error::{Failure, error};
use super::pool::{Pool, within};
use super::session::Session;
use super::statement::{self, in_schema};
use crate::error::{Error, ErrorKind, Result};

/// The version of the tables that this program works with. A host refuses newer ones when it starts; one that is at work
/// already goes on beside them.
const VERSION: i32 = 1;
/// Held while tables are made, so that of many hosts that start at once one makes them. "bus" and "make", in hex.
const MAKING: i64 = 0x6275_7300_6d61_6b65;

/// Each version's script, which brings the one before up to date. They make what is missing and leave what is there, so that
/// all of them are run whatever there is, and also mend.
const SCRIPTS: [&str; VERSION as usize] = [include_str!("sql/schema_1.sql")];

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// Tables of an older version.
    Older(i32),
    /// This store.
    Ready(Uuid),
}

/// Finds the store, which is made, or brought up to date, if need be and if `create` says so; answers its id.
pub(super) async fn open(pool: &Arc<Pool>, create: bool) -> Result<Uuid> {
    let schema = &pool.config().schema;
    let mut session = pool.borrow().await?;
    let found = within(pool.config().deadline, find(&mut session)).await;
    match session.end(found).map_err(|failure| failure.of_repeatable().with("schema", schema.as_str()))? {
        Found::Ready(id) => Ok(id),
        _ if create => make(pool).await,
        Found::Older(version) => Err(outdated(version).with("schema", schema.as_str())),
        Found::Nothing => Err(missing(schema)),
    }
}

/// Makes whatever is missing, and brings what is older up to date; answers the store's id.
pub(super) async fn make(pool: &Arc<Pool>) -> Result<Uuid> {
    let mut session = pool.borrow().await?;
    let schema = &pool.config().schema;
    // Another host may be at it, and takes its time for each statement.
    let made = within(pool.config().deadline * 3, make_in(&mut session, schema)).await;
    session.end(made).map_err(|failure| failure.of_repeatable().with("schema", schema.as_str()))
}

async fn find(session: &mut Session) -> Result<Found, Failure> {
    match look(session).await {
        Err(failure) if failure.is_missing_schema() => Ok(Found::Nothing),
        found => found,
    }
}

/// Fails where there are no tables.
async fn look(session: &mut Session) -> Result<Found, Failure> {
    let rows = session.query(&statement::STORE_FIND, &[]).await?;
    let Some(row) = rows.first() else { return Ok(Found::Nothing) };
    let (id, version): (Uuid, i32) = (row.try_get(0)?, row.try_get(1)?);
    match version.cmp(&VERSION) {
        Ordering::Equal => Ok(Found::Ready(id)),
        Ordering::Less => Ok(Found::Older(version)),
        Ordering::Greater => Err(error(
            ErrorKind::Corrupt,
            "the tables were made by a newer version of bus: upgrade this program, or use another schema",
        )
        .with("their version", version)
        .with("ours", VERSION)
        .into()),
    }
}

async fn make_in(session: &mut Session, schema: &Schema) -> Result<Uuid, Failure> {
    session.begin().await?;
    let made = make_locked(session, schema).await;
    session.end_transaction(made).await
}

async fn make_locked(session: &mut Session, schema: &Schema) -> Result<Uuid, Failure> {
    session.batch(&format!("SELECT pg_advisory_xact_lock({MAKING})")).await?;
    // Only now: another host may have made them, and a newer one changed them, while this one waited. Asked for before they
    // are looked into, since a statement that fails would end the transaction.
    let exists = session.query(&statement::STORE_EXISTS, &[]).await?;
    let exists = exists.first().map(|row| row.try_get::<_, bool>(0)).transpose()?.unwrap_or(false);
    let before = if exists { look(session).await? } else { Found::Nothing };
    if let Err(failure) = session.batch(&tables(schema)).await {
        return Err(match before {
            Found::Older(version) if failure.refusal() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                outdated(version).into()
            }
            _ => failure,
        });
    }
    match look(session).await? {
        Found::Ready(id) => Ok(id),
        _ => Err(error(ErrorKind::Internal, "the tables were made and cannot be found").into()),
    }
}

/// All that makes the tables as they are to be.
fn tables(schema: &Schema) -> String {
    // Not even `IF NOT EXISTS` is allowed to a user who may only use the schema.
    let mut script = in_schema(include_str!("sql/schema_make.sql"), schema);
    for part in SCRIPTS {
        script.push_str(&in_schema(part, schema));
    }
    script.push_str(&in_version(include_str!("sql/store_version.sql"), schema));
    script
}

fn in_version(text: &str, schema: &Schema) -> String {
    in_schema(text, schema).replace("{version}", &VERSION.to_string())
}

/// The script that makes the tables, or brings those of an older version up to date, for an administrator to run when the
/// hosts' user may not: in one transaction, as `psql --single-transaction --set ON_ERROR_STOP=1` does. It may be run again,
/// and fails where the tables are of a newer version.
///
/// ```
/// # use bus::backend::postgres::schema_script;
/// let script = schema_script("bus")?;
/// assert!(script.contains("CREATE SCHEMA bus;"));
/// # Ok::<(), bus::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Config`] if the name is no plain identifier.
pub fn schema_script(schema: &str) -> Result<String> {
    let schema = Schema::new(schema)?;
    let mut script = format!("SELECT pg_advisory_xact_lock({MAKING});\n");
    script.push_str(&in_version(include_str!("sql/store_guard.sql"), &schema));
    script.push_str(&tables(&schema));
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

fn outdated(version: i32) -> Error {
    error(
        ErrorKind::Config,
        "the tables are of an older version of bus: a host of this one brings them up to date if its user may; else run schema_script(), and then grants_script(), as their owner",
    )
    .with("their version", version)
    .with("ours", VERSION)
}
