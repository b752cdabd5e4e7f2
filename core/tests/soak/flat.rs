//! What "flat" means.

use std::collections::BTreeMap;

/// Something that must not grow.
pub(crate) struct Figure {
    name: &'static str,
    value: u64,
    per_cent: u64,
}

impl Figure {
    pub(crate) const fn new(name: &'static str, value: u64, per_cent: u64) -> Self {
        Self { name, value, per_cent }
    }

    pub(crate) const fn emptied(value: u64) -> Self {
        Self::new("host bytes with nothing live", value, 0)
    }
}

struct Mark {
    per_cent: u64,
    warm: u64,
    after: u64,
    raised: u32,
}

pub(crate) struct Flat(BTreeMap<&'static str, Mark>);

impl Flat {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn note(&mut self, warm: bool, figures: &[Figure]) {
        for &Figure { name, value, per_cent } in figures {
            let mark = self.0.entry(name).or_insert(Mark { per_cent, warm: 0, after: 0, raised: 0 });
            let most = if warm { &mut mark.warm } else { &mut mark.after };
            if !warm && value > *most {
                mark.raised += 1;
            }
            *most = value.max(*most);
        }
    }

    pub(crate) fn assert_flat(&self) {
        for (name, mark) in &self.0 {
            println!("{name}: {} in the warm-up, {} after, raised {} times", mark.warm, mark.after, mark.raised);
        }
        for (name, mark) in &self.0 {
            let most = mark.warm + mark.warm * mark.per_cent / 100;
            assert!(mark.after <= most, "{name} grows: {} in the warm-up, {} after it", mark.warm, mark.after);
        }
    }
}
