//! A singleton in a fleet of processes, on each server that such a fleet shares: what is the same for all of these stores.
//! What is peculiar to one of them stands with its own tests.

mod heavy_cut_off;
mod heavy_leaving;
mod heavy_removed;
mod servers;
