// A device written in Go, and what an allocator makes of it. Prints a line for each check, and fails if one does not hold.
// With the argument "refused" the device fails on purpose, and the program ends with its error.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"

	"slicepool.example/slicepool"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "refused" {
		device := newMappings()
		device.allocateFails = func() error { return errLost }
		finish(firstAllocation(device))
	}
	checks := []struct {
		name string
		run  func() error
	}{
		{"slices are memory", slicesAreMemory},
		{"errors carry code and details", errorsCarryDetails},
		{"an error of the device reaches the caller", deviceErrors},
		{"a panic of the device is an error", devicePanics},
		{"a page that is refused can be given back later", refusedPages},
		{"a device may use its allocator", nestedCalls},
		{"four threads allocate and free", fourThreads},
	}
	for _, check := range checks {
		if err := check.run(); err != nil {
			finish(fmt.Errorf("%s: %w", check.name, err))
		}
		fmt.Println("ok", check.name)
	}
}

func finish(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var errLost = errors.New("the device is lost")

// expect is an error unless something holds.
func expect(holds bool, format string, arguments ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, arguments...)
}

// first is the first error there is.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func firstAllocation(device slicepool.Device) error {
	allocator, err := slicepool.New(device, 0)
	if err != nil {
		return err
	}
	slice, err := allocator.Allocate(4096, 0)
	// 0, where there is none, is ignored.
	return first(err, allocator.Free(slice.ID), allocator.Close())
}

func slicesAreMemory() error {
	device := newMappings()
	allocator, err := slicepool.New(device, 0)
	if err != nil {
		return err
	}
	slice, err := allocator.Allocate(1000, 256)
	if err != nil {
		return err
	}
	copy(slice.Bytes(), "slice")
	found, err := allocator.Slice(slice.ID)
	if err != nil {
		return err
	}
	figures, err := allocator.Statistics()
	return first(
		err,
		expect(slice.Size >= 1000 && slice.Offset%256 == 0, "%+v", slice),
		expect(found == slice && string(found.Bytes()[:5]) == "slice", "%+v is not %+v", found, slice),
		expect(string(device.pages[slice.Memory][slice.Offset:][:5]) == "slice", "it lies elsewhere in its page"),
		expect(figures.Slices == 1 && figures.InUseBytes == 1000 && figures.DeviceAllocations == 1, "%+v", figures),
		allocator.Free(slice.ID),
		allocator.Close(),
		allocator.Close(),
		expect(device.taken == 1 && device.returned == 1, "%d pages taken, %d returned", device.taken, device.returned),
	)
}

func errorsCarryDetails() error {
	allocator, err := slicepool.New(newMappings(), 1<<20)
	if err != nil {
		return err
	}
	other, err := slicepool.New(newMappings(), 0)
	if err != nil {
		return err
	}
	slice, err := allocator.Allocate(4096, 0)
	if err != nil {
		return err
	}
	var busy, odd *slicepool.Error
	_, large := allocator.Allocate(2<<20, 0)
	_, unaligned := allocator.Allocate(4096, 3)
	closed := allocator.Close()
	errs := first(
		expect(errors.Is(large, slicepool.BudgetExceeded), "2 MiB of 1 MiB: %v", large),
		expect(errors.As(unaligned, &odd) && odd.Code == slicepool.InvalidArgument && odd.Field == "alignment" && odd.Value == 3,
			"an alignment of 3: %v", unaligned),
		expect(errors.As(closed, &busy) && busy.Code == slicepool.Busy && busy.Live == 1, "closed with a slice: %v", closed),
		expect(errors.Is(other.Free(slice.ID), slicepool.ForeignHandle), "freed elsewhere"),
		allocator.Free(slice.ID),
		expect(errors.Is(allocator.Free(slice.ID), slicepool.StaleHandle), "freed twice"),
		allocator.Close(),
		other.Close(),
	)
	_, gone := allocator.Allocate(1, 0)
	return first(errs, expect(errors.Is(gone, slicepool.InvalidArgument), "allocated after the end: %v", gone))
}

func deviceErrors() error {
	device := newMappings()
	device.allocateFails = func() error { return errLost }
	err := firstAllocation(device)
	device.allocateFails = func() error { return fmt.Errorf("%w for now", slicepool.OutOfDeviceMemory) }
	full := firstAllocation(device)
	device.allocateFails = nil
	return first(
		expect(errors.Is(err, errLost) && errors.Is(err, slicepool.DeviceFailed), "lost: %v", err),
		expect(errors.Is(full, slicepool.OutOfDeviceMemory), "full: %v", full),
		firstAllocation(device),
	)
}

func devicePanics() error {
	device := newMappings()
	device.allocateFails = func() error { panic("unplugged") }
	var panicked *slicepool.Panic
	err := firstAllocation(device)
	return expect(errors.As(err, &panicked) && panicked.Value == "unplugged", "%v", err)
}

func refusedPages() error {
	device := newMappings()
	allocator, err := slicepool.New(device, 0)
	if err != nil {
		return err
	}
	slice, err := allocator.Allocate(4096, 0)
	if err != nil {
		return err
	}
	device.deallocateFails = func() error { return errLost }
	errs := first(
		allocator.Free(slice.ID),
		expect(errors.Is(allocator.Trim(0), errLost), "trimmed"),
		expect(errors.Is(allocator.Close(), errLost), "closed"),
	)
	device.deallocateFails = nil
	return first(errs, allocator.Close(), expect(device.returned == device.taken, "a page is missing"))
}

func nestedCalls() error {
	device := newMappings()
	allocator, err := slicepool.New(device, 0)
	if err != nil {
		return err
	}
	errInner := errors.New("no page for the inner one")
	var inner, closed error
	within := false
	device.allocateFails = func() error {
		// The allocation from within asks for a page as well.
		if within {
			return errInner
		}
		within = true
		defer func() { within = false }()
		_, inner = allocator.Allocate(4096, 0)
		closed = allocator.Close()
		return errLost
	}
	_, outer := allocator.Allocate(4096, 0)
	return first(
		expect(errors.Is(inner, errInner) && !errors.Is(inner, errLost), "inner: %v", inner),
		expect(errors.Is(outer, errLost) && !errors.Is(outer, errInner), "outer: %v", outer),
		expect(errors.Is(closed, slicepool.Busy), "closed from within: %v", closed),
		allocator.Close(),
		nestedTrims(),
	)
}

// nestedTrims has a call from within a callback fail after an earlier callback has, whose error must stay.
func nestedTrims() error {
	const large = 64 << 20 // bytes; no two lie in one page
	device := newMappings()
	allocator, err := slicepool.New(device, 0)
	if err != nil {
		return err
	}
	one, err := allocator.Allocate(large, 0)
	if err != nil {
		return err
	}
	other, err := allocator.Allocate(large, 0)
	if err != nil {
		return err
	}
	calls := 0
	var closed error
	device.deallocateFails = func() error {
		calls++
		if calls == 1 {
			return errLost
		}
		closed = allocator.Close()
		return nil
	}
	errs := first(
		allocator.Free(one.ID),
		allocator.Free(other.ID),
		expect(errors.Is(allocator.Trim(0), errLost), "trimmed"),
		expect(calls > 1 && errors.Is(closed, slicepool.Busy), "closed from within: %v", closed),
	)
	device.deallocateFails = nil
	return first(errs, allocator.Close(), expect(device.returned == device.taken, "a page is missing"))
}

// fourThreads keeps slices of four threads stamped with their IDs: were two to overlap, a stamp would be gone. Trimming
// again and again has pages come and go, so the device is called by all of them.
func fourThreads() error {
	const threads, rounds, kept = 4, 2000, 16
	device := newMappings()
	allocator, err := slicepool.New(device, 0)
	if err != nil {
		return err
	}
	work := func(seed uint64) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		live := make([]slicepool.Slice, 0, kept)
		free := func() error {
			slice := live[0]
			live = live[1:]
			id := binary.LittleEndian.Uint64(slice.Bytes())
			return first(expect(id == slice.ID, "slice %d has the stamp %d", slice.ID, id), allocator.Free(slice.ID))
		}
		for round := uint64(0); round < rounds; round++ {
			seed = seed*6364136223846793005 + 1442695040888963407
			slice, err := allocator.Allocate(8+(seed>>33)%(1<<16), 0)
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint64(slice.Bytes(), slice.ID)
			live = append(live, slice)
			// Now and then with nothing left, so that pages can go.
			for len(live) == kept || round%100 == 99 && len(live) > 0 {
				if err := free(); err != nil {
					return err
				}
			}
			if round%100 == 99 {
				if err := allocator.Trim(0); err != nil {
					return err
				}
			}
		}
		return nil
	}
	results := make(chan error)
	for thread := uint64(1); thread <= threads; thread++ {
		go func(seed uint64) { results <- work(seed) }(thread)
	}
	errs := make([]error, 0, threads)
	for len(errs) < threads {
		errs = append(errs, <-results)
	}
	figures, err := allocator.Statistics()
	return first(
		first(errs...),
		err,
		expect(figures.Slices == 0 && figures.InUseBytes == 0, "%+v", figures),
		allocator.Close(),
		expect(device.taken == device.returned && len(device.pages) == 0, "%d pages taken, %d returned", device.taken, device.returned),
		expect(device.taken > 1, "%d pages taken: trimming has done nothing", device.taken),
	)
}
