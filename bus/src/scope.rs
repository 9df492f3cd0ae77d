//! What a host and a message carry along: values by type, and the run's cancellation.
//!
//! A scope is how a singleton's `Term`, a provided value or anything else of a later module reaches a handler's
//! argument without the modules in between knowing its type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::error::Result;

type Value = Arc<dyn Any + Send + Sync>;
type ByType<V> = HashMap<TypeId, V, BuildHasherDefault<TypeHasher>>;

/// A `TypeId` is a hash already. Looked up once per argument and message, so the usual hash would be felt.
#[derive(Default)]
struct TypeHasher(u64);

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

#[derive(Debug, Default)]
struct Own {
    values: Values,
    /// Values that are built when they are first asked for.
    built: ByType<Arc<OnceCell<Value>>>,
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
        let own = self.inner.own.lock().values.get();
        own.or_else(|| self.inner.host.get())
    }

    /// Puts a value into this scope, for as long as the message's run lasts.
    pub fn insert<T: Send + Sync + 'static>(&self, value: Arc<T>) {
        self.inner.own.lock().values.insert(value);
    }

    /// The value that `build` makes, built at most once per scope however many ask at the same time. A failure is not
    /// kept.
    pub(crate) async fn get_or_build(
        &self,
        id: TypeId,
        build: impl Future<Output = Result<Value>>,
    ) -> Result<Value> {
        let cell = Arc::clone(self.inner.own.lock().built.entry(id).or_default());
        cell.get_or_try_init(|| build).await.map(Arc::clone)
    }

    /// Drops what was put into or built for this scope. Called when the message is finished.
    pub fn clear(&self) {
        let own = std::mem::take(&mut *self.inner.own.lock());
        // Dropped outside the lock: a value's `Drop` is user code and may use the scope.
        drop(own);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_sees_its_own_values_before_the_hosts_until_it_is_cleared() {
        let mut values = Values::default();
        values.insert(Arc::new(1_u8));
        let scope = Scope::new(Arc::new(HostScope::new(values)), CancellationToken::new());
        scope.insert(Arc::new(2_u8));
        assert_eq!(scope.get::<u8>().as_deref(), Some(&2));
        scope.clear();
        assert_eq!(scope.get::<u8>().as_deref(), Some(&1));
        assert_eq!(scope.get::<u16>(), None);
    }
}
