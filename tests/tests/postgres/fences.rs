//! The fence row in the user's own transactions.

use std::sync::Arc;
use std::time::Duration;

use bus::contract::{
    BoxFuture, Fence, FenceClaim, FenceGuard, Fencing, LockId, Raised, SqlExecutor, SqlValue,
};
use bus::message::Delivery;
use bus::pipeline::Next;
use bus::{Endpoint, ErrorKind, Host, Term};
use bus_tests::postgres::{Database, available};
use bus_tests::wait::in_time;
use tokio_postgres::types::ToSql;

use crate::open;
use crate::stream::{Diary, SingleWork, Work};

fn claim(endpoint: &Arc<Endpoint>, fence: u64) -> FenceClaim {
    let lock = LockId::from("queue/fenced");
    FenceClaim::new(Arc::clone(endpoint), "test:", &lock, Fence::new(fence), Duration::from_secs(60))
}

/// A plain look at the row would let both through: the next fence is raised after it, and before the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_is_raised_only_after_the_transactions_that_have_checked_it() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = open(&database.url()).await;
    let endpoint = Arc::new(Endpoint::queue("fenced").unwrap());
    transport.prepare(std::slice::from_ref(&*endpoint)).await.unwrap();
    let fencing: Arc<dyn Fencing> = transport.capabilities().fencing.unwrap();
    assert_eq!(fencing.raise(claim(&endpoint, 1)).await.unwrap(), Raised::Raised);

    let mut client = database.client().await;
    let guard = FenceGuard { endpoint: Arc::clone(&endpoint), fence: Fence::new(1) };
    let mut transaction = client.transaction().await.unwrap();
    fencing.check_in(&mut transaction, &guard).await.unwrap();
    let raising = fencing.raise(claim(&endpoint, 2));
    tokio::pin!(raising);
    let early = tokio::time::timeout(Duration::from_millis(500), &mut raising).await;
    assert!(early.is_err(), "the fence was raised although a transaction had checked it");
    transaction.commit().await.unwrap();
    assert_eq!(raising.await.unwrap(), Raised::Raised);

    let mut transaction = client.transaction().await.unwrap();
    let refused = fencing.check_in(&mut transaction, &guard).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TermLost);
    transaction.rollback().await.unwrap();
    transport.close().await;
}

// ---- A driver other than ours: as documented ---------------------------------------------------------------------

trait Driver: Send {
    fn run<'a>(
        &'a mut self,
        sql: &'a str,
        params: Vec<Value>,
    ) -> BoxFuture<'a, Result<u64, tokio_postgres::Error>>;
}

enum Value {
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

struct MyTransaction<D>(D);

impl<D: Driver> SqlExecutor for MyTransaction<D> {
    fn execute<'a>(&'a mut self, sql: &'a str, params: &'a [SqlValue]) -> BoxFuture<'a, bus::Result<u64>> {
        let params = params.iter().map(|value| match value {
            SqlValue::Integer(number) => Ok(Value::Integer(*number)),
            SqlValue::Text(text) => Ok(Value::Text(text.clone())),
            SqlValue::Blob(bytes) => Ok(Value::Blob(bytes.clone())),
            _ => Err(bus::Error::new(ErrorKind::Unsupported, "a value of a new type")),
        });
        let params = params.collect::<bus::Result<Vec<_>>>();
        Box::pin(async move {
            let done = self.0.run(sql, params?).await;
            done.map_err(|e| bus::Error::new(ErrorKind::Unavailable, "the statement failed").caused_by(e))
        })
    }
}

impl Driver for &tokio_postgres::Client {
    fn run<'a>(
        &'a mut self,
        sql: &'a str,
        params: Vec<Value>,
    ) -> BoxFuture<'a, Result<u64, tokio_postgres::Error>> {
        Box::pin(async move {
            let params: Vec<&(dyn ToSql + Sync)> = params
                .iter()
                .map(|value| match value {
                    Value::Integer(number) => number as &(dyn ToSql + Sync),
                    Value::Text(text) => text,
                    Value::Blob(bytes) => bytes,
                })
                .collect();
            self.execute(sql, &params).await
        })
    }
}

/// §5.8: a transaction of the user's own is committed while the term is in force in the store, and only then; whatever keeps
/// it from being committed leaves none open. By the driver's own transaction, by a connection on which one was begun, and by
/// the documented adapter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_ones_own_is_committed_under_the_term_or_not_at_all() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let (tell, mut terms) = tokio::sync::mpsc::unbounded_channel();
    let shows_term = move |delivery: Delivery, next: Next| {
        // Whoever asks for it may have gone.
        let _ = tell.send(delivery.scope.get::<Term>());
        next.run(delivery)
    };
    let host =
        Host::builder().transport("default", &database.url()).locks_at("default").only(["single-work"]);
    let host = host
        .middleware(shows_term)
        .provide(Arc::new(Diary::default()))
        .build()
        .unwrap()
        .start()
        .await
        .unwrap();
    host.bus().send(SingleWork(1)).await.unwrap();
    let term = in_time("a run", terms.recv()).await.flatten().expect("a singleton has a term");

    let mut own = database.client().await;
    let look = database.client().await;
    let lines = async |of: &str| -> i64 {
        look.query_one(&format!("SELECT count(*) FROM {of}"), &[]).await.unwrap().get(0)
    };
    look.batch_execute("CREATE TABLE report (id bigint)").await.unwrap();
    let write = |id: i64| format!("INSERT INTO report VALUES ({id})");

    let mut transaction = own.transaction().await.unwrap();
    transaction.batch_execute(&write(1)).await.unwrap();
    host.bus().send_in(&mut transaction, Work(1)).await.unwrap();
    term.commit(&mut transaction).await.unwrap();
    drop(transaction);
    assert_eq!((lines("report").await, lines("bus.message").await), (1, 1));

    own.batch_execute(&format!("BEGIN; {}", write(2))).await.unwrap();
    term.commit(&mut own).await.unwrap();
    assert_eq!(lines("report").await, 2);

    own.batch_execute(&format!("BEGIN; {}", write(3))).await.unwrap();
    let mut adapted = MyTransaction(&own);
    host.bus().send_in(&mut adapted, Work(2)).await.unwrap();
    term.commit(&mut adapted).await.unwrap();
    assert_eq!((lines("report").await, lines("bus.message").await), (3, 2));

    // Another term is in force.
    look.batch_execute("UPDATE bus.fence SET fence = fence + 1").await.unwrap();
    let refused = async |own: &mut tokio_postgres::Client, adapted: bool| {
        own.batch_execute(&format!("BEGIN; {}", write(4))).await.unwrap();
        let answer = match adapted {
            true => term.commit(&mut MyTransaction(&*own)).await,
            false => term.commit(own).await,
        };
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::TermLost);
        // Fails within a transaction.
        own.batch_execute("CREATE DATABASE never WITH TEMPLATE nothing").await.unwrap_err().code().cloned()
    };
    for adapted in [false, true] {
        let open = refused(&mut own, adapted).await;
        let within = tokio_postgres::error::SqlState::ACTIVE_SQL_TRANSACTION;
        assert_ne!(open, Some(within), "the transaction is left open");
        assert_eq!(lines("report").await, 3);
    }
    host.stop().await.unwrap();
}
