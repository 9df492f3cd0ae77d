#![doc = include_str!("../docs/stores.md")]
