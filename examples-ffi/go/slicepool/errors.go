package slicepool

// #include <slicepool.h>
import "C"

import "fmt"

// Code is a result of the library. Codes are errors, too, so that errors.Is(err, slicepool.StaleHandle) asks for one.
type Code int32

// The results that programs usually tell apart; any other is a Code as well.
const (
	InvalidArgument   Code = C.SLICEPOOL_ERROR_INVALID_ARGUMENT
	StaleHandle       Code = C.SLICEPOOL_ERROR_STALE_HANDLE
	ForeignHandle     Code = C.SLICEPOOL_ERROR_FOREIGN_HANDLE
	TooLarge          Code = C.SLICEPOOL_ERROR_TOO_LARGE
	BudgetExceeded    Code = C.SLICEPOOL_ERROR_BUDGET_EXCEEDED
	OutOfDeviceMemory Code = C.SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY
	DeviceFailed      Code = C.SLICEPOOL_ERROR_DEVICE_FAILED
	Busy              Code = C.SLICEPOOL_ERROR_BUSY
	VersionMismatch   Code = C.SLICEPOOL_ERROR_VERSION_MISMATCH
)

// Error is the library's text for the code.
func (c Code) Error() string { return C.GoString(C.slicepool_result_string(C.slicepool_result(c))) }

// Error is a call that failed, with the details of slicepool_failure that matter here; those that say nothing are 0.
type Error struct {
	Code       Code
	Field      string // name of the argument that was refused
	Value      uint64 // and its value
	Size       uint64 // bytes asked for
	Limit      uint64 // bytes that could have been asked for, or may be held
	Live       uint64 // live slices, for Busy
	DeviceCode int32
	Cause      error // what a method of the device failed with, nil if none did
}

// Error is the text of the code, the details, and the cause.
func (e *Error) Error() string {
	text := fmt.Sprintf("slicepool: %v (%d)", e.Code.Error(), int32(e.Code))
	if e.Field != "" {
		text += fmt.Sprintf(", %s %d", e.Field, e.Value)
	}
	if e.Size != 0 {
		text += fmt.Sprintf(", %d bytes asked for", e.Size)
	}
	if e.Limit != 0 {
		text += fmt.Sprintf(", limit %d", e.Limit)
	}
	if e.Live != 0 {
		text += fmt.Sprintf(", %d live", e.Live)
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Is compares with a Code.
func (e *Error) Is(target error) bool { return target == error(e.Code) }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Cause }

// check turns a result into an error. It always takes the cause, as a device that was asked again may have had success.
func check(result C.slicepool_result, failure *C.slicepool_failure, handle C.uintptr_t) error {
	cause := takeCause(handle)
	if result == C.SLICEPOOL_OK {
		return nil
	}
	err := &Error{Code: Code(result), Cause: cause}
	// One that was not written to says nothing.
	if failure != nil && failure.result == C.int32_t(result) {
		err.Value = uint64(failure.value)
		err.Size = uint64(failure.size)
		err.Limit = uint64(failure.limit)
		err.Live = uint64(failure.live)
		err.DeviceCode = int32(failure.device_code)
		if failure.field != nil {
			err.Field = C.GoString(failure.field)
		}
	}
	return err
}
