//! What a host and a message carry along: values by type, and the run's cancellation.
//!
//! A scope is how a singleton's `Term`, a provided value or anything else of a later module reaches a handler's
//! argument without the modules in between knowing its type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

type Value = Arc<dyn Any + Send + Sync>;

/// Values by their type, at most one each.
#[derive(Default, Clone)]
pub struct Values(HashMap<TypeId, (Value, &'static str)>);

impl Values {
    /// Puts a value in, instead of one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: Arc<T>) {
        self.0.insert(TypeId::of::<T>(), (value, type_name::<T>()));
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

/// What one message's run can reach. Cheap to clone; all clones are the same scope.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    host: Arc<Values>,
    own: Mutex<Values>,
    // Whose cancellation is this scope's too.
    parent: CancellationToken,
    // Made only when somebody asks: most handlers never look at it.
    cancellation: OnceLock<CancellationToken>,
}

impl Scope {
    /// A scope over the host's values, cancelled when `parent` is.
    pub fn new(host: Arc<Values>, parent: CancellationToken) -> Self {
        Scope {
            inner: Arc::new(Inner { host, own: Mutex::default(), parent, cancellation: OnceLock::new() }),
        }
    }

    /// A value of this scope itself, else of the host.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.inner.own.lock().get().or_else(|| self.inner.host.get())
    }

    /// Puts a value into this scope, for as long as the message's run lasts.
    pub fn insert<T: Send + Sync + 'static>(&self, value: Arc<T>) {
        self.inner.own.lock().insert(value);
    }

    /// Drops what was put into this scope. Called when the message is finished.
    pub fn clear(&self) {
        let values = std::mem::take(&mut *self.inner.own.lock());
        // Dropped outside the lock: a value's `Drop` is user code and may use the scope.
        drop(values);
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
