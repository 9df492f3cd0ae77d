#![doc = include_str!("../docs/guide.md")]

#[doc = include_str!("../docs/getting_started.md")]
pub mod getting_started {}

#[doc = include_str!("../docs/messages.md")]
pub mod messages {}

#[doc = include_str!("../docs/processors.md")]
pub mod processors {}

#[doc = include_str!("../docs/transports.md")]
pub mod transports {}

#[doc = include_str!("../docs/middleware.md")]
pub mod middleware {}

#[doc = include_str!("../docs/tracing.md")]
pub mod tracing {}

#[doc = include_str!("../docs/logging.md")]
pub mod logging {}

#[doc = include_str!("../docs/shutdown.md")]
pub mod shutdown {}

#[doc = include_str!("../docs/errors.md")]
pub mod errors {}
