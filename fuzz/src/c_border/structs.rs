//! Structs as callers of C have them.

use crate::input::Input;
use std::marker::PhantomData;
use std::ptr;

/// A struct in memory of exactly as many bytes as its `struct_size` says, so that the sanitizer sees who goes further.
pub(super) struct Struct<T> {
    words: Vec<u64>,
    of: PhantomData<T>,
}

/// The largest size that is believed.
const MOST_BYTES: usize = 4096;

/// All of it zero.
pub(super) fn zeroed<T: Copy>() -> T {
    // SAFETY: structs of the interface consist of numbers, and of pointers that may be NULL.
    unsafe { std::mem::zeroed() }
}

impl<T: Copy> Struct<T> {
    /// A good one.
    pub(super) fn new(value: T) -> Self {
        Self::with_size(value, size_of::<T>() as u32, size_of::<T>())
    }

    /// One for the library to fill in.
    pub(super) fn out(input: &mut Input<'_>) -> Self {
        let (size, bytes) = Self::random_size(input);
        Self::with_size(zeroed(), size, bytes)
    }

    /// Its fields as they are, with another size now and then, and with some of its numbers changed: not those at the
    /// places `kept`, which are pointers, and lengths of what they point to.
    pub(super) fn random(input: &mut Input<'_>, value: T, kept: &[usize]) -> Self {
        let (size, bytes) = Self::random_size(input);
        let mut made = Self::with_size(value, size, bytes);
        for _ in 0..input.byte().saturating_sub(190) / 16 {
            let at = 4 + 4 * input.below(size_of::<T>() / 4 - 1);
            let wide = at % 8 == 0 && input.one_in(2);
            let bytes = if wide { input.number().to_le_bytes() } else { u64::from(input.count()).to_le_bytes() };
            let end = at + if wide { 8 } else { 4 };
            let spoils = kept.iter().any(|&kept| at < kept + 8 && kept < end);
            if !spoils && end <= made.words.len() * 8 {
                made.write(at, &bytes[..end - at]);
            }
        }
        if size as usize > size_of::<T>() && bytes == size as usize && input.one_in(4) {
            // Of a version to come.
            made.write(bytes - 4, &[1]);
        }
        made
    }

    /// What the struct says its size is, and how many bytes there are.
    fn random_size(input: &mut Input<'_>) -> (u32, usize) {
        let real = size_of::<T>();
        match input.byte() {
            0..210 => (real as u32, real),
            byte @ 210..220 => {
                let size = 8 * (1 + usize::from(byte) % (real / 8));
                (size as u32, size)
            }
            220..235 => {
                let size = (real + 8 * (1 + input.below(64))).min(MOST_BYTES);
                (size as u32, size)
            }
            // No size at all.
            _ => (input.pick(&[0, 4, 7, 12, 4100, 4104, u32::MAX]), real),
        }
    }

    fn with_size(value: T, size: u32, bytes: usize) -> Self {
        let mut made = Self { words: vec![0; bytes.div_ceil(8)], of: PhantomData };
        let known = bytes.min(size_of::<T>());
        // SAFETY: so many bytes are on both sides, and structs of the interface have no padding.
        unsafe { ptr::copy_nonoverlapping(ptr::from_ref(&value).cast::<u8>(), made.words.as_mut_ptr().cast(), known) };
        made.write(0, &size.to_le_bytes());
        made
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.words.len() * 8);
        // SAFETY: it is all there.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.words.as_mut_ptr().cast::<u8>().add(at), bytes.len()) };
    }

    pub(super) fn as_ptr(&self) -> *const T {
        self.words.as_ptr().cast()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut T {
        self.words.as_mut_ptr().cast()
    }

    /// As much as there is; zero behind that.
    pub(super) fn get(&self) -> T {
        let mut value = zeroed::<T>();
        let known = size_of::<T>().min(self.words.len() * 8);
        // SAFETY: so many bytes are on both sides; any numbers are a struct of the interface.
        unsafe { ptr::copy_nonoverlapping(self.words.as_ptr().cast(), ptr::from_mut(&mut value).cast::<u8>(), known) };
        value
    }

    /// Whether all fields are there.
    pub(super) fn is_whole(&self) -> bool {
        self.words.len() * 8 >= size_of::<T>()
    }

    /// What it is made of, to be compared.
    pub(super) fn words(&self) -> Vec<u64> {
        self.words.clone()
    }
}
