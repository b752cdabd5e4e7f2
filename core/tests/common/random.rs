//! Random numbers that can be had again.

/// A 64-bit mixing generator: small, fast, the same everywhere.
pub(crate) struct Random(u64);

impl From<u64> for Random {
    /// The numbers that belong to a seed.
    fn from(seed: u64) -> Self {
        Self(seed)
    }
}

impl Random {
    /// Begins with `SLICEPOOL_SEED` if that is set, else with `default`, and prints which.
    pub(crate) fn with_seed_or(default: u64) -> Self {
        let seed = match std::env::var("SLICEPOOL_SEED") {
            Ok(text) => text.trim().parse().expect("SLICEPOOL_SEED is a decimal number of 64 bits"),
            Err(_) => default,
        };
        let test = std::thread::current().name().unwrap_or("a thread").to_owned();
        println!("{test}: SLICEPOOL_SEED={seed}");
        Self(seed)
    }

    /// Another generator, for a thread of its own.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.any())
    }

    /// Any number.
    pub(crate) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(end)) >> 64) as u64
    }

    /// A number of `first..=last`.
    pub(crate) fn within(&mut self, first: u64, last: u64) -> u64 {
        match (last - first).checked_add(1) {
            Some(count) => first + self.below(count),
            None => self.any(),
        }
    }

    /// A number of `1..=last` whose number of bits is equally likely to be any.
    pub(crate) fn scaled(&mut self, last: u64) -> u64 {
        let bits = 64 - last.leading_zeros();
        let top = self.within(1, u64::from(bits)) as u32;
        let mask = u64::MAX >> (64 - top);
        (self.any() & mask).clamp(1, last)
    }

    /// Takes an element out of a list that is not empty; the order of the others changes.
    pub(crate) fn take<T>(&mut self, list: &mut Vec<T>) -> T {
        let index = self.below(list.len() as u64) as usize;
        list.swap_remove(index)
    }
}
