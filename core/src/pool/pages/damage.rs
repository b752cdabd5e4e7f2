//! Damage to the books of pages, one field at a time, that [`Pages::check`] must notice.

use super::*;
use core::fmt::Debug;
use std::vec::Vec;

/// What the pages of a pool may be doing at any one time, of each kind more than one.
fn busy_pages(dealloc_period: Option<u64>) -> Pages {
    let mut pages = Pages::new(HostMemory::global(), dealloc_period, false, true);
    for number in 0..130 {
        while !pages.has_record() {
            let chunk = Chunk::allocate(HostMemory::global(), pages.plan().unwrap()).unwrap();
            assert!(pages.install_chunk(chunk).is_none());
        }
        let mut memory = DeviceMemory::new(if number % 7 == 0 { u64::MAX } else { number });
        memory.size = 100 + number;
        pages.add(memory, 32 * number as u32);
    }
    let indices: Vec<u32> = pages.pages.indices().collect();
    let mut now = 0;
    for (number, &index) in indices.iter().enumerate() {
        now += 3;
        if dealloc_period.is_some() {
            pages.check_age(now);
        }
        if number % 5 == 0 {
            continue;
        }
        pages.set_idle(index, now);
        match number % 5 {
            1 => pages.set_leaving(index),
            2 => {
                pages.set_leaving(index);
                pages.set_vacant(index);
            }
            3 if number % 2 == 0 => {
                pages.set_leaving(index);
                pages.set_stuck(index);
            }
            _ => {}
        }
    }
    pages.check().unwrap();
    pages
}

fn noticed<T: Copy + PartialEq + Debug>(
    pages: &mut Pages,
    what: &str,
    field: impl Fn(&mut Pages) -> &mut T,
    values: impl IntoIterator<Item = T>,
) {
    let before = *field(pages);
    for value in values {
        if value != before {
            *field(pages) = value;
            assert!(pages.check().is_err(), "{what} from {before:?} to {value:?}");
            *field(pages) = before;
        }
    }
    pages.check().unwrap();
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_wrong_figure_of_the_pages_is_noticed() {
    for dealloc_period in [None, Some(400)] {
        let mut pages = busy_pages(dealloc_period);
        let pages = &mut pages;
        let near = |value: u32| [value + 1, value - 1, 0];
        let near_of_64 = |value: u64| [value + 1, value - 1, 0];
        let Pages { count, idle_count, stuck_count, vacant_count, leaving_count, unmapped_count, .. } = *pages;
        noticed(pages, "count", |pages| &mut pages.count, near(count));
        noticed(pages, "idle_count", |pages| &mut pages.idle_count, near(idle_count));
        noticed(pages, "stuck_count", |pages| &mut pages.stuck_count, near(stuck_count));
        noticed(pages, "vacant_count", |pages| &mut pages.vacant_count, near(vacant_count));
        noticed(pages, "leaving_count", |pages| &mut pages.leaving_count, near(leaving_count));
        noticed(pages, "unmapped_count", |pages| &mut pages.unmapped_count, near(unmapped_count));
        let Pages { reserved, leaving, stuck_bytes, unmapped_bytes, .. } = *pages;
        noticed(pages, "reserved", |pages| &mut pages.reserved, [reserved + 1, reserved - 1]);
        noticed(pages, "leaving", |pages| &mut pages.leaving, near_of_64(leaving));
        noticed(pages, "stuck_bytes", |pages| &mut pages.stuck_bytes, near_of_64(stuck_bytes));
        noticed(pages, "unmapped_bytes", |pages| &mut pages.unmapped_bytes, near_of_64(unmapped_bytes));
        // One byte more on one side and one less on another.
        pages.leaving += 1;
        pages.stuck_bytes -= 1;
        assert!(pages.check().is_err());
        pages.leaving -= 1;
        pages.stuck_bytes += 1;
        let others: Vec<u32> = pages.pages.indices().chain([NONE]).collect();
        let any = || others.iter().copied();
        noticed(pages, "idle.oldest", |pages| &mut pages.idle.oldest, any());
        noticed(pages, "idle.newest", |pages| &mut pages.idle.newest, any());
        noticed(pages, "stuck.oldest", |pages| &mut pages.stuck.oldest, any());
        noticed(pages, "stuck.newest", |pages| &mut pages.stuck.newest, any());
        if dealloc_period.is_some() {
            noticed(pages, "expired.oldest", |pages| &mut pages.ageing.expired.oldest, any());
            noticed(pages, "expired.newest", |pages| &mut pages.ageing.expired.newest, any());
            for list in 0..STALE as usize {
                noticed(pages, "due.oldest", |pages| &mut pages.ageing.due[list].oldest, any());
                noticed(pages, "due.newest", |pages| &mut pages.ageing.due[list].newest, any());
            }
            let checks = pages.ageing.checks;
            noticed(pages, "checks", |pages| &mut pages.ageing.checks, [checks + 1, checks - 1]);
        }
    }
}

#[cfg_attr(not(feature = "complete"), ignore = "needs a complete build")]
#[test]
fn a_wrong_field_of_any_page_is_noticed() {
    for dealloc_period in [None, Some(400)] {
        let mut pages = busy_pages(dealloc_period);
        let indices: Vec<u32> = pages.pages.indices().collect();
        for &index in &indices {
            let any = || indices.iter().copied().chain([NONE]);
            let state = pages[index].state.get();
            let is_listed = matches!(state, State::Idle | State::Stuck);
            let ages = state == State::Idle && dealloc_period.is_some();
            let mut link = |what: &str, field: fn(&mut Page) -> &mut Cell<u32>| {
                noticed(&mut pages, what, |pages| field(&mut pages.pages[index]).get_mut(), any());
            };
            if is_listed {
                link("order.before", |page| &mut page.order.before);
                link("order.after", |page| &mut page.order.after);
            }
            if ages {
                link("age.before", |page| &mut page.age.before);
                link("age.after", |page| &mut page.age.after);
            }
            let states = [State::Vacant, State::Busy, State::Idle, State::Leaving, State::Stuck];
            noticed(&mut pages, "state", |pages| pages.pages[index].state.get_mut(), states);
            if state != State::Vacant {
                let size = pages[index].memory.size;
                noticed(&mut pages, "size", |pages| &mut pages.pages[index].memory.size, [size + 1, size - 1]);
            }
            if ages {
                let expiry = pages[index].expiry.get();
                let is_due = expiry > pages.ageing.checks;
                // One that has expired has, whenever that was.
                let values = [expiry + 1 + pages.ageing.checks, if is_due { expiry - 1 } else { expiry }];
                noticed(&mut pages, "expiry", |pages| pages.pages[index].expiry.get_mut(), values);
            }
            let now = pages[index].idle_since.get();
            if state == State::Idle && pages.idle.oldest != index && pages.idle.newest != index {
                noticed(
                    &mut pages,
                    "idle_since",
                    |pages| pages.pages[index].idle_since.get_mut(),
                    [now.wrapping_add(999), now.wrapping_sub(999)],
                );
            }
            for set in [Set::Idle, Set::Vacant] {
                let mask = 1u64 << (index & 63);
                let bits = pages.marks_of(set, index).0.get() ^ mask;
                let holder = index & !63;
                noticed(&mut pages, "bits", |pages| pages.pages[holder].marks[set as usize].bits.get_mut(), [bits]);
                let groups = pages.marks_of(set, index).1.get() ^ 1 << (index >> 6 & 63);
                let holder = index & !4095;
                noticed(
                    &mut pages,
                    "groups",
                    |pages| pages.pages[holder].marks[set as usize].groups.get_mut(),
                    [groups],
                );
            }
        }
    }
}
