//! What threads of a test wait for, without waiting for ever when one of them fails.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Lets threads go on when all of them have arrived.
pub(crate) struct Meeting {
    threads: u32,
    /// Threads that have arrived, and how often all have.
    arrived: Mutex<(u32, u64)>,
    changed: Condvar,
}

impl Meeting {
    pub(crate) const fn of(threads: u32) -> Self {
        Self { threads, arrived: Mutex::new((0, 0)), changed: Condvar::new() }
    }

    /// Waits for the others; panics if they do not come.
    pub(crate) fn wait(&self) {
        let mut arrived = self.arrived.lock().unwrap();
        let round = arrived.1;
        arrived.0 += 1;
        if arrived.0 == self.threads {
            *arrived = (0, round + 1);
            self.changed.notify_all();
            return;
        }
        let patience = Duration::from_secs(20);
        let (_arrived, result) = self.changed.wait_timeout_while(arrived, patience, |it| it.1 == round).unwrap();
        assert!(!result.timed_out(), "another thread does not come");
    }
}

/// Does something at the end of a scope, also where it ends in a panic: what other threads wait for.
pub(crate) struct AtEnd<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
