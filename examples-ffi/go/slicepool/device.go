package slicepool

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime/cgo"
	"unsafe"
)

// PageRequest is what a device is asked for.
type PageRequest struct {
	Size, Alignment uint64 // bytes
}

// Page is memory that a device has given out.
type Page struct {
	// Handle is the device's own name for the memory: any value but the largest.
	Handle uint64
	// Address is where the device sees the memory, 0 if it has none.
	Address uint64
	// Size in bytes, filled in by the library.
	Size uint64
	// Mapped is where the CPU sees the memory, or nil. It must not be memory of Go's, as C keeps it.
	Mapped unsafe.Pointer
}

// Device gives out memory. Its methods are called by the goroutine whose call needs them, by several at once, with no
// lock held. They may use the allocator, except for closing it. The error with which one fails is what
// errors.Is and errors.As find in the error of that call; one that is OutOfDeviceMemory says so to the allocator.
type Device interface {
	Allocate(PageRequest) (Page, error)
	Deallocate(Page) error
}

// Panic is the error of a call during which a device panicked. No panic may run through C.
type Panic struct {
	Value any // what panic was given
}

func (p *Panic) Error() string { return fmt.Sprintf("the device panicked: %v", p.Value) }

// guarded calls a device and turns its error into a result, also if it panics.
func guarded(call func() error) C.slicepool_result {
	err := func() (err error) {
		defer func() {
			if value := recover(); value != nil {
				err = &Panic{value}
			}
		}()
		return call()
	}()
	if err == nil {
		return C.SLICEPOOL_OK
	}
	takeCause(C.bridge_keep_cause(C.uintptr_t(cgo.NewHandle(err))))
	if errors.Is(err, OutOfDeviceMemory) {
		return C.SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY
	}
	return C.SLICEPOOL_ERROR_DEVICE_FAILED
}

// takeCause returns the error that a callback has kept, and frees its handle.
func takeCause(handle C.uintptr_t) error {
	if handle == 0 {
		return nil
	}
	defer cgo.Handle(handle).Delete()
	return cgo.Handle(handle).Value().(error)
}

//export slicepoolGoAllocate
func slicepoolGoAllocate(device unsafe.Pointer, request *C.bridge_const_page_request, memory *C.slicepool_device_memory) C.slicepool_result {
	return guarded(func() error {
		page, err := cgo.Handle(device).Value().(Device).Allocate(PageRequest{
			Size:      uint64(request.size),
			Alignment: uint64(request.alignment),
		})
		if err == nil {
			memory.handle = C.uint64_t(page.Handle)
			memory.address = C.uint64_t(page.Address)
			memory.mapped = page.Mapped
		}
		return err
	})
}

//export slicepoolGoDeallocate
func slicepoolGoDeallocate(device unsafe.Pointer, memory *C.bridge_const_device_memory) C.slicepool_result {
	return guarded(func() error {
		return cgo.Handle(device).Value().(Device).Deallocate(Page{
			Handle:  uint64(memory.handle),
			Address: uint64(memory.address),
			Size:    uint64(memory.size),
			Mapped:  memory.mapped,
		})
	})
}
