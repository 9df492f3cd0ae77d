//! `check`: the wiring of this program.
