package main

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"slicepool.example/slicepool"
)

// mappings is a device whose pages are anonymous mappings of the operating system: memory that is not Go's.
type mappings struct {
	mutex    sync.Mutex
	pages    map[uint64][]byte
	taken    int
	returned int
	// Tests set these: what to fail with instead.
	allocateFails   func() error
	deallocateFails func() error // nil: it does not
}

func newMappings() *mappings { return &mappings{pages: map[uint64][]byte{}} }

func (m *mappings) Allocate(request slicepool.PageRequest) (slicepool.Page, error) {
	if m.allocateFails != nil {
		return slicepool.Page{}, m.allocateFails()
	}
	if request.Alignment > uint64(syscall.Getpagesize()) {
		return slicepool.Page{}, fmt.Errorf("mappings cannot be aligned to %d bytes", request.Alignment)
	}
	bytes, err := syscall.Mmap(-1, 0, int(request.Size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err == syscall.ENOMEM {
		return slicepool.Page{}, slicepool.OutOfDeviceMemory
	}
	if err != nil {
		return slicepool.Page{}, err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.taken++
	handle := uint64(m.taken)
	m.pages[handle] = bytes
	return slicepool.Page{Handle: handle, Mapped: unsafe.Pointer(&bytes[0])}, nil
}

func (m *mappings) Deallocate(page slicepool.Page) error {
	if m.deallocateFails != nil {
		if err := m.deallocateFails(); err != nil {
			return err
		}
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	bytes, ok := m.pages[page.Handle]
	if !ok || uint64(len(bytes)) != page.Size {
		return fmt.Errorf("page %d of %d bytes was never given out", page.Handle, page.Size)
	}
	delete(m.pages, page.Handle)
	m.returned++
	return syscall.Munmap(bytes)
}
