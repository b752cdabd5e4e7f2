//! Buffers of one size that come and go: buffer pools, and what hands out memory without being one.

pub mod c;
pub mod ring;
pub mod subjects;
pub mod work;

/// What a pool is made for.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes of every buffer: a power of two.
    pub bytes: usize,
    /// Buffers that there are at most.
    pub limit: u32,
    /// Buffers that each thread keeps, if it keeps any.
    pub cache: Option<usize>,
    /// Threads at work.
    pub threads: usize,
}

/// Something that hands out buffers, to any number of threads.
pub trait Buffers: Send + Sync + 'static {
    /// What one thread uses it through.
    type Local: Local + 'static;
    /// One for a setup. What knows no limits or caches has none.
    fn new(setup: &Setup) -> Self;
    /// The way in for the calling thread.
    fn local(&self) -> Self::Local;
}

/// One thread's way to buffers.
pub trait Local {
    /// A buffer that is out.
    type Buffer: Send;
    /// A buffer of at least so many bytes, or none if there is none.
    fn acquire(&mut self, bytes: usize) -> Option<Self::Buffer>;
    /// Takes a buffer back, which any thread may have acquired.
    fn release(&mut self, buffer: Self::Buffer);
    /// Where it begins.
    fn start(buffer: &mut Self::Buffer) -> *mut u8;
}
