//! The C library. One file per noun of the header, which is generated from the documentation comments here;
//! those are therefore written in the words of C.
//!
//! What holds everywhere:
//!
//! - nothing is done before every pointer and every struct has been checked;
//! - structs of callers are copied in and out by their `struct_size` ([`abi`]), so older and newer callers both work;
//! - errors of core become result codes in one place ([`result`]).

#![no_std]
#![allow(non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // The header states ownership and thread rules in C words.

// In the order of the header.
pub mod version;

pub mod result;

pub mod page;

pub mod event;

pub mod device;

pub mod host;

pub mod memory;

pub mod pool;

pub mod budget;

pub mod allocator;

pub mod request;

pub mod slice;

pub mod label;

pub mod mapping;

pub mod waiting;

pub mod planning;

pub mod statistics;

pub mod space;

#[cfg(feature = "buffers")]
pub mod buffer;

pub mod abi;

mod parts;

mod runtime;
