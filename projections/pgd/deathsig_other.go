//go:build !linux

package pgd

import "syscall"

// setDeathSignal does nothing: only Linux has such a signal. An orphan is stopped at the next start.
func setDeathSignal(*syscall.SysProcAttr) {}
