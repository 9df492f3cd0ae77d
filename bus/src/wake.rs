//! Telling those who wait that there may be something for them: a hint, behind which everyone looks by himself.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The hints of one store, by what is waited for.
#[derive(Debug)]
pub struct Hints<K> {
    waiting: Mutex<HashMap<K, watch::Sender<()>>>,
}

impl<K> Default for Hints<K> {
    fn default() -> Self {
        Hints { waiting: Mutex::default() }
    }
}

impl<K: Eq + Hash> Hints<K> {
    /// Listens: what was told before is seen, what is told from now on wakes.
    pub fn listen(&self, what: K) -> watch::Receiver<()> {
        let mut waiting = self.waiting.lock();
        if waiting.len() == waiting.capacity() {
            // Before it grows: some may have stopped listening.
            waiting.retain(|_, listeners| listeners.receiver_count() > 0);
        }
        waiting.entry(what).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Wakes those who wait for this.
    pub fn tell(&self, what: &K) {
        if let Some(listeners) = self.waiting.lock().get(what) {
            listeners.send_replace(());
        }
    }

    /// Wakes everyone: hints may have been missed.
    pub fn tell_all(&self) {
        for listeners in self.waiting.lock().values() {
            listeners.send_replace(());
        }
    }
}

/// A pause of about `middle`, from three quarters to five quarters of it, so that many processes do not all look at once.
pub fn jittered(middle: Duration) -> Duration {
    middle.mul_f64(0.75 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hint_wakes_those_who_wait_for_it_and_nobody_else() {
        let hints = Hints::default();
        let (mut orders, mut letters) = (hints.listen("orders"), hints.listen("letters"));
        hints.tell(&"orders");
        hints.tell(&"nobody waits for this");
        assert!(orders.changed().await.is_ok());
        assert!(!letters.has_changed().unwrap());
        hints.tell_all();
        assert!(letters.changed().await.is_ok());
        assert!(!hints.listen("letters").has_changed().unwrap(), "what was told before is seen");
    }

    #[test]
    fn who_listens_no_more_is_forgotten() {
        let hints = Hints::default();
        for number in 0..10_000 {
            drop(hints.listen(number));
        }
        assert!(hints.waiting.lock().len() < 100);
    }
}
