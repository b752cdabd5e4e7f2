//! Which device memory is live, so that memory given out twice is noticed, and how much of it there is.
//!
//! A hash table whose growth never blocks anybody: a larger table is got outside the lock, and entries move over a
//! few at a time with every later change.
#![forbid(unsafe_code)]

use crate::allocator::sizing::Needs;
use crate::budget::Account;
use crate::canary::broken;
use crate::device::{DeviceLayout, DeviceMemory, Heap};
use crate::error::Error;
use crate::metadata::{Array, HostMemory};
use crate::parts::COMPLETE;
use crate::report::Statistics;
use hashbrown::HashTable;

/// A page the device has given out, told apart by handle and address.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    handle: u64,
    address: u64,
    /// Given out and not on its way back.
    live: bool,
    /// Calls that are giving it back right now: while one is under way, the device may already give the same memory
    /// out again.
    leaving: u32,
}

impl Entry {
    fn new(memory: &DeviceMemory) -> Self {
        Self { handle: memory.handle, address: memory.address, live: true, leaving: 0 }
    }

    fn is(&self, other: &Entry) -> bool {
        self.handle == other.handle && self.address == other.address
    }

    /// A fixed function, so that no two runs differ: the finishing steps of a 64-bit mixing hash.
    fn hash(&self) -> u64 {
        let mut hash = self.handle ^ self.address.rotate_left(32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        hash ^ (hash >> 33)
    }
}

/// The table, or the memory for one.
pub(crate) type Table = HashTable<Entry, HostMemory>;

/// Buckets of the old table that are looked at with every change. The new table has room for twice the entries, so
/// the old one is empty long before the new one is full.
const MOVES_PER_CHANGE: usize = 8;

/// Why no entry could be promised.
pub(crate) enum NoRoom {
    /// Some entries have moved to the table that is there; ask again. Perhaps the emptied table, to be dropped.
    Moved(Option<Table>),
    /// A new table is needed, with room for so many entries: see [`Ledger::make_table`].
    NeedsTable(usize),
}

pub(crate) struct Ledger {
    table: Table,
    /// The smaller table that is being emptied, and the next bucket to look at.
    old: Option<(Table, usize)>,
    /// Entries promised to device calls in flight.
    promised: usize,
    held: Held,
    /// The allocator's own limits.
    account: Account,
    types: Array<Held>,
    heaps: Array<HeapBooks>,
}

/// What is held of a heap, and its limit.
struct HeapBooks {
    held: Held,
    account: Account,
}

/// Where a page comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) memory_type: u32,
    pub(crate) heap: u32,
}

/// What all pools of an allocator hold together, and the most that has been.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held {
    pub(crate) bytes: u64,
    pub(crate) bytes_peak: u64,
    /// Pages that serve: neither on their way back nor stuck.
    pages: u32,
    pub(crate) pages_peak: u32,
}

impl Held {
    /// A page has come.
    pub(crate) fn take(&mut self, bytes: u64) {
        self.take_useless(bytes);
        self.pages += 1;
        self.pages_peak = self.pages_peak.max(self.pages);
    }

    /// A page has come that is of no use and does not go back.
    pub(crate) fn take_useless(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes_peak = self.bytes_peak.max(self.bytes);
    }

    /// A page has begun to leave.
    pub(crate) fn begin_return(&mut self) {
        self.pages -= 1;
    }

    /// The most that has been held.
    #[cold]
    pub(crate) fn add_peaks(&self, figures: &mut Statistics) {
        figures.reserved_peak = self.bytes_peak;
        figures.pages_peak = self.pages_peak;
    }

    /// What is held now is the most that has been, as far as anybody remembers.
    pub(crate) fn forget_peaks(&mut self) {
        self.bytes_peak = self.bytes;
        self.pages_peak = self.pages;
    }

    /// A page has left.
    pub(crate) fn end_return(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(if broken("held_for_ever") { 0 } else { bytes });
    }
}

impl Ledger {
    pub(crate) fn try_new(memory: HostMemory, account: Account, types: u32, heaps: &[Heap]) -> Result<Self, Error> {
        let heap_books = |i| {
            let limit = heaps.get(i as usize).and_then(|heap: &Heap| heap.limit);
            Ok(HeapBooks { held: Held::default(), account: Account::new(limit, None) })
        };
        let (types, heaps) = match COMPLETE {
            true => (
                Array::try_new(memory, types, |_| Ok(Held::default()))?,
                Array::try_new(memory, heaps.len().max(1) as u32, heap_books)?,
            ),
            false => (Array::empty(memory), Array::empty(memory)),
        };
        let table = HashTable::new_in(memory);
        Ok(Self { table, old: None, promised: 0, held: Held::default(), account, types, heaps })
    }

    /// The most host memory that a ledger of `pages` pages asks for.
    pub(crate) fn add_needs(pages: u32, memory: &DeviceLayout<'_>, needs: &mut Needs) {
        if !COMPLETE {
            return;
        }
        needs.add::<Held>(memory.types.len() as u64);
        needs.add::<HeapBooks>(memory.heaps.len().max(1) as u64);
        let entries = u64::from(pages) + 1;
        // Room for twice the entries, in a power of two of which an eighth stays empty; and control bytes.
        let buckets = (entries * 2 * 8).div_ceil(7).next_power_of_two().max(16);
        // The table in use, the one it has replaced, and one that has been got too late.
        for _ in 0..3 {
            needs.add::<Entry>(buckets);
            needs.add::<u128>((buckets + 32).div_ceil(16));
        }
    }

    /// What all pools hold together.
    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// What is held of a memory type.
    pub(crate) fn held_of_type(&self, memory_type: u32) -> &Held {
        &self.types[memory_type]
    }

    /// What is held of a heap.
    pub(crate) fn held_of_heap(&self, heap: u32) -> &Held {
        &self.heaps[heap].held
    }

    /// Notes a change of what is held from somewhere, wherever it counts.
    #[cold]
    #[inline(never)]
    pub(crate) fn note(&mut self, origin: Origin, change: impl Fn(&mut Held)) {
        change(&mut self.held);
        change(&mut self.types[if broken("one_type_for_all") { 0 } else { origin.memory_type }]);
        change(&mut self.heaps[origin.heap].held);
    }

    /// What is held now is the most that has been, as far as anybody remembers.
    #[cold]
    pub(crate) fn forget_peaks(&mut self) {
        self.held.forget_peaks();
        self.types.as_mut_slice().iter_mut().for_each(Held::forget_peaks);
        self.heaps.as_mut_slice().iter_mut().for_each(|heap| heap.held.forget_peaks());
    }

    /// Reserves a page under the allocator's own limits and its heap's.
    #[cold]
    #[inline(never)]
    pub(crate) fn reserve(&mut self, heap: u32, bytes: u64) -> Result<(), Error> {
        self.account.reserve(bytes)?;
        if !COMPLETE {
            return Ok(());
        }
        let reserved = self.heaps[heap].account.reserve(bytes);
        if reserved.is_err() {
            self.account.release(bytes);
        }
        reserved.map_err(|error| match error {
            Error::BudgetExceeded { size, limit, reserved } => {
                Error::HeapBudgetExceeded { heap, size, limit, reserved }
            }
            other => other,
        })
    }

    /// Returns what was reserved for a page.
    #[cold]
    #[inline(never)]
    pub(crate) fn release(&mut self, heap: u32, bytes: u64) {
        if COMPLETE {
            self.heaps[heap].account.release(bytes);
        }
        self.account.release(bytes);
    }

    /// Bytes that the next page from a heap can have.
    pub(crate) fn room(&self, heap: u32) -> u64 {
        self.account.room().min(self.heaps[heap].account.room())
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    fn old_entries(&self) -> usize {
        self.old.as_ref().map_or(0, |(old, _)| old.len())
    }

    /// Sets an entry aside, so that [`Ledger::enter`] cannot fail. If there is no room: what to do outside the lock before
    /// asking again.
    #[cold]
    #[inline(never)]
    pub(crate) fn promise(&mut self) -> Result<(), NoRoom> {
        // Capacity counts what can be inserted without a rehash, which places of removed entries may not allow.
        let room = self.table.capacity() - self.table.len();
        if room > self.old_entries() + self.promised {
            self.promised += 1;
            return Ok(());
        }
        // What is in the old table has room in the new one as if it were promised.
        if self.old.is_some() {
            Err(NoRoom::Moved(self.move_some()))
        } else {
            Err(NoRoom::NeedsTable(self.wanted_capacity()))
        }
    }

    /// What a new table has room for: enough changes for the present one to be emptied before the new one is full.
    fn wanted_capacity(&self) -> usize {
        let entries = self.table.len() + self.old_entries() + self.promised + 1;
        (entries * 2).max(entries + self.table.num_buckets() / (MOVES_PER_CHANGE / 2))
    }

    /// An empty table with room for `capacity` entries.
    pub(crate) fn make_table(memory: HostMemory, capacity: usize) -> Result<Table, Error> {
        let mut table = HashTable::new_in(memory);
        match table.try_reserve(capacity, Entry::hash) {
            Ok(()) => Ok(table),
            Err(_) => {
                Err(Error::OutOfHostMemory { bytes: (capacity as u64).saturating_mul(size_of::<Entry>() as u64) })
            }
        }
    }

    /// Makes `table` the one that new entries go to. Hands back a table to drop outside the lock: `table` itself if
    /// another thread was faster, or if it is too small by now.
    #[cold]
    #[inline(never)]
    pub(crate) fn install(&mut self, table: Table) -> Option<Table> {
        let too_small = !broken("table_too_small") && table.capacity() < self.wanted_capacity();
        if self.old_entries() != 0 || too_small {
            return Some(table);
        }
        let emptied = self.old.take().map(|(old, _)| old);
        let old = core::mem::replace(&mut self.table, table);
        self.old = Some((old, 0));
        emptied
    }

    pub(crate) fn release_promise(&mut self) {
        self.promised -= 1;
    }

    /// Enters memory that the device has given out, using up a promise; `false` if it is live already. Hands out an
    /// emptied table, to be dropped outside the lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter(&mut self, memory: &DeviceMemory) -> (bool, Option<Table>) {
        self.promised -= 1;
        let emptied = self.move_some();
        let wanted = Entry::new(memory);
        if let Some(entry) = self.find(&wanted) {
            let entered = !entry.live;
            entry.live = true;
            return (entered, emptied);
        }
        self.table.insert_unique(wanted.hash(), wanted, Entry::hash);
        (true, emptied)
    }

    /// Memory is about to be given back: from now on the device may give it out again.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin_leaving(&mut self, memory: &DeviceMemory) {
        if let Some(entry) = self.find(&Entry::new(memory)) {
            entry.live = false;
            entry.leaving += 1;
        }
    }

    /// The device has taken memory back, or has refused to. Whether it has given it out again meanwhile.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_leaving(&mut self, memory: &DeviceMemory, taken: bool) -> bool {
        let wanted = Entry::new(memory);
        let Some(entry) = self.find(&wanted) else { return false };
        let given_again = entry.live;
        entry.leaving -= 1;
        entry.live |= !taken;
        if entry.live || entry.leaving != 0 {
            return given_again;
        }
        let hash = wanted.hash();
        if let Ok(entry) = self.table.find_entry(hash, |entry| entry.is(&wanted)) {
            entry.remove();
        } else if let Some((old, _)) = &mut self.old {
            if let Ok(entry) = old.find_entry(hash, |entry| entry.is(&wanted)) {
                entry.remove();
            }
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn find(&mut self, wanted: &Entry) -> Option<&mut Entry> {
        let hash = wanted.hash();
        if let Some((old, _)) = &mut self.old {
            if let Some(entry) = old.find_mut(hash, |entry| entry.is(wanted)) {
                return Some(entry);
            }
        }
        self.table.find_mut(hash, |entry| entry.is(wanted))
    }

    fn move_some(&mut self) -> Option<Table> {
        let (old, next) = self.old.as_mut()?;
        for _ in 0..MOVES_PER_CHANGE {
            if let Ok(bucket) = old.get_bucket_entry(*next) {
                let (entry, _) = bucket.remove();
                // Room for all of the old table was there when this one took its place.
                debug_assert!(self.table.capacity() > self.table.len());
                self.table.insert_unique(entry.hash(), entry, Entry::hash);
            }
            *next += 1;
        }
        if old.is_empty() { self.old.take().map(|(old, _)| old) } else { None }
    }

    /// Host bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        let old = self.old.as_ref().map_or(0, |(old, _)| old.allocation_size());
        (self.table.allocation_size() + old) as u64 + self.types.bytes() + self.heaps.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(ledger: &mut Ledger, handle: u64) -> bool {
        let mut tries = 0;
        while let Err(no_room) = ledger.promise() {
            if let NoRoom::NeedsTable(capacity) = no_room {
                drop(ledger.install(Ledger::make_table(HostMemory::global(), capacity).unwrap()));
            }
            tries += 1;
            assert!(tries < 1000, "there is never room");
        }
        ledger.enter(&DeviceMemory::new(handle)).0
    }

    fn leave(ledger: &mut Ledger, handle: u64) {
        ledger.begin_leaving(&DeviceMemory::new(handle));
        ledger.end_leaving(&DeviceMemory::new(handle), true);
    }

    #[test]
    fn memory_that_is_live_is_noticed_across_growth_and_removal() {
        let mut ledger = Ledger::try_new(HostMemory::global(), Account::new(None, None), 1, &[]).unwrap();
        for handle in 0..5_000 {
            assert!(enter(&mut ledger, handle));
            assert!(!enter(&mut ledger, handle / 2), "{handle}");
            if handle % 3 == 0 {
                leave(&mut ledger, handle);
                assert!(enter(&mut ledger, handle));
            }
        }
        assert_eq!(ledger.table.len() + ledger.old_entries(), 5_000);
    }

    #[test]
    fn memory_given_out_again_while_it_is_being_given_back_is_no_duplicate() {
        let mut ledger = Ledger::try_new(HostMemory::global(), Account::new(None, None), 1, &[]).unwrap();
        let memory = DeviceMemory::new(7);
        assert!(enter(&mut ledger, 7));
        ledger.begin_leaving(&memory);
        assert!(enter(&mut ledger, 7));
        ledger.end_leaving(&memory, true);
        assert!(!enter(&mut ledger, 7));
        leave(&mut ledger, 7);
        assert!(enter(&mut ledger, 7));
    }

    #[test]
    fn memory_that_the_device_refused_to_take_back_stays_live() {
        let mut ledger = Ledger::try_new(HostMemory::global(), Account::new(None, None), 1, &[]).unwrap();
        assert!(enter(&mut ledger, 7));
        ledger.begin_leaving(&DeviceMemory::new(7));
        ledger.end_leaving(&DeviceMemory::new(7), false);
        assert!(!enter(&mut ledger, 7));
    }

    /// Two threads want a table; the slower one has its own when the faster one's is nearly full, and it is hardly larger
    /// than what there is.
    #[test]
    fn a_table_that_was_asked_for_long_ago_never_leaves_the_ledger_without_room() {
        for entries in 0..400 {
            for late in 1..12 {
                let mut ledger = Ledger::try_new(HostMemory::global(), Account::new(None, None), 1, &[]).unwrap();
                (0..entries).for_each(|handle| assert!(enter(&mut ledger, handle)));
                let stale = Ledger::make_table(HostMemory::global(), ledger.wanted_capacity()).unwrap();
                (0..entries * late / 8).for_each(|handle| assert!(enter(&mut ledger, 1_000 + handle)));
                drop(ledger.install(stale));
                (0..500).for_each(|handle| assert!(enter(&mut ledger, 10_000 + handle), "{entries} {late}"));
            }
        }
    }

    #[test]
    fn a_table_that_is_entered_and_left_for_ever_stays_small() {
        let mut ledger = Ledger::try_new(HostMemory::global(), Account::new(None, None), 1, &[]).unwrap();
        for handle in 0..200_000 {
            assert!(enter(&mut ledger, handle));
            if handle >= 10 {
                leave(&mut ledger, handle - 10);
            }
        }
        assert!(ledger.bytes() < 8192 + 256, "{}", ledger.bytes());
    }
}
