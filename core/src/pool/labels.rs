//! What programs attach to slices: names and user data.
//!
//! Kept beside the slots and not in them, so that programs which attach nothing pay nothing: a label counts only while its
//! slot has the generation that it was attached to, so freeing a slice need not look for one.
#![forbid(unsafe_code)]

use super::Pool;
use crate::canary::broken;
use crate::error::Error;
use crate::event::{Label, Name};
use crate::metadata::{Array, Beside, Chunk, ChunkPlan, Chunked, HostMemory};
use crate::slicer::nodes::{Node, number_of};
use core::cell::Cell;

/// What is attached to a slot.
#[derive(Default)]
pub(crate) struct Attached {
    /// Generation of the slice that it belongs to, plus 1; 0: none.
    owner: Cell<u32>,
    /// Place of the name among names, plus 1; 0: the slot never had one. Stays with the slot for its next slice.
    name: Cell<u32>,
    user_data: Cell<u64>,
}

pub(crate) struct Labels {
    by_slot: Beside<Node, Attached>,
    names: Chunked<Cell<Name>>,
}

/// Host memory that labels need before one can be attached.
pub(crate) enum LabelsLacking {
    Labels,
    Slots(u32),
    Names(ChunkPlan),
}

/// Such memory, to be installed.
pub(crate) enum LabelMemory {
    Labels(Array<Labels>),
    Slots(u32, Array<Attached>),
    Names(Chunk<Cell<Name>>),
}

impl LabelsLacking {
    #[cold]
    pub(crate) fn allocate(self, memory: HostMemory) -> Result<LabelMemory, Error> {
        Ok(match self {
            LabelsLacking::Labels => LabelMemory::Labels(Array::try_new(memory, 1, |_| {
                Ok(Labels { by_slot: Beside::new(), names: Chunked::new(memory) })
            })?),
            LabelsLacking::Slots(slot) => {
                LabelMemory::Slots(slot, Beside::<Node, _>::allocate(memory, number_of(slot))?)
            }
            LabelsLacking::Names(plan) => LabelMemory::Names(Chunk::allocate(memory, plan)?),
        })
    }
}

impl Pool {
    fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref().map(|labels| &labels[0])
    }

    /// The host memory that is lacking before a label can be attached to a slot; `None` if nothing is.
    #[cold]
    pub(crate) fn lacks_for_label(&self, slot: u32, label: &Label) -> Result<Option<LabelsLacking>, Error> {
        let Some(labels) = self.labels() else { return Ok(Some(LabelsLacking::Labels)) };
        let Some(attached) = labels.by_slot.get(number_of(slot)) else { return Ok(Some(LabelsLacking::Slots(slot))) };
        if attached.name.get() == 0 && !label.name.is_empty() && labels.names.spare() == 0 {
            return Ok(Some(LabelsLacking::Names(labels.names.plan()?)));
        }
        Ok(None)
    }

    /// Installs what was lacking; hands it back if another thread was faster.
    #[cold]
    pub(crate) fn install_for_labels(&mut self, memory: LabelMemory) -> Option<LabelMemory> {
        let Some(labels) = &mut self.labels else {
            return match memory {
                LabelMemory::Labels(labels) => {
                    self.labels = Some(labels);
                    None
                }
                other => Some(other),
            };
        };
        let labels = labels.as_mut_slice().first_mut()?;
        match memory {
            LabelMemory::Labels(labels) => Some(LabelMemory::Labels(labels)),
            LabelMemory::Slots(slot, chunk) => {
                labels.by_slot.install(number_of(slot), chunk).map(|chunk| LabelMemory::Slots(slot, chunk))
            }
            LabelMemory::Names(chunk) => labels.names.install(chunk).map(LabelMemory::Names),
        }
    }

    /// Attaches a label to a live slot. Nothing may be lacking.
    #[cold]
    pub(crate) fn set_label(&mut self, slot: u32, label: &Label) {
        let owner = self.slicer.node(slot).generation() + 1;
        let Some(labels) = self.labels.as_mut().and_then(|labels| labels.as_mut_slice().first_mut()) else { return };
        let Some(attached) = labels.by_slot.get(number_of(slot)) else { return };
        if attached.name.get() == 0 && !label.name.is_empty() {
            attached.name.set(labels.names.push(Cell::new(Name::NONE)) + 1);
        }
        if attached.name.get() != 0 {
            labels.names[attached.name.get() - 1].set(label.name);
        }
        attached.owner.set(owner);
        attached.user_data.set(label.user_data);
    }

    fn attached(&self, slot: u32) -> Option<(&Labels, &Attached)> {
        let labels = self.labels()?;
        let attached = labels.by_slot.get(number_of(slot))?;
        let is_own = attached.owner.get() == self.slicer.node(slot).generation() + 1;
        (is_own || broken("labels_outlive_slices")).then_some((labels, attached))
    }

    /// The user data of a live or pending slot, 0 if it has none.
    #[inline]
    pub(crate) fn user_data(&self, slot: u32) -> u64 {
        if self.labels.is_none() {
            return 0;
        }
        self.attached(slot).map_or(0, |(_, attached)| attached.user_data.get())
    }

    /// What is attached to a live or pending slot.
    #[cold]
    pub(crate) fn label(&self, slot: u32) -> Label {
        let Some((labels, attached)) = self.attached(slot) else { return Label::NONE };
        let name = match attached.name.get() {
            0 => Name::NONE,
            name => labels.names[name - 1].get(),
        };
        Label { name, user_data: attached.user_data.get() }
    }

    /// Host bytes held for labels.
    pub(super) fn label_bytes(&self) -> u64 {
        let bytes = |labels: &Labels| labels.by_slot.bytes() + labels.names.bytes();
        self.labels().map_or(0, |labels| size_of::<Labels>() as u64 + bytes(labels))
    }
}
