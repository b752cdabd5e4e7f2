//! Other pools in place of those an allocator has, against the model.

use crate::allocator::{Subject, all_accounted_for};
use crate::ops::TIMELINES;
use crate::oracle::{Checked, ensure};
use slicepool_core::{Error, SliceId};

impl Subject {
    /// Puts the pools in another order. `free_all`: after all slices were freed and all timelines have gone as far as
    /// they can, so that it is most likely possible.
    pub(crate) fn install(&mut self, first: usize, free_all: bool) -> Checked {
        if free_all {
            let live = self.model.handles.live.iter();
            let ids: Vec<_> = live.map(|&id| SliceId::from_raw(id)).collect();
            self.free_many(&ids, &[])?;
            for timeline in TIMELINES {
                self.collect(timeline, self.model.waits.completed(timeline).saturating_add(100))?;
            }
        }
        // A list that cannot be is refused before anything happens.
        let found = self.allocator.install_pools(&[]);
        let listed = self.model.listed();
        let used: Vec<_> = self.model.pools[..listed].iter().map(|pool| pool.books.used_bytes()).collect();
        let in_use = used.iter().any(|&(slices, _)| slices != 0);
        let in_use = in_use.then(|| Error::PoolsInUse { bytes: used.iter().map(|&(_, bytes)| bytes).sum() });
        let expected = Err(in_use.unwrap_or(Error::InvalidArgument { field: c"pools", value: 0 }));
        ensure!(found == expected, "installing no pools answers {found:?} instead of {expected:?}");
        let (pools, mut rules) = self.shape.rotated(first);
        let found = self.allocator.install_pools(&pools);
        let mut events = self.events()?;
        let expected = match in_use {
            Some(error) => Err(error),
            None => self.model.trimmed(0, &mut events)?.map_or(Ok(()), Err),
        };
        all_accounted_for(&events)?;
        ensure!(found == expected, "install_pools answers {found:?} instead of {expected:?}");
        if found.is_err() {
            return Ok(());
        }
        self.model.replace_pools(&rules);
        rules.extend(self.model.pools[listed..].iter().map(|pool| pool.rules));
        self.allocator.device().set_alignments(rules.iter().map(|rules| rules.page_alignment).collect());
        Ok(())
    }
}
