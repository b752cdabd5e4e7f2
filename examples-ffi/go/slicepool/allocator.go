// Package slicepool shows how Go uses the slicepool library: a device written in Go, results as errors, and who owns what.
//
// Go moves nothing that C has seen, but C may not keep a pointer of Go's. So a device goes to C as a number
// (cgo.Handle), which keeps it alive until Close, and structs that point to others are filled in by C (bridge.c). There are
// no finalizers: they run at any time or never, and on a thread of their own; whoever makes an allocator closes it.
package slicepool

// #cgo LDFLAGS: -lslicepool
// #include "bridge.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// Allocator hands out slices of a device's memory. Any goroutine may use it at any time, except for Close.
type Allocator struct {
	pointer *C.slicepool_allocator
	device  cgo.Handle
}

// Slice is a part of a page. It is a plain value that owns nothing: Free takes its ID, and after that the ID is stale and
// Mapped must not be used.
type Slice struct {
	ID      uint64 // never 0, never given out again
	Memory  uint64 // handle of the page
	Offset  uint64 // bytes from the start of the page
	Size    uint64 // usable bytes
	Address uint64 // as the device sees it, 0 if it gives none
	Mapped  unsafe.Pointer
}

// Bytes is the slice's memory as the CPU sees it, nil if it does not; valid until the slice is freed.
func (s Slice) Bytes() []byte {
	if s.Mapped == nil {
		return nil
	}
	return unsafe.Slice((*byte)(s.Mapped), s.Size)
}

// Statistics are some figures of an allocator.
type Statistics struct {
	ReservedBytes, InUseBytes, DeviceAllocations, DeviceDeallocations uint64
	Slices                                                            uint32
}

func failed() *C.slicepool_failure {
	return &C.slicepool_failure{struct_size: C.sizeof_slicepool_failure}
}

// New makes an allocator that holds at most maxBytes of the device's memory, 0: as many as it gives. Close it.
func New(device Device, maxBytes uint64) (*Allocator, error) {
	// Before version 1.0, libraries of another minor version may differ in anything.
	if uint32(C.slicepool_version())/1000 != C.SLICEPOOL_VERSION_NUMBER/1000 {
		return nil, &Error{Code: VersionMismatch}
	}
	allocator := &Allocator{device: cgo.NewHandle(device)}
	failure, cause := failed(), C.uintptr_t(0)
	result := C.bridge_create(C.uintptr_t(allocator.device), C.uint64_t(maxBytes), &allocator.pointer, failure, &cause)
	if err := check(result, failure, cause); err != nil {
		allocator.device.Delete()
		return nil, err
	}
	return allocator, nil
}

// Allocate hands out a slice of so many bytes at a multiple of alignment, a power of two; 0: any.
func (a *Allocator) Allocate(size, alignment uint64) (Slice, error) {
	slice := C.slicepool_slice{struct_size: C.sizeof_slicepool_slice}
	failure, cause := failed(), C.uintptr_t(0)
	result := C.bridge_allocate(a.pointer, C.uint64_t(size), C.uint64_t(alignment), &slice, failure, &cause)
	if err := check(result, failure, cause); err != nil {
		return Slice{}, err
	}
	return sliceOf(&slice), nil
}

// Free takes a slice back, which may have come from any goroutine. A second time it is StaleHandle. No device is asked.
func (a *Allocator) Free(id uint64) error {
	return check(C.slicepool_free(a.pointer, C.uint64_t(id)), nil, 0)
}

// Slice finds a live slice by its ID.
func (a *Allocator) Slice(id uint64) (Slice, error) {
	slice := C.slicepool_slice{struct_size: C.sizeof_slicepool_slice}
	if err := check(C.slicepool_slice_get(a.pointer, C.uint64_t(id), &slice), nil, 0); err != nil {
		return Slice{}, err
	}
	return sliceOf(&slice), nil
}

// Trim gives pages that hold nothing back to the device, while at least minKeepBytes stay reserved.
func (a *Allocator) Trim(minKeepBytes uint64) error {
	failure, cause := failed(), C.uintptr_t(0)
	result := C.bridge_trim(a.pointer, C.uint64_t(minKeepBytes), failure, &cause)
	return check(result, failure, cause)
}

// Statistics tells the allocator's figures.
func (a *Allocator) Statistics() (Statistics, error) {
	figures := C.slicepool_statistics{struct_size: C.sizeof_slicepool_statistics}
	if err := check(C.slicepool_statistics_get(a.pointer, &figures), nil, 0); err != nil {
		return Statistics{}, err
	}
	return Statistics{
		ReservedBytes:       uint64(figures.reserved_bytes),
		InUseBytes:          uint64(figures.in_use_bytes),
		DeviceAllocations:   uint64(figures.device_allocations),
		DeviceDeallocations: uint64(figures.device_deallocations),
		Slices:              uint32(figures.slices),
	}, nil
}

// Close gives every page back and frees the allocator, which nobody else may be using. With live slices it is Busy, and
// if the device refuses a page DeviceFailed: the allocator is as usable as before then. Afterwards every method
// answers InvalidArgument, but for Close, which does nothing.
func (a *Allocator) Close() error {
	if a.pointer == nil {
		return nil
	}
	failure, cause := failed(), C.uintptr_t(0)
	result := C.bridge_destroy(a.pointer, failure, &cause)
	if err := check(result, failure, cause); err != nil {
		return err
	}
	a.pointer = nil
	// Not before: destroying calls the device.
	a.device.Delete()
	return nil
}

func sliceOf(slice *C.slicepool_slice) Slice {
	return Slice{
		ID:      uint64(slice.id),
		Memory:  uint64(slice.memory),
		Offset:  uint64(slice.offset),
		Size:    uint64(slice.size),
		Address: uint64(slice.address),
		Mapped:  slice.mapped,
	}
}
