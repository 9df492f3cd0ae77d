//! Names of keys. All keys of a queue have one hash tag, and so have those of a topic with all of its subscriptions, so
//! that each script touches keys of one slot; see `docs.md` for what spans two.

use std::sync::Arc;

use crate::contract::LockId;
use crate::message::{Endpoint, Name, Target};

/// Makes names of keys under a prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: Arc<str>,
}

/// Where an endpoint lies: the beginning of all its keys, and its entry in its topic's set of subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) base: String,
    pub(super) subscription: Option<Subscription>,
}

/// An entry in a topic's set of subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) set: String,
    pub(super) name: String,
}

impl Place {
    /// The keys that a script is given.
    pub(super) fn keys(&self) -> Vec<String> {
        let set = self.subscription.as_ref().map(|subscription| subscription.set.clone());
        [Some(self.base.clone()), set].into_iter().flatten().collect()
    }

    /// The subscription's name, as a script's last argument; empty for a queue.
    pub(super) fn name(&self) -> &str {
        self.subscription.as_ref().map_or("", |subscription| &subscription.name)
    }

    /// The channel on which those are told who wait for messages.
    pub(super) fn channel(&self) -> String {
        format!("{}wake", self.base)
    }
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Keys { prefix: prefix.into() }
    }

    pub(super) fn place(&self, endpoint: &Endpoint) -> Place {
        match endpoint {
            Endpoint::Queue(name) => Place { base: self.queue(name), subscription: None },
            Endpoint::Subscription { topic, subscription } => Place {
                base: format!("{}:{{t/{topic}}}:s/{subscription}:", self.prefix),
                subscription: Some(Subscription {
                    set: self.subscriptions(topic),
                    name: subscription.to_string(),
                }),
            },
        }
    }

    /// What a script knows a target by: its kind and key.
    pub(super) fn target(&self, target: &Target) -> (&'static str, String) {
        match target {
            Target::Queue(name) => ("queue", self.queue(name)),
            Target::Topic(name) => ("topic", self.subscriptions(name)),
        }
    }

    fn queue(&self, name: &Name) -> String {
        format!("{}:{{q/{name}}}:", self.prefix)
    }

    fn subscriptions(&self, topic: &Name) -> String {
        format!("{}:{{t/{topic}}}:subscriptions", self.prefix)
    }

    /// The set of all endpoints' names, for people. The scripts make its name from the endpoints'.
    pub(super) fn endpoints(&self) -> String {
        format!("{}:endpoints", self.prefix)
    }

    /// When the store was begun.
    pub(super) fn began(&self) -> String {
        format!("{}:began", self.prefix)
    }

    /// A lock's record.
    pub(super) fn lock(&self, id: &LockId) -> String {
        format!("{}:{{lock/{id}}}", self.prefix)
    }

    /// The channel on which those are told who wait for a lock.
    pub(super) fn lock_channel(&self, id: &LockId) -> String {
        format!("{}:freed", self.lock(id))
    }

    /// The set of all locks' ids, for people. The scripts make its name from the records'.
    pub(super) fn locks(&self) -> String {
        format!("{}:locks", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_touches_has_one_tag() {
        let keys = Keys::new("bus");
        let tag = |key: &str| key.split_once('{').unwrap().1.split_once('}').unwrap().0.to_owned();
        let queue = Endpoint::parse("order-placed").unwrap();
        let subscription = Endpoint::parse("order-placed/mail").unwrap();
        let other = Endpoint::parse("order-placed/count").unwrap();
        let place = keys.place(&subscription);
        let (_, topic) = keys.target(&subscription.target());
        assert_eq!(place.base, "bus:{t/order-placed}:s/mail:");
        assert_eq!(place.keys(), [place.base.clone(), topic.clone()]);
        for key in [&topic, &keys.place(&other).base, &place.channel()] {
            assert_eq!(tag(key), "t/order-placed");
        }
        assert_eq!(keys.place(&queue).base, keys.target(&queue.target()).1);
        assert_eq!(keys.place(&queue).channel(), "bus:{q/order-placed}:wake");
    }
}
