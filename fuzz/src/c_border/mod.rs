//! The functions of the C library, as a program made of bytes calls them: forged handles, NULL, structs of other sizes
//! and with odd fields. Nothing is passed that the header forbids: every pointer is NULL or leads to what it says, names
//! end, and what is gone is not used. Whatever is answered, nothing crashes; what is refused has touched nothing; and what
//! is handed out overlaps nothing.

mod allocators;
mod buffers;
mod creation;
mod device;
mod others;
mod structs;

use crate::host::{self, Host};
use crate::input::Input;
use slicepool_border::host::slicepool_host;
use slicepool_border::result::{slicepool_failure, slicepool_result, slicepool_result_string};
use std::ffi::CStr;
use structs::{Struct, zeroed};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut program = Program::new();
    while !input.is_over() {
        program.step(&mut input);
    }
    program.end();
}

/// Everything that a program has.
struct Program {
    /// Goes last: the books of all others are there.
    host: Box<Host>,
    allocators: allocators::Allocators,
    buffers: buffers::Buffers,
    spaces: others::Spaces,
    budgets: others::Budgets,
}

impl Program {
    fn new() -> Self {
        Self {
            host: Box::default(),
            allocators: allocators::Allocators::default(),
            buffers: buffers::Buffers::default(),
            spaces: others::Spaces::default(),
            budgets: others::Budgets::default(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        if input.one_in(32) {
            self.host.fail_in(Some(u32::from(input.byte() & 3)));
        }
        let host = host(&self.host);
        match input.byte() & 15 {
            0..8 => self.allocators.step(input, &host, &self.budgets),
            8..12 => self.buffers.step(input, &host, &self.budgets),
            12 | 13 => self.spaces.step(input, &host),
            14 => self.budgets.step(input, &host),
            _ => others::without_object(input),
        }
        self.host.fail_in(None);
    }

    fn end(self) {
        self.allocators.end();
        self.buffers.end();
        self.spaces.end();
        self.budgets.end();
        assert!(self.host.is_empty(), "the host's memory has not all come back");
    }
}

/// The host side of everything.
fn host(memory: &Host) -> slicepool_host {
    let mut host: slicepool_host = zeroed();
    host.struct_size = size_of::<slicepool_host>() as u32;
    host.user_data = memory.user_data();
    host.allocate = Some(host::allocate);
    host.deallocate = Some(host::deallocate);
    host
}

/// Whether a call succeeded. Its result has to be one that there is; the details of a failure have to agree with it.
fn succeeded(result: slicepool_result, failure: Option<&Struct<slicepool_failure>>) -> bool {
    assert!((-21..=0).contains(&result), "there is no result {result}");
    let text = slicepool_result_string(result);
    // SAFETY: a text of the library's.
    assert!(!unsafe { CStr::from_ptr(text) }.is_empty());
    let Some(details) = failure.filter(|failure| failure.is_whole()).map(Struct::get) else { return result == 0 };
    if !details.field.is_null() {
        // SAFETY: as above.
        assert!(!unsafe { CStr::from_ptr(details.field) }.is_empty());
    }
    // Of this call, or one before.
    assert!((-21..=0).contains(&details.result), "there is no result {}", details.result);
    result == 0
}

/// Somewhere for the details of a failure, or nowhere.
fn failure(input: &mut Input<'_>) -> Option<Struct<slicepool_failure>> {
    (!input.one_in(3)).then(|| Struct::out(input))
}

/// NULL for nothing.
fn pointer<T: Copy>(to: &mut Option<Struct<T>>) -> *mut T {
    to.as_mut().map_or(std::ptr::null_mut(), Struct::as_mut_ptr)
}

/// A handle, good or bad.
fn handle(input: &mut Input<'_>, live: &[u64], used: &[u64]) -> u64 {
    let one = |input: &mut Input<'_>, ids: &[u64]| ids.get(input.below(ids.len().max(1))).copied().unwrap_or(0);
    match input.byte() {
        0..190 => one(input, live),
        190..215 => one(input, used),
        215..235 => one(input, live) ^ 1 << (input.byte() & 63),
        235..245 => 0,
        _ => input.word(),
    }
}
