//! What a host and a message carry along: values by type, and the run's cancellation.
//!
//! A scope is how a singleton's `Term`, a provided value or anything else of a later module reaches a handler's
//! argument without the modules in between knowing its type.

use std::any::{Any, TypeId, type_name};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind, Result};

pub(crate) type Value = Arc<dyn Any + Send + Sync>;
pub(crate) type ByType<V> = HashMap<TypeId, V, BuildHasherDefault<TypeHasher>>;

/// A `TypeId` is a hash already. Looked up once per argument and message, so the usual hash would be felt.
#[derive(Default)]
pub(crate) struct TypeHasher(u64);

impl Hasher for TypeHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
    // `TypeId` calls `write_u64`; should that change, this keeps it correct.
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Values by their type, at most one each.
#[derive(Default, Clone)]
pub struct Values(ByType<(Value, &'static str)>);

impl Values {
    /// Puts a value in, instead of one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: Arc<T>) {
        self.0.insert(TypeId::of::<T>(), (value, type_name::<T>()));
    }

    /// Puts a value in whose type is not known here any more.
    pub(crate) fn insert_erased(&mut self, id: TypeId, value: Value, type_name: &'static str) {
        self.0.insert(id, (value, type_name));
    }

    /// The value of type `T`.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let (value, _) = self.0.get(&TypeId::of::<T>())?;
        Arc::clone(value).downcast().ok()
    }

    /// Whether there is a value of that type.
    pub fn contains(&self, id: TypeId) -> bool {
        self.0.contains_key(&id)
    }
}

/// Shows the types, not the values: those may be secrets.
impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.values().map(|(_, name)| name)).finish()
    }
}

/// What every message of a host can reach: given values and provided ones. Never changes once it is built.
#[derive(Debug, Default)]
pub struct HostScope {
    values: Values,
}

impl HostScope {
    /// The scope of a host that provides `values` and nothing else.
    pub fn new(values: Values) -> Self {
        HostScope { values }
    }

    /// The value of type `T`.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.values.get()
    }
}

/// What one message's run can reach. Cheap to clone; all clones are the same scope.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    host: Arc<HostScope>,
    own: Mutex<Own>,
    // Whose cancellation is this scope's too.
    parent: CancellationToken,
    // Made only when somebody asks: most handlers never look at it.
    cancellation: OnceLock<CancellationToken>,
}

/// A message has a handful of values at most: a list is searched sooner than a table is made.
#[derive(Default)]
struct Own {
    given: Vec<(TypeId, Value)>,
    made: Vec<Made>,
    /// How many have been made: what comes first is disposed of last.
    count: u32,
    is_over: bool,
}

/// A value that is made when it is first asked for.
struct Made {
    id: TypeId,
    cell: Arc<OnceCell<Value>>,
    /// Once it has been made: as which one, and what is left in the end.
    left: Option<(u32, Left)>,
}

impl Own {
    fn given(&self, id: TypeId) -> Option<&Value> {
        self.given.iter().find(|(given, _)| *given == id).map(|(_, value)| value)
    }

    /// Answers what was there of that type.
    fn give(&mut self, id: TypeId, value: Value) -> Option<Value> {
        if let Some((_, given)) = self.given.iter_mut().find(|(given, _)| *given == id) {
            return Some(std::mem::replace(given, value));
        }
        self.given.push((id, value));
        None
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("given", &self.given.len()).field("made", &self.made.len()).finish()
    }
}

/// What is done with a value when its message is finished.
#[derive(Clone)]
pub(crate) struct Disposal {
    /// Of what type it is, for people.
    pub(crate) type_name: &'static str,
    pub(crate) dispose: Arc<dyn Fn(Value) -> BoxFuture<'static, Result<()>> + Send + Sync>,
}

/// A value that a finished scope has left.
pub(crate) struct Left {
    pub(crate) value: Value,
    pub(crate) disposal: Option<Disposal>,
}

impl Scope {
    /// A scope over the host's values, cancelled when `parent` is.
    pub fn new(host: Arc<HostScope>, parent: CancellationToken) -> Self {
        Scope {
            inner: Arc::new(Inner { host, own: Mutex::default(), parent, cancellation: OnceLock::new() }),
        }
    }

    /// What all messages of the host share.
    pub fn host(&self) -> &HostScope {
        &self.inner.host
    }

    /// A value of this scope itself, else of the host.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        // Two statements, so that the lock is not held while the host is asked.
        let own = self.inner.own.lock().given(TypeId::of::<T>()).map(Arc::clone);
        own.and_then(|value| value.downcast().ok()).or_else(|| self.inner.host.get())
    }

    /// Puts a value into this scope, for as long as the message's run lasts, instead of one of the same type. Afterwards
    /// it is dropped at once.
    pub fn insert<T: Send + Sync + 'static>(&self, value: Arc<T>) {
        let (id, value): (_, Value) = (TypeId::of::<T>(), value);
        let mut own = self.inner.own.lock();
        let superseded = if own.is_over { Some(value) } else { own.give(id, value) };
        drop(own);
        // Dropped outside the lock: a value's `Drop` is user code and may use the scope.
        drop(superseded);
    }

    /// The value that `build` makes, built at most once per scope however many ask at the same time. A failure is not
    /// kept. What is made is disposed of as `disposal` says.
    ///
    /// # Errors
    /// That of `build`; [`ErrorKind::Closed`] if the message is finished.
    pub(crate) async fn get_or_build(
        &self,
        id: TypeId,
        disposal: Option<&Disposal>,
        build: impl Future<Output = Result<Value>>,
    ) -> Result<Value> {
        let cell = self.cell(id)?;
        if let Some(value) = cell.get() {
            return Ok(Arc::clone(value));
        }
        let building = async {
            let value = build.await?;
            if !self.has_been_made(id, &value, disposal) {
                // By a task that has outlived the message. Nobody else will put it away.
                if let Some(disposal) = disposal {
                    (disposal.dispose)(value).await?;
                }
                return Err(is_over());
            }
            Ok(value)
        };
        cell.get_or_try_init(|| building).await.map(Arc::clone)
    }

    fn cell(&self, id: TypeId) -> Result<Arc<OnceCell<Value>>> {
        let mut own = self.inner.own.lock();
        if own.is_over {
            return Err(is_over());
        }
        if let Some(made) = own.made.iter().find(|made| made.id == id) {
            return Ok(Arc::clone(&made.cell));
        }
        let cell = Arc::default();
        own.made.push(Made { id, cell: Arc::clone(&cell), left: None });
        Ok(cell)
    }

    /// Notes what is to be done with a value that has been made; `false` if the message has been finished meanwhile.
    fn has_been_made(&self, id: TypeId, value: &Value, disposal: Option<&Disposal>) -> bool {
        let mut own = self.inner.own.lock();
        let count = own.count;
        own.count += 1;
        let Some(made) = own.made.iter_mut().find(|made| made.id == id) else { return false };
        made.left = Some((count, Left { value: Arc::clone(value), disposal: disposal.cloned() }));
        true
    }

    /// Ends the scope: nothing is made for it any more. Answers what was made for it or put into it, in the order in
    /// which it is to be disposed of.
    pub(crate) fn end(&self) -> impl Iterator<Item = Left> + use<> {
        let over = Own { is_over: true, ..Own::default() };
        let mut own = std::mem::replace(&mut *self.inner.own.lock(), over);
        own.made.sort_unstable_by_key(|made| Reverse(made.left.as_ref().map(|(at, _)| *at)));
        let made = own.made.into_iter().filter_map(|made| made.left).map(|(_, left)| left);
        let given = own.given.into_iter().rev().map(|(_, value)| Left { value, disposal: None });
        made.chain(given)
    }

    /// Fires when the run should come to an end: its time is up, its term is lost, or the host stops for good.
    pub fn cancellation(&self) -> &CancellationToken {
        self.inner.cancellation.get_or_init(|| self.inner.parent.child_token())
    }

    /// Asks the run to come to an end.
    pub fn cancel(&self) {
        self.cancellation().cancel();
    }
}

fn is_over() -> Error {
    Error::new(ErrorKind::Closed, "the message is finished: nothing is made for it any more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_sees_its_own_values_before_the_hosts_until_it_ends() {
        let mut values = Values::default();
        values.insert(Arc::new(1_u8));
        let scope = Scope::new(Arc::new(HostScope::new(values)), CancellationToken::new());
        scope.insert(Arc::new(2_u8));
        assert_eq!(scope.get::<u8>().as_deref(), Some(&2));
        scope.insert(Arc::new(3_u8));
        assert_eq!(scope.get::<u8>().as_deref(), Some(&3));
        assert_eq!(scope.end().count(), 1);
        assert_eq!(scope.get::<u8>().as_deref(), Some(&1));
        assert_eq!(scope.get::<u16>(), None);
    }

    async fn make(
        scope: &Scope,
        value: impl Any + Send + Sync,
        needs: Option<(TypeId, u8)>,
    ) -> Result<Value> {
        let id = value.type_id();
        let build = async {
            if let Some((id, needed)) = needs {
                scope.get_or_build(id, None, async { Ok(Arc::new(needed) as Value) }).await?;
            }
            Ok(Arc::new(value) as Value)
        };
        scope.get_or_build(id, None, build).await
    }

    #[tokio::test]
    async fn what_was_made_last_is_left_first() {
        let scope = Scope::default();
        scope.insert(Arc::new("given"));
        // The text is asked for first, and made after the number that it needs.
        let needs = Some((TypeId::of::<u8>(), 7));
        assert!(make(&scope, String::from("made"), needs).await.is_ok());
        assert!(make(&scope, 1.5_f64, None).await.is_ok());
        let left: Vec<_> = scope.end().map(|left| (*left.value).type_id()).collect();
        let wanted = [TypeId::of::<f64>(), TypeId::of::<String>(), TypeId::of::<u8>(), TypeId::of::<&str>()];
        assert_eq!(left, wanted);
    }

    #[tokio::test]
    async fn nothing_is_made_for_a_message_that_is_finished() {
        let scope = Scope::default();
        assert_eq!(scope.end().count(), 0);
        let late = make(&scope, 1_u8, None).await;
        assert_eq!(late.err().map(|error| error.kind()), Some(ErrorKind::Closed));
        scope.insert(Arc::new(2_u8));
        assert_eq!(scope.get::<u8>(), None);
    }
}
