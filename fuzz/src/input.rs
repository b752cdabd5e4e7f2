//! What the bytes of an input stand for. Bytes that are not there are 0, so that every input is a program.

/// The rest of an input.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// Any 64 bits.
    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    /// Below `bound`, which is at most 2^16 and not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let number =
            if bound <= 256 { usize::from(self.byte()) } else { usize::from(u16::from_le_bytes(self.bytes())) };
        number % bound
    }

    /// True once in so many times, and not for 0.
    pub fn one_in(&mut self, times: u8) -> bool {
        self.byte() % times == times - 1
    }

    /// One of a few things.
    pub fn pick<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.below(things.len())]
    }

    /// A number that is small as a rule, and now and then where numbers end.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..160 => u64::from(small),
            160..200 => u64::from(u16::from_le_bytes(self.bytes())),
            200..232 => self.near_a_power(),
            232..240 => u64::MAX - u64::from(self.byte()),
            240..248 => u64::from(u32::MAX).wrapping_add_signed(i64::from(self.byte() as i8)),
            _ => self.word(),
        }
    }

    /// A power of two, one less or one more.
    fn near_a_power(&mut self) -> u64 {
        let byte = self.byte();
        (1_u64 << (byte & 63)).wrapping_add_signed(i64::from(byte >> 6).min(2) - 1)
    }

    /// A number of 32 bits, small as a rule.
    pub fn count(&mut self) -> u32 {
        self.number().min(u64::from(u32::MAX)) as u32
    }

    /// Nothing, or a number.
    pub fn maybe(&mut self) -> Option<u64> {
        self.one_in(3).then(|| self.number())
    }

    /// A power of two, most often, and most often a small one.
    pub fn alignment(&mut self) -> u64 {
        match self.byte() {
            0..112 => 1,
            byte @ 112..224 => 1 << (byte & 15),
            224..250 => 1 << (self.byte() & 63),
            _ => self.number(),
        }
    }

    /// A size beside others that are multiples of `unit`, in a place that has `whole` bytes.
    pub fn size(&mut self, unit: u64, whole: u64) -> u64 {
        match self.byte() {
            count @ 0..150 => (u64::from(count) + 1).saturating_mul(unit) - u64::from(count & 1),
            150..200 => {
                let part = u128::from(whole) * u128::from(self.byte()) / 256;
                part as u64
            }
            byte @ 200..206 => whole.wrapping_add_signed(i64::from(byte) - 203),
            206..216 => u64::from(self.byte()),
            _ => self.number(),
        }
    }
}
