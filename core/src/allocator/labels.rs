//! Names and user data of slices.

use super::Allocator;
use crate::device::Device;
use crate::error::Error;
use crate::event::{Label, Name};
use crate::parts::need_complete;
use crate::slice::Slice;
use crate::slots::SliceId;

impl<D: Device> Allocator<D> {
    /// Attaches a name and user data to a slice, in place of what was attached before. They go with the slice.
    ///
    /// Constant time. The first label of all needs host memory in proportion to the slots that the slice's pool has; names
    /// need 56 bytes more each. What is never labelled costs nothing.
    ///
    /// # Errors
    /// As [`Allocator::get`]; [`Error::OutOfHostMemory`]. Nothing has changed then.
    #[cold]
    pub fn set_label(&self, id: SliceId, label: &Label) -> Result<(), Error> {
        need_complete(c"label")?;
        self.change_label(id, &|_| *label)
    }

    /// Gives a slice a name: [`Allocator::set_label`] that leaves its user data as it is.
    ///
    /// # Errors
    /// As [`Allocator::set_label`].
    pub fn set_name(&self, id: SliceId, name: &str) -> Result<(), Error> {
        let name = Name::new(name);
        self.change_label(id, &|label| Label { name, ..label })
    }

    /// Attaches user data to a slice: [`Allocator::set_label`] that leaves its name as it is.
    ///
    /// # Errors
    /// As [`Allocator::set_label`].
    pub fn set_user_data(&self, id: SliceId, user_data: u64) -> Result<(), Error> {
        self.change_label(id, &|label| Label { user_data, ..label })
    }

    #[cold]
    fn change_label(&self, id: SliceId, change: &dyn Fn(Label) -> Label) -> Result<(), Error> {
        need_complete(c"label")?;
        let cell = self.cell(id)?;
        loop {
            let mut pool = cell.pool.lock();
            let slot = pool.slicer.resolve_for_query(id)?;
            let before = pool.label(slot);
            let label = change(before);
            if label == before {
                return Ok(());
            }
            let Some(lacking) = pool.lacks_for_label(slot, &label)? else {
                pool.set_label(slot, &label);
                return Ok(());
            };
            drop(pool);
            let memory = lacking.allocate(self.options.memory)?;
            let late = cell.pool.lock().install_for_labels(memory);
            drop(late);
        }
    }

    /// The slice of a handle as [`Allocator::get`] answers it, and its user data.
    ///
    /// # Errors
    /// As [`Allocator::get`].
    pub fn get_with_user_data(&self, id: SliceId) -> Result<(Slice, u64), Error> {
        let pool = self.cell(id)?.pool.lock();
        let slice = pool.get(id)?;
        Ok((slice, pool.user_data(id.slot())))
    }

    /// What is attached to a slice; nothing, if nothing was.
    ///
    /// # Errors
    /// As [`Allocator::get`].
    #[cold]
    pub fn label(&self, id: SliceId) -> Result<Label, Error> {
        let pool = self.cell(id)?.pool.lock();
        Ok(pool.label(pool.slicer.resolve_for_query(id)?))
    }
}
