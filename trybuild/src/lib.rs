//! Compile errors of the macros, case by case.
