//! Disposes of what a message's run has put into its scope.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::scope::Scope;

/// Drops the scope's own values. A panic in one's `Drop` is logged and changes nothing about the message.
pub fn finish(scope: &Scope) {
    if catch_unwind(AssertUnwindSafe(|| scope.clear())).is_err() {
        tracing::error!(target: "bus::pipeline", "a scoped value panicked while it was dropped");
    }
}
