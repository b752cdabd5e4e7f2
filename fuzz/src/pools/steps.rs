//! What is done with an allocator.

use super::shape;
use super::subject::{MOST_SLICES, Subject, TIMELINES};
use crate::input::Input;
use slicepool_core::{
    DeviceMemory, Error, Label, MemoryChoice, NearPage, PageRequest, Point, PoolType, Request, ResourceKind, SliceId,
};

impl Subject {
    pub(super) fn step(&self, input: &mut Input<'_>) {
        match input.byte() & 31 {
            0..=7 => {
                let request = self.request(input);
                self.allocate(&request);
            }
            8..=11 => self.free(self.live(input.below(256))),
            12 => self.free(self.any(input)),
            13 | 14 => self.free_after(input),
            15 | 16 => self.progress(input),
            17 => self.resize(input),
            18 => self.allocate_many(input),
            19 => self.free_many(input),
            20 | 21 => {
                let script: Vec<_> = (0..input.below(8)).map(|_| input.byte()).collect();
                let mut state = self.world.state.borrow_mut();
                if !state.habits.is_honest {
                    state.script.extend(script);
                }
            }
            22 => {
                let _ = self.allocator().trim(if input.one_in(2) { 0 } else { input.number() });
            }
            23 => {
                let _ = self.allocator().cleanup();
            }
            24 => self.map(input),
            25 => self.never_grow(input),
            26 => self.install_others(input),
            27 => self.resolve(input),
            28 => self.adopt(input),
            29 => {
                let pool = u32::from(input.byte() & 7);
                let refused = self.allocator().prefill(pool, u32::from(input.byte() & 7));
                let exists = (pool as usize) < self.allocator().pool_count();
                assert!(exists || matches!(refused, Err(Error::InvalidArgument { field, .. }) if field == c"pool"));
            }
            30 => self.look(input),
            _ => self.change_limits(input),
        }
        self.host.fail_in(None);
    }

    fn request(&self, input: &mut Input<'_>) -> Request {
        let measure = {
            let measures = self.measures.borrow();
            measures[input.below(measures.len())]
        };
        let mut request = Request::new(input.size(measure.granule, measure.page)).aligned(input.alignment());
        let more = input.byte();
        if more < 128 {
            return request;
        }
        if more & 1 != 0 {
            request = request.in_pool(u32::from(input.byte() & 7));
        }
        if more & 6 == 6 {
            request = request.dedicated();
        }
        if more & 6 == 2 {
            request = request.persistent();
        }
        if more & 8 != 0 {
            request = request.of_kind(ResourceKind::Optimal);
        }
        if more & 16 != 0 {
            request = if more & 1 != 0 { request.zeroed() } else { request.scrubbed() };
        }
        if more & 96 == 96 {
            let choice = MemoryChoice::of_types(u32::from(input.byte())).requiring(u32::from(input.byte() & 3));
            request = request.from_memory(choice.preferring(4).forbidding(u32::from(input.byte() & 1)));
        }
        if more & 96 == 32 {
            request = request.with_search_depth(input.count());
        }
        if more & 96 == 64 {
            request = request.within_budget();
        }
        request
    }

    /// A handle that may be good, freed or none at all.
    fn any(&self, input: &mut Input<'_>) -> Option<SliceId> {
        let raw = match input.byte() & 7 {
            0..=2 => {
                let stale = self.stale.borrow();
                stale.get(input.below(stale.len().max(1))).copied()?
            }
            3..=5 => self.live(input.below(256))?.to_raw() ^ 1 << (input.byte() & 63),
            _ => input.word(),
        };
        SliceId::from_raw(raw)
    }

    fn is_live(&self, id: SliceId) -> bool {
        self.world.state.borrow().live.contains_key(&id.to_raw())
    }

    /// What a handle that is not live is refused with.
    fn check_refusal(&self, id: SliceId, found: Error) {
        let refused = matches!(found, Error::StaleHandle | Error::ForeignHandle);
        let stale = self.stale.borrow().contains(&id.to_raw());
        assert!(refused && (found == Error::StaleHandle || !stale), "{id:?}: {found:?}");
    }

    fn points(&self, input: &mut Input<'_>) -> Vec<Point> {
        let count = if input.one_in(64) { 65 } else { input.below(4) };
        let one = |input: &mut Input<'_>| {
            let timeline = input.pick(&TIMELINES);
            let now = self.world.state.borrow().progress.get(&timeline).copied().unwrap_or(0);
            let value = if input.one_in(16) { input.number() } else { now.saturating_add(u64::from(input.byte() & 7)) };
            Point::new(timeline, value)
        };
        (0..count).map(|_| one(input)).collect()
    }

    fn allocate(&self, request: &Request) {
        if self.world.state.borrow().live.len() >= MOST_SLICES {
            return;
        }
        let failures = self.host.failures();
        let would_fit = self.allocator().would_fit(request);
        match self.allocator().allocate(request) {
            Ok(slice) => {
                self.add(slice, request);
                assert!(would_fit.is_ok(), "{would_fit:?}, and was served");
            }
            Err(Error::InvalidArgument { field, value }) => {
                let wrong = [(c"size", request.size), (c"alignment", request.alignment)];
                let pool = request.pool.map_or(0, u64::from);
                // A memory type without room for a page of its own.
                let no_page = field == c"max_page" && self.types.len() > 1;
                let named = wrong.contains(&(field, value)) || (field, value) == (c"pool", pool);
                assert!(named || no_page, "{field:?} {value}");
            }
            Err(Error::OutOfHostMemory { .. }) => {
                assert_ne!(self.host.failures(), failures, "the host has memory");
            }
            Err(error) => self.check_error(request, error),
        }
    }

    /// Whether a refusal is one that can be.
    fn check_error(&self, request: &Request, error: Error) {
        let state = self.world.state.borrow();
        match error {
            Error::TooLarge { size, limit } => assert!(size == request.size && limit < size, "{error:?}"),
            Error::BudgetExceeded { size, limit, .. } => {
                let ours = state.habits.max_bytes == Some(limit);
                assert!(size != 0 && (ours || self.budget.is_some()), "{error:?}");
            }
            Error::PageCountExceeded { limit, .. } => {
                assert!(state.habits.max_pages == Some(limit) || self.budget.is_some(), "{error:?}");
            }
            Error::OutOfDeviceMemory { .. } | Error::DeviceFailed { .. } => {
                assert!(state.faults != 0, "the device has not refused anything: {error:?}");
            }
            Error::Busy { .. } => panic!("nothing is being closed: {error:?}"),
            Error::PoolCapacityExceeded { size, largest_free, .. } => {
                assert_eq!(size, request.size);
                let plain = request.search_depth().is_none() && request.pool.is_none() && request.alignment == 1;
                // A hole that is known to be there holds whatever is not larger than it.
                let serves = plain && self.measures.borrow().len() == 1 && !request.is_persistent();
                let own = request.is_dedicated() || request.kind() == ResourceKind::Optimal;
                assert!(!serves || own || largest_free < size, "{error:?}");
            }
            Error::HeapBudgetExceeded { .. } | Error::NotSupported { .. } => {}
            _ => panic!("{error:?} for {request:?}"),
        }
    }

    /// A request that must not grow is served if it is said to fit, and the device hears nothing of it.
    fn never_grow(&self, input: &mut Input<'_>) {
        if self.world.state.borrow().live.len() >= MOST_SLICES {
            return;
        }
        let request = self.request(input).never_growing();
        let would_fit = self.allocator().would_fit(&request);
        let asked = self.world.state.borrow().asked;
        let quiet = self.world.state.borrow().script.is_empty();
        let outcome = self.allocator().allocate(&request);
        if quiet {
            assert_eq!(self.world.state.borrow().asked, asked, "the device was called for {request:?}");
            assert_eq!(outcome.is_ok(), would_fit == Ok(true), "{outcome:?}, {would_fit:?}: {request:?}");
        }
        if let Ok(slice) = outcome {
            self.add(slice, &request);
        }
    }

    fn free(&self, id: Option<SliceId>) {
        let Some(id) = id else { return };
        let live = self.is_live(id);
        match self.free_with(&[id], &[], || self.allocator().free(id)) {
            Ok(()) => assert!(live, "{id:?} was freed"),
            Err(error) if live => panic!("{error:?}, but {id:?} is live"),
            Err(error) => self.check_refusal(id, error),
        }
    }

    fn free_after(&self, input: &mut Input<'_>) {
        let id = if input.one_in(8) { self.any(input) } else { self.live(input.below(256)) };
        let points = self.points(input);
        let Some(id) = id else { return };
        let live = self.is_live(id);
        if input.one_in(16) {
            self.host.fail_in(Some(0));
        }
        let failures = self.host.failures();
        match self.free_with(&[id], &points, || self.allocator().free_after(id, &points)) {
            Ok(()) => assert!(live && points.len() <= 64, "{id:?} waits"),
            Err(Error::OutOfHostMemory { .. }) => assert_ne!(self.host.failures(), failures),
            Err(Error::InvalidArgument { .. }) => assert!(points.len() > 64),
            Err(error) if live => panic!("{error:?}, but {id:?} is live"),
            Err(error) => self.check_refusal(id, error),
        }
    }

    fn progress(&self, input: &mut Input<'_>) {
        let timeline = input.pick(&TIMELINES);
        let by = if input.one_in(32) { input.number() } else { u64::from(input.byte() & 7) };
        let now = {
            let mut state = self.world.state.borrow_mut();
            let now = state.progress.entry(timeline).or_default();
            *now = now.saturating_add(by);
            *now
        };
        if input.one_in(16) {
            let forgotten = self.allocator().timeline_forget(timeline);
            if forgotten.is_ok() {
                self.world.state.borrow_mut().forget(timeline);
            }
        } else {
            let _ = self.collect(timeline, now);
        }
    }

    fn resize(&self, input: &mut Input<'_>) {
        let id = if input.one_in(8) { self.any(input) } else { self.live(input.below(256)) };
        let size = self.request(input).size;
        let Some(id) = id else { return };
        let live = self.world.state.borrow().live.get(&id.to_raw()).copied();
        match (self.allocator().try_resize(id, size), live) {
            (Ok(slice), Some(mut live)) => {
                assert!(slice.size >= size && !live.scrub);
                let same = (slice.id, slice.memory, slice.offset);
                assert_eq!(same, (id, live.slice.memory, live.slice.offset), "it stays where it is");
                (live.slice, live.asked) = (slice, size);
                // Unless a callback has freed it meanwhile.
                if let Some(known) = self.world.state.borrow_mut().live.get_mut(&id.to_raw()) {
                    *known = live;
                }
            }
            (Err(Error::NoRoom { available, .. }), Some(live)) => {
                assert!(available < size && available >= live.slice.size, "{available} for {size}: {live:?}");
            }
            (Err(Error::NotSupported { .. }), Some(live)) => assert!(live.scrub),
            (Err(Error::TooLarge { .. } | Error::InvalidArgument { .. }), Some(_)) => {}
            (Err(error), None) => self.check_refusal(id, error),
            (found, live) => panic!("{found:?} for {live:?}"),
        }
    }

    fn allocate_many(&self, input: &mut Input<'_>) {
        let requests: Vec<_> = (0..input.below(6)).map(|_| self.request(input)).collect();
        if self.world.state.borrow().live.len() + requests.len() > MOST_SLICES {
            return;
        }
        let unseen = self.world.state.borrow().unseen;
        self.world.state.borrow_mut().unseen |= requests.iter().any(Request::is_scrubbed);
        match self.allocator().allocate_many(&requests) {
            Ok(batch) => {
                self.world.state.borrow_mut().unseen = unseen;
                assert_eq!(batch.len(), requests.len());
                batch.iter().zip(&requests).for_each(|(slice, request)| self.add(*slice, request));
            }
            Err(refused) => assert!((refused.index as usize) < requests.len(), "{refused:?}"),
        }
    }

    fn free_many(&self, input: &mut Input<'_>) {
        let mut ids: Vec<_> = (0..input.below(5)).filter_map(|_| self.live(input.below(256))).collect();
        if input.one_in(4) {
            ids.extend(self.any(input));
        }
        let points = if input.one_in(2) { self.points(input) } else { Vec::new() };
        let mut distinct = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let good = distinct.len() == ids.len() && ids.iter().all(|&id| self.is_live(id)) && points.len() <= 64;
        let freed = self.free_with(&ids, &points, || {
            self.allocator().free_after_many(&ids, &points).map_err(|refused| refused.error)
        });
        assert_eq!(freed.is_ok(), good || (ids.is_empty() && points.len() <= 64), "{freed:?} for {ids:?}");
    }

    fn map(&self, input: &mut Input<'_>) {
        let id = if input.one_in(8) { self.any(input) } else { self.live(input.below(256)) };
        let Some(id) = id else { return };
        let (offset, size) = (input.number(), if input.one_in(2) { u64::MAX } else { input.number() });
        let allocator = self.allocator();
        let outcome = match input.byte() & 3 {
            0 => allocator.map(id).map(|at| assert!(!at.is_null())),
            1 => allocator.unmap(id),
            2 => allocator.flush(id, offset, size),
            _ => allocator.invalidate(id, offset, size),
        };
        match outcome {
            // A callback may have freed it meanwhile.
            Ok(()) => {}
            Err(error @ (Error::StaleHandle | Error::ForeignHandle)) if !self.is_live(id) => {
                self.check_refusal(id, error);
            }
            Err(
                Error::InvalidArgument { .. }
                | Error::NotSupported { .. }
                | Error::DeviceFailed { .. }
                | Error::OutOfDeviceMemory { .. }
                | Error::MappingFailed { .. },
            ) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    fn install_others(&self, input: &mut Input<'_>) {
        let pools: Vec<_> = (0..1 + input.below(3)).map(|_| shape::pool(input, self.types.len() as u32)).collect();
        if input.one_in(2) {
            while let Some(id) = self.live(0) {
                self.free(Some(id));
            }
            for timeline in TIMELINES {
                let _ = self.collect(timeline, u64::MAX);
            }
        }
        let _ = self.install(&pools);
    }

    fn resolve(&self, input: &mut Input<'_>) {
        let id = if input.one_in(8) { self.any(input) } else { self.live(input.below(256)) };
        let Some(id) = id else { return };
        match self.allocator().resolve(id) {
            Ok(slice) => {
                let mut state = self.world.state.borrow_mut();
                assert!(state.held.contains_key(&slice.memory), "{slice:?} has no memory");
                // A callback may have freed it meanwhile.
                if let Some(live) = state.live.get_mut(&id.to_raw()) {
                    live.slice = slice;
                }
            }
            Err(error @ (Error::StaleHandle | Error::ForeignHandle)) => {
                assert!(!self.is_live(id));
                self.check_refusal(id, error);
            }
            Err(error) => assert!(self.world.state.borrow().habits.dry_run, "{error:?}"),
        }
    }

    fn adopt(&self, input: &mut Input<'_>) {
        let pool = input.below(self.allocator().pool_count() + 1);
        let report = self.allocator().pool_report(pool);
        let size = match report.as_ref().map(|report| &report.options.pool_type) {
            Some(PoolType::SlicedPages { page_size, .. }) if !input.one_in(4) => *page_size,
            Some(_) if !input.one_in(4) => self.measures.borrow()[pool].granule.saturating_mul(4),
            _ => input.number(),
        };
        let memory_type = report.as_ref().map_or(0, |report| report.options.memory_type);
        let alignment = report.as_ref().map_or(1, |report| report.page_alignment);
        let again = input.one_in(8);
        let memory = {
            let mut state = self.world.state.borrow_mut();
            let request = PageRequest::new(size.max(1), alignment);
            match state
                .held
                .values()
                .next()
                .filter(|_| again)
                .map(|held| held.memory)
                .or_else(|| state.new_page(&request))
            {
                Some(memory) => DeviceMemory { size, ..memory },
                None => return,
            }
        };
        let known = self.world.state.borrow().held.contains_key(&memory.handle);
        if !known {
            self.world.state.borrow_mut().hold(memory, memory_type);
        }
        let adopted = self.allocator().adopt(pool as u32, &memory);
        assert!(adopted.is_err() || (!known && report.is_some()), "{memory:?} is live already");
        if adopted.is_err() && !known {
            self.world.state.borrow_mut().let_go(&memory);
        }
    }

    fn look(&self, input: &mut Input<'_>) {
        let allocator = self.allocator();
        let live = self.live(input.below(256));
        match input.byte() & 7 {
            0 | 1 => {
                let Some(id) = live else { return };
                let label = Label::named("of the fuzzer").with_user_data(input.number());
                if allocator.set_label(id, &label).is_ok() {
                    assert_eq!(allocator.label(id), Ok(label));
                }
            }
            2 => {
                let mut report = String::new();
                allocator.write_json(&mut report).expect("a string takes everything");
                assert!(report.starts_with('{') && report.ends_with('}'));
            }
            3 => {
                let Some(slice) = live.and_then(|id| allocator.get(id).ok()) else { return };
                let found = allocator.find(slice.memory, slice.offset);
                let own = |range: &slicepool_core::Range| range.id == Some(slice.id) || slice.size == 0;
                assert!(slice.memory == u64::MAX || found.as_ref().is_some_and(own), "{slice:?}: {found:?}");
            }
            4 => {
                allocator.find_address(input.number());
                allocator.find(input.number(), input.number());
            }
            5 => {
                let request = self.request(input);
                let both = (allocator.would_fit(&request), allocator.would_grow(&request));
                assert!(matches!(both, (Ok(fits), Ok(grows)) if fits != grows) || both.0.is_err());
            }
            6 => {
                for pool in 0..allocator.pool_count() {
                    let report = allocator.pool_report(pool).expect("there is such a pool");
                    let plan = report.plan();
                    let cuts = matches!(plan.pool_type, PoolType::SlicedPages { .. });
                    assert!(!cuts || plan.near_page != NearPage::WhenUncapped, "written down as it was: {plan:?}");
                }
            }
            _ => {
                let report = allocator.heap_report(u32::from(input.byte() & 3));
                assert!(report.is_some() || allocator.heap_count() < 4);
                let types = allocator.memory_type_count();
                assert!(allocator.type_statistics(types).is_none() && allocator.type_statistics(0).is_some());
            }
        }
    }

    fn change_limits(&self, input: &mut Input<'_>) {
        if input.one_in(2) {
            self.host.fail_in(Some(u32::from(input.byte() & 3)));
            let request = self.request(input);
            return self.allocate(&request);
        }
        if let Some(budget) = &self.budget {
            budget.set_limits(input.maybe(), input.maybe().map(|pages| pages as u32));
        }
    }
}
