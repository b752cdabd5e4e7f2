//! Pools of every kind: which pages they take and keep, and which pool of a list serves a request.

#[path = "../common/mod.rs"]
mod common;

mod ageing;
mod direct;
mod exclusive;
mod growing;
mod install;
mod kinds;
mod lists;
mod sliced;
mod trim;
