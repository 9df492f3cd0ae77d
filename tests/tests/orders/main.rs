//! The worked example `orders`, as a process: one trace over all that follows from a request, health that tells the truth,
//! and nothing lost at SIGTERM.

#[cfg(target_os = "linux")]
mod collector;
#[cfg(target_os = "linux")]
mod health;
#[cfg(target_os = "linux")]
mod shop;
#[cfg(target_os = "linux")]
mod termination;
#[cfg(target_os = "linux")]
mod tracing;
