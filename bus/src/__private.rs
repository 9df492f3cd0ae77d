//! What the macros' output names. No part of the public interface: it changes without notice.
//!
//! Everything the macros write is named through this module, the standard library's too, so that nothing the user has
//! defined or hidden can get in the way.

pub use core::option::Option;
pub use core::primitive::{str, u32, usize};
pub use core::{concat, file, future::ready, line, module_path, stringify};
pub use std::time::Duration;

pub use inventory::submit;

pub use crate::message::name::{ConstName, why_invalid};
pub use crate::message::{Command, Event, Message};
pub use crate::processor::handler::{LinkToExtractor, LinkToNothing, Probe, Source, extractor, outcome};
pub use crate::processor::provide::{host_arg, provides, provides_result};
pub use crate::processor::refuse::{NAME_RULE, require, unless, valid_duration, valid_name};
pub use crate::processor::{About, Plain, Processor, Provider, Singleton, Tuning};
pub use crate::registry::{Entry, Expected, Registration};
pub use crate::settings::{
    Default, Order, Retry, Setting, Settings, Tuned, duration, why_invalid_calls, why_invalid_lease,
    why_invalid_limit, why_invalid_prefetch, why_invalid_retention, why_invalid_timeout,
};
#[cfg(feature = "testing")]
pub use crate::testing::run::{run, run_with_host};
