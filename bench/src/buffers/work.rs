//! What is done with buffers.

use super::Local;
use super::ring::Ring;
use std::hint::black_box;

/// What a thread does again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Acquire so many buffers, write a byte into each, then release them in the same order.
    Together(usize),
    /// Acquire and write; another thread releases.
    Across,
    /// Ask in vain: all buffers are out.
    Miss,
}

/// A thread at work.
pub struct Worker<L: Local> {
    local: L,
    bytes: usize,
    held: Vec<L::Buffer>,
}

impl<L: Local> Worker<L> {
    /// One that asks for buffers of so many bytes.
    pub fn new(local: L, bytes: usize) -> Self {
        Self { local, bytes: black_box(bytes), held: Vec::with_capacity(1024) }
    }

    /// Holds every buffer that there is; how many.
    pub fn exhaust(&mut self) -> usize {
        while let Some(buffer) = self.local.acquire(self.bytes) {
            self.held.push(buffer);
        }
        self.held.len()
    }

    fn acquire(&mut self) -> L::Buffer {
        let mut buffer = self.local.acquire(self.bytes).expect("the limit is high enough");
        // SAFETY: the buffer has at least one byte.
        unsafe { L::start(&mut buffer).write_volatile(1) };
        buffer
    }

    /// About so many pairs, `count` at a time; how many they were.
    #[inline(never)]
    pub fn together(&mut self, count: usize, pairs: usize) -> usize {
        if count == 1 {
            for _ in 0..pairs {
                let buffer = self.acquire();
                self.local.release(buffer);
            }
            return pairs;
        }
        let rounds = pairs.div_ceil(count);
        for _ in 0..rounds {
            for _ in 0..count {
                let buffer = self.acquire();
                self.held.push(buffer);
            }
            for buffer in self.held.drain(..) {
                self.local.release(buffer);
            }
        }
        rounds * count
    }

    /// So many requests that fail.
    #[inline(never)]
    pub fn miss(&mut self, requests: usize) -> usize {
        for _ in 0..requests {
            assert!(self.local.acquire(self.bytes).is_none(), "all buffers are out");
        }
        requests
    }

    /// Hands so many buffers to another thread. Nobody else pushes.
    #[inline(never)]
    pub fn produce(&mut self, ring: &Ring<L::Buffer>, pairs: usize) -> usize {
        for _ in 0..pairs {
            let buffer = self.acquire();
            // SAFETY: nobody else pushes.
            unsafe { ring.push(buffer) };
        }
        pairs
    }

    /// Releases so many buffers of another thread. Nobody else pops.
    #[inline(never)]
    pub fn consume(&mut self, ring: &Ring<L::Buffer>, pairs: usize) -> usize {
        for _ in 0..pairs {
            // SAFETY: nobody else pops.
            let buffer = unsafe { ring.pop() };
            self.local.release(buffer);
        }
        pairs
    }
}
